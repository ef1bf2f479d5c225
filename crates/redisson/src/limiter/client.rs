use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::batcher::Batcher;
use super::limiter_backend::{AcquireRequest, ClientId, GrantId, Limiters};
use super::rate_choice::{OwnRate, RateChoice};
use super::redisson_use::RedissonUse;
use crate::log_on_change::LogOnChange;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// One client of the limiters: its id, and the batchers of its callers.
pub(super) struct Client {
    id: ClientId,
    next_number: AtomicU64,
    limiters: Mutex<SweptMap<Arc<str>, Arc<LimiterState>>>,
    failures: Arc<LogOnChange>,
}

/// What the callers of one limiter in this process share.
#[derive(Default)]
pub(super) struct LimiterState {
    batchers: Mutex<Vec<Weak<Batcher>>>,
    pub(super) redisson: Mutex<RedissonUse>,
    /// `None` if no limiter with a rate of its own was used.
    pub(super) rate: Mutex<Option<RateChoice>>,
    /// Failures of any limiter of the client.
    pub(super) failures: Arc<LogOnChange>,
}

impl LimiterState {
    /// Lets all waiting callers of the limiter ask again: its rate has changed, or permits were
    /// given back.
    pub(super) fn notify_waiters(&self) {
        let batchers = lock(&self.batchers).clone();
        for batcher in batchers.iter().filter_map(Weak::upgrade) {
            batcher.limiter_changed();
        }
    }

    fn is_needed(&self) -> bool {
        let is_used = |batcher: &Weak<Batcher>| batcher.strong_count() > 0;
        lock(&self.batchers).iter().any(is_used)
            || lock(&self.rate).as_ref().is_some_and(RateChoice::is_needed)
    }
}

impl Client {
    pub(super) fn new(id: ClientId) -> Self {
        Self {
            id,
            next_number: AtomicU64::new(0),
            limiters: Mutex::default(),
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
        &self,
        request: &AcquireRequest,
        limiters: &Arc<dyn Limiters>,
        rate: Option<&Arc<OwnRate>>,
    ) -> Arc<Batcher> {
        let mut by_name = lock(&self.limiters);
        by_name.sweep(|state| state.is_needed());
        let state = by_name.entry(Arc::clone(&request.name));
        let state = state.or_insert_with(|| {
            Arc::new(LimiterState {
                failures: Arc::clone(&self.failures),
                ..LimiterState::default()
            })
        });
        if let Some(own) = rate {
            let mut choice = lock(&state.rate);
            *choice = Some(RateChoice::after_use(choice.take(), own));
        }
        let mut batchers = lock(&state.batchers);
        let mut in_use = batchers.iter().filter_map(Weak::upgrade);
        if let Some(batcher) = in_use.find(|batcher| batcher.request == *request) {
            return batcher;
        }
        batchers.retain(|batcher| batcher.strong_count() > 0);
        let batcher = Arc::new(Batcher::new(request, limiters, state));
        batchers.push(Arc::downgrade(&batcher));
        batcher
    }

    /// Lets all waiting callers of this limiter ask again: see [`LimiterState::notify_waiters`].
    pub(super) fn notify_waiters(&self, name: &str) {
        let state = lock(&self.limiters).get(name).cloned();
        if let Some(state) = state {
            state.notify_waiters();
        }
    }
}
