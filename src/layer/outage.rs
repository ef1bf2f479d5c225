use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

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
    /// The store's name: two handles to one server fail together.
    store: String,
    error: StoreError,
    /// Until then the store is not asked again.
    until: Instant,
}

impl Outage {
    /// Where a store has no time-out, an answer that takes this long is late.
    const DEFAULT: Duration = Duration::from_millis(50);

    /// The outage that shows in this error, which has just happened.
    pub(super) fn of(store: &dyn Store, error: &StoreError) -> Option<Self> {
        let is_outage = matches!(
            error.kind(),
            StoreErrorKind::Timeout | StoreErrorKind::Unavailable
        );
        let patience = || store.answers_within().unwrap_or(Self::DEFAULT);
        is_outage.then(|| Self {
            store: store.name(),
            error: error.clone(),
            until: Instant::now() + patience().min(Duration::from_secs(60)),
        })
    }

    /// Tells the inner layers of the request. An outage that is known already does not last longer.
    pub(super) fn mark(self, request: &mut Extensions) {
        let now = Instant::now();
        let Outages(known) = request.get_or_insert_default();
        known.retain(|outage| outage.until > now);
        if known.iter().all(|outage| outage.store != self.store) {
            known.push(self);
        }
    }

    /// Why the store gave no decision to an outer layer of the request.
    #[inline]
    pub(super) fn known(request: &Extensions, store: &dyn Store) -> Option<StoreError> {
        let Outages(known) = request.get()?;
        let (name, now) = (store.name(), Instant::now());
        let mut known = known.iter();
        let outage = known.find(|outage| outage.until > now && outage.store == name);
        outage.map(|outage| outage.error.clone())
    }
}
