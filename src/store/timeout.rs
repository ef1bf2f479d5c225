use std::time::Duration;

use super::taking::Answering;
use super::{Refunding, Store, Take, Taking};
use crate::decision::{Decision, Token};
use crate::error::{StoreError, StoreErrorKind};

/// One bound around everything that a store does for an answer.
///
/// After it the answer is a [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout). The store inside is
/// [told](Store::give_up_after) that nobody waits longer, unless it stands behind an `Arc` or in a breaker that was cloned: who shares a
/// store sets its own time-out first. A `RedisStore` has one; this is for other stores, and for what is between.
///
/// It needs a tokio runtime with its timer enabled, unless the store inside answers at once.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, Store, Timeout};
///
/// let store = Timeout::new(MemoryStore::new(), Duration::from_millis(20));
/// assert_eq!(store.name(), "memory");
/// ```
#[derive(Debug, Clone)]
pub struct Timeout<S> {
    inner: S,
    bound: Duration,
}

impl<S: Store> Timeout<S> {
    /// Answers of `inner` within `bound`, or an error.
    #[must_use]
    pub fn new(inner: S, bound: Duration) -> Self {
        Self {
            inner: inner.give_up_after(bound),
            bound,
        }
    }

    fn bounded<'a, T>(&'a self, answering: Answering<'a, T>) -> Answering<'a, T>
    where
        T: Send + 'a,
    {
        match answering.now() {
            Ok(answer) => Answering::ready(answer),
            Err(later) => Answering::later(async move {
                let answer = tokio::time::timeout(self.bound, later).await;
                answer.unwrap_or_else(|_| Err(self.late()))
            }),
        }
    }

    fn late(&self) -> StoreError {
        let (name, bound) = (self.inner.name(), self.bound);
        let message = format!("{name} did not answer within {bound:?}");
        StoreError::new(StoreErrorKind::Timeout, message)
    }
}

impl<S: Store> Store for Timeout<S> {
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        self.bounded(self.inner.take(takes))
    }

    fn try_take(&self, take: &Take) -> Option<Result<Decision, StoreError>> {
        self.inner.try_take(take)
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        self.bounded(self.inner.refund(take, token))
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn give_up_after(self, timeout: Duration) -> Self {
        Self::new(self.inner, self.bound.min(timeout))
    }

    fn has_fallback(&self) -> bool {
        self.inner.has_fallback()
    }
}
