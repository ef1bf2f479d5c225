use std::time::Duration;

use super::{Store, StoreFuture, Take};
use crate::decision::{Decisions, Token};
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::InFlightCounter;

/// A bound on how many questions are under way: those beyond are not asked.
///
/// They are answered immediately with a [`StoreError`] of the kind
/// [`Overloaded`](StoreErrorKind::Overloaded), so that a store that has become slow does not gather
/// requests that would all be too late. A question is a call of [`Store::take`], be it of one take or
/// of a batch, or of [`Store::refund`]. Each needs a permit, also where the store inside answers
/// immediately, except a call with nothing but [repeats](Take::repeat) of callers that wait. A future
/// that is dropped gives its permit back. Clones share the permits.
///
/// ```
/// use tidegate::{InFlight, MemoryStore};
///
/// let store = InFlight::new(MemoryStore::new(), 1_024);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<S> {
    inner: S,
    most: usize,
    under_way: InFlightCounter,
    overloaded: StoreError,
}

impl<S: Store> InFlight<S> {
    /// How many it is good to have: at a time-out of 50 ms, a store that answers in the last moment still gives
    /// 20,000 answers a second.
    pub const DEFAULT_MOST: usize = 1_024;

    /// At most `most` questions under way; with 0 only repeats are asked.
    #[must_use]
    pub fn new(inner: S, most: usize) -> Self {
        let name = inner.name();
        let message = format!("{name} was not asked, it still has {most} questions to answer");
        Self {
            inner,
            most,
            under_way: InFlightCounter::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// How many questions are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.number()
    }

    /// Asks, if there is a permit. An answer that is ready gives it back immediately.
    fn count<T: Send + 'static>(&self, ask: impl FnOnce() -> StoreFuture<T>) -> StoreFuture<T> {
        let Some(permit) = self.under_way.try_acquire(self.most) else {
            return StoreFuture::ready(Err(self.overloaded.clone()));
        };
        match ask().now() {
            Ok(answer) => StoreFuture::ready(answer),
            Err(pending) => StoreFuture::boxed(async move {
                let _permit = permit;
                pending.await
            }),
        }
    }
}

impl<S: Store> Store for InFlight<S> {
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions> {
        match takes.iter().all(Take::is_repeat) {
            true => self.inner.take(takes),
            false => self.count(|| self.inner.take(takes)),
        }
    }

    fn refund(&self, take: &Take, token: &Token) -> StoreFuture<u64> {
        self.count(|| self.inner.refund(take, token))
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn give_up_after(self, timeout: Duration) -> Self {
        Self {
            inner: self.inner.give_up_after(timeout),
            ..self
        }
    }

    fn has_fallback(&self) -> bool {
        self.inner.has_fallback()
    }
}
