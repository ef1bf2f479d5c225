use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};

/// Bounds the time of a store's answers.
///
/// After that time the answer is a [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout).
/// The store inside is [told](Store::give_up_after) the time, unless it is behind an `Arc` or in a
/// breaker that was cloned: set the time-out of such a store before you share it. A `RedisStore`
/// has a time-out of its own; this one is for other stores, and for wrappers between.
///
/// It needs a tokio runtime with its timer enabled, unless the store inside answers immediately.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, Store};
/// use tidegate::store::Timeout;
///
/// let store = Timeout::new(MemoryStore::new(), Duration::from_millis(20));
/// assert_eq!(store.name(), "memory");
/// ```
#[derive(Debug, Clone)]
pub struct Timeout<S> {
    inner: S,
    name: Arc<str>,
    bound: Duration,
}

impl<S: Store> Timeout<S> {
    /// Answers of `inner` within `bound`, or an error.
    #[must_use]
    pub fn new(inner: S, bound: Duration) -> Self {
        Self {
            name: inner.name().into(),
            inner: inner.give_up_after(bound),
            bound,
        }
    }

    fn bounded<T: Send + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        let pending = match answer.now() {
            Ok(answer) => return StoreFuture::ready(answer),
            Err(pending) => pending,
        };
        let (bound, name) = (self.bound, Arc::clone(&self.name));
        StoreFuture::boxed(async move {
            let answer = tokio::time::timeout(bound, pending).await;
            answer.unwrap_or_else(|_| {
                let message = format!("{name} did not answer within {bound:?}");
                Err(StoreError::new(StoreErrorKind::Timeout, message))
            })
        })
    }
}

impl<S: Store> Store for Timeout<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.bounded(self.inner.take(take))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.bounded(self.inner.refund(take, receipt))
    }

    fn reset(&self, take: &Take) -> StoreFuture<()> {
        self.bounded(self.inner.reset(take))
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
