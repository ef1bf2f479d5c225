use std::sync::Arc;

use super::{Store, StoreFuture, Take};
use crate::decision::{Decisions, Token};

/// The store behind the `Arc`, so that a store that is shared can be wrapped as well.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions> {
        S::take(self, takes)
    }

    fn refund(&self, take: &Take, token: &Token) -> StoreFuture<u64> {
        S::refund(self, take, token)
    }

    fn name(&self) -> String {
        S::name(self)
    }

    fn has_fallback(&self) -> bool {
        S::has_fallback(self)
    }
}
