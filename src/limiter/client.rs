use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::batcher::Batcher;
use super::give_back_queue::GiveBackQueue;
use super::limiter_backend::{AcquireRequest, ClientId, GrantId, Limiters};
use super::redisson_use::RedissonUse;
use crate::log_on_change::LogOnChange;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// One client of the limiters: its id, and the batchers of its callers.
pub(super) struct Client {
    id: ClientId,
    next_number: AtomicU64,
    batchers: Mutex<SweptMap<Arc<str>, NamedBatchers>>,
    failures: Arc<LogOnChange>,
}

/// The batchers of one limiter, and what they know together.
#[derive(Default)]
struct NamedBatchers {
    batchers: Vec<Weak<Batcher>>,
    redisson: Arc<Mutex<RedissonUse>>,
}

impl Client {
    pub(super) fn new(id: ClientId) -> Self {
        Self {
            id,
            next_number: AtomicU64::new(0),
            batchers: Mutex::default(),
            failures: Arc::default(),
        }
    }

    /// A client whose id is the first half of this UUID.
    #[cfg(feature = "redis")]
    pub(super) fn with_uuid(uuid: &str) -> Self {
        let uuid = uuid::Uuid::try_parse(uuid).unwrap_or_else(|_| uuid::Uuid::new_v4());
        let (id, _) = uuid.as_u64_pair();
        Self::new(id.to_be_bytes())
    }

    pub(super) const fn id(&self) -> ClientId {
        self.id
    }

    pub(super) fn next_grant_id(&self) -> GrantId {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id);
        id[8..].copy_from_slice(&number.to_be_bytes());
        id
    }

    /// The batcher of all callers with this request.
    pub(super) fn batcher(
        self: &Arc<Self>,
        request: &AcquireRequest,
        limiters: &Arc<dyn Limiters>,
    ) -> Arc<Batcher> {
        let mut map = lock(&self.batchers);
        map.sweep(NamedBatchers::have_callers);
        let named = map.entry(Arc::clone(&request.name)).or_default();
        let NamedBatchers { batchers, redisson } = named;
        let mut in_use = batchers.iter().filter_map(Weak::upgrade);
        if let Some(batcher) = in_use.find(|batcher| batcher.request == *request) {
            return batcher;
        }
        batchers.retain(|batcher| batcher.strong_count() > 0);
        let (client, name) = (Arc::downgrade(self), Arc::clone(&request.name));
        let notify_waiters = move || {
            if let Some(client) = client.upgrade() {
                client.notify_waiters(&name);
            }
        };
        let give_back = GiveBackQueue::new(limiters, request, notify_waiters);
        let batcher = Arc::new(Batcher::new(
            request,
            limiters,
            give_back,
            redisson,
            &self.failures,
        ));
        batchers.push(Arc::downgrade(&batcher));
        batcher
    }

    /// Lets all waiting callers of this limiter ask again: its rate has changed, or permits were
    /// given back.
    pub(super) fn notify_waiters(&self, name: &str) {
        let named = lock(&self.batchers);
        let batchers = named.get(name).map(|named| named.batchers.clone());
        drop(named);
        for batcher in batchers.iter().flatten().filter_map(Weak::upgrade) {
            batcher.limiter_changed();
        }
    }
}

impl NamedBatchers {
    fn have_callers(&self) -> bool {
        let mut batchers = self.batchers.iter();
        batchers.any(|batcher| batcher.strong_count() > 0)
    }
}
