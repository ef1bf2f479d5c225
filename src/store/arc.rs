use std::any::Any;
use std::sync::Arc;

use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt};

/// The store behind the `Arc`, so that a store that is shared can be wrapped as well.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        S::take(self, take)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        S::refund(self, take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<()> {
        S::reset(self, take)
    }

    fn name(&self) -> String {
        S::name(self)
    }

    fn has_fallback(&self) -> bool {
        S::has_fallback(self)
    }
}

/// The store as all its users share it. One that is an `Arc<dyn Store>` already stays that.
pub(crate) fn shared<S: Store>(store: S) -> Arc<dyn Store> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn Store>>() {
        Some(store) => Arc::clone(store),
        None => Arc::new(store),
    }
}
