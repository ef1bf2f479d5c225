use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::batcher::Batcher;
use super::limiter_backend::{AcquireRequest, ClientId, GrantId, Limiters, Sharing};
use super::rate_choice::{OwnRate, RateChoice};
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
struct NamedBatchers {
    batchers: Vec<Weak<Batcher>>,
    state: Arc<LimiterState>,
}

/// What the callers of one limiter in this process know together.
pub(super) struct LimiterState {
    name: Arc<str>,
    client: Weak<Client>,
    pub(super) redisson: Mutex<RedissonUse>,
    pub(super) rate: Mutex<RateChoice>,
    /// Failures of any limiter of the client.
    pub(super) failures: Arc<LogOnChange>,
}

impl LimiterState {
    /// Lets all waiting callers of the limiter ask again: see [`Client::notify_waiters`].
    pub(super) fn notify_waiters(&self) {
        if let Some(client) = self.client.upgrade() {
            client.notify_waiters(&self.name);
        }
    }
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

    /// The batcher of all callers with this request. `rate` is the one that the limiter carries.
    pub(super) fn batcher(
        self: &Arc<Self>,
        request: &AcquireRequest,
        limiters: &Arc<dyn Limiters>,
        rate: Option<(&Arc<OwnRate>, Sharing)>,
    ) -> Arc<Batcher> {
        let mut map = lock(&self.batchers);
        map.sweep(NamedBatchers::are_needed);
        let named = map.entry(Arc::clone(&request.name));
        let named = named.or_insert_with(|| self.named_batchers(&request.name));
        let NamedBatchers { batchers, state } = named;
        if let Some((own, sharing)) = rate {
            lock(&state.rate).used(own, sharing);
        }
        let mut in_use = batchers.iter().filter_map(Weak::upgrade);
        if let Some(batcher) = in_use.find(|batcher| batcher.request == *request) {
            return batcher;
        }
        batchers.retain(|batcher| batcher.strong_count() > 0);
        let batcher = Arc::new(Batcher::new(request, limiters, state));
        batchers.push(Arc::downgrade(&batcher));
        batcher
    }

    fn named_batchers(self: &Arc<Self>, name: &Arc<str>) -> NamedBatchers {
        let state = LimiterState {
            name: Arc::clone(name),
            client: Arc::downgrade(self),
            redisson: Mutex::default(),
            rate: Mutex::default(),
            failures: Arc::clone(&self.failures),
        };
        NamedBatchers {
            batchers: Vec::new(),
            state: Arc::new(state),
        }
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
    fn are_needed(&self) -> bool {
        let mut batchers = self.batchers.iter();
        batchers.any(|batcher| batcher.strong_count() > 0) || lock(&self.state.rate).is_needed()
    }
}
