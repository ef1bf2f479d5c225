use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use crate::callback::caught;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Store;

/// The stores that gave no decision to the outer layers of a request, in its extensions.
///
/// A request pays for a time-out once: for as long as one time-out, later layers over the same
/// store do not ask it. Its fallback decides, or they get the same error.
#[derive(Debug, Clone, Default)]
struct Outages(Vec<Outage>);

/// A store that gave no decision to a layer.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// The store's name, and where it is in memory.
    store: (String, usize),
    error: StoreError,
    /// Until then the store is not asked again.
    until: Instant,
}

impl Outage {
    /// For a store whose time-out was not set: the default of a `RedisStore`.
    const DEFAULT: Duration = Duration::from_millis(50);

    /// The outage that shows in this error, which has just happened.
    pub(super) fn of(store: &Arc<dyn Store>, error: &StoreError) -> Option<Self> {
        let is_outage = matches!(
            error.kind(),
            StoreErrorKind::Timeout | StoreErrorKind::Unavailable
        );
        if !is_outage {
            return None;
        }
        let asked = caught("store", "", || (named(store), store.answers_within()));
        let (store, patience) = asked.ok()?;
        let patience = patience.unwrap_or(Self::DEFAULT);
        Some(Self {
            store,
            error: error.clone(),
            until: Instant::now() + patience.min(Duration::from_secs(60)),
        })
    }

    /// Tells the inner layers of the request. An outage that is known already does not last longer.
    pub(super) fn mark(self, request: &mut Extensions) {
        let now = Instant::now();
        let Outages(known) = request.get_or_insert_default();
        known.retain(|outage| outage.until > now);
        if !known.iter().any(|outage| outage.is_of(&self.store)) {
            known.push(self);
        }
    }

    /// Why the store gave no decision to an outer layer of the request.
    #[inline]
    pub(super) fn known(request: &Extensions, store: &Arc<dyn Store>) -> Option<StoreError> {
        let Outages(known) = request.get()?;
        let store = caught("store", "", || named(store)).ok()?;
        let (mut known, now) = (known.iter(), Instant::now());
        let outage = known.find(|outage| outage.until > now && outage.is_of(&store));
        outage.map(|outage| outage.error.clone())
    }

    /// Whether it is of this store, or of another handle to the same server.
    fn is_of(&self, store: &(String, usize)) -> bool {
        // As the addresses of this crate are shown.
        let is_address = || store.0.starts_with("redis ");
        self.store.1 == store.1 || (self.store.0 == store.0 && is_address())
    }
}

fn named(store: &Arc<dyn Store>) -> (String, usize) {
    (store.name(), Arc::as_ptr(store).addr())
}
