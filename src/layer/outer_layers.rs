//! What outer layers have found out about a request, in its extensions.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use super::decisions::capabilities;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Store;
use crate::store::capabilities::{DEFAULT_TIMEOUT, ServerId};

/// When a request began to wait: the time counts in inner layers, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingSince(pub(super) Instant);

/// The stores that gave no decision to the outer layers of a request, in its extensions.
///
/// A request pays for a time-out once: for as long as one time-out, later layers over the same
/// store do not ask it. Its fallback decides, or they get the same error.
#[derive(Debug, Clone, Default)]
pub(super) struct Outages(Vec<Outage>);

/// A store that gave no decision to a layer.
#[derive(Debug, Clone)]
pub(super) struct Outage {
    store: StoreId,
    error: StoreError,
    /// Until then the store is not asked again.
    until: Instant,
}

impl Outage {
    /// The outage that shows in this error, which has just happened.
    pub(super) fn find(store: &Arc<dyn Store>, error: &StoreError) -> Option<Self> {
        let is_outage = matches!(
            error.kind(),
            StoreErrorKind::Timeout | StoreErrorKind::Unavailable
        );
        if !is_outage {
            return None;
        }
        let patience = capabilities(store).timeout.unwrap_or(DEFAULT_TIMEOUT);
        Some(Self {
            store: StoreId::new(store),
            error: error.clone(),
            until: Instant::now() + patience.min(Duration::from_secs(60)),
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
}

impl Outages {
    /// Why the store gave no decision to an outer layer of the request.
    #[cold]
    pub(super) fn of(&self, store: &Arc<dyn Store>) -> Option<Box<StoreError>> {
        let (store, now) = (StoreId::new(store), Instant::now());
        let mut known = self.0.iter();
        let outage = known.find(|outage| outage.until > now && outage.store == store);
        outage.map(|outage| Box::new(outage.error.clone()))
    }
}

/// Tells stores apart: all handles to one server are one store.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StoreId {
    Server(ServerId),
    /// The address in memory of a store that no other one shares its counts with.
    Alone(usize),
}

impl StoreId {
    fn new(store: &Arc<dyn Store>) -> Self {
        let alone = || Self::Alone(Arc::as_ptr(store).addr());
        capabilities(store).server.map_or_else(alone, Self::Server)
    }
}
