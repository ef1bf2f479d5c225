use std::sync::Arc;

use super::{Refunding, Store, Take, Taking};
use crate::decision::{Decision, Token};
use crate::error::StoreError;

/// What is behind it, so that a store that is shared can be wrapped as well.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        S::take(self, takes)
    }

    fn try_take(&self, take: &Take) -> Option<Result<Decision, StoreError>> {
        S::try_take(self, take)
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        S::refund(self, take, token)
    }

    fn name(&self) -> String {
        S::name(self)
    }

    fn has_fallback(&self) -> bool {
        S::has_fallback(self)
    }
}
