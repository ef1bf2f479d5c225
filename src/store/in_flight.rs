use std::time::Duration;

use super::wrapper::{Answer, Wrapper};
use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::{InFlightCounter, Permit};

/// Bounds how many questions wait for a store's answer at once: it does not ask more.
///
/// They are answered immediately with a [`StoreError`] of the kind
/// [`Overloaded`](StoreErrorKind::Overloaded), so that a store that has become slow does not gather
/// requests that would all be too late. A question is a take, a refund or a reset. Each
/// needs a permit, also where the store inside answers immediately, except [repeats](Take::repeat)
/// of callers that wait and takes of [shadow rules](crate::Rule::into_shadow). A future that is
/// dropped gives its permit back. Clones share the permits.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate::store::InFlight;
///
/// let store = InFlight::new(MemoryStore::new(), 1_024);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<S> {
    inner: S,
    max: usize,
    under_way: InFlightCounter,
    overloaded: StoreError,
}

impl<S: Store> InFlight<S> {
    /// The default of [`Resilient`](crate::Resilient): 1,024. At a time-out of 50 ms, a store that
    /// answers in the last moment still gives 20,000 answers a second.
    pub const DEFAULT_MAX: usize = 1_024;

    /// At max `max` questions under way; with 0 only repeats are asked.
    #[must_use]
    pub fn new(inner: S, max: usize) -> Self {
        let name = inner.name();
        let message = format!("{name} was not asked, it still has {max} questions to answer");
        Self {
            inner,
            max,
            under_way: InFlightCounter::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// How many questions wait for an answer now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.number()
    }

    /// Asks the inner store something else than takes, with a permit.
    pub(super) fn count<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        hold(self.acquire().map(Some), ask)
    }

    /// Questions of callers that wait need none, nor do those of shadow rules: no request may be
    /// refused because of them, and the layer bounds their number.
    fn permit(&self, take: &Take) -> Result<Option<Permit>, StoreError> {
        if take.is_repeat() || take.rule().is_shadow() {
            return Ok(None);
        }
        self.acquire().map(Some)
    }

    fn acquire(&self) -> Result<Permit, StoreError> {
        let permit = self.under_way.try_acquire(self.max);
        permit.ok_or_else(|| self.overloaded.clone())
    }
}

fn hold<T: Send + 'static>(
    permit: Result<Option<Permit>, StoreError>,
    ask: impl FnOnce() -> StoreFuture<T>,
) -> StoreFuture<T> {
    let permit = match permit {
        Ok(permit) => permit,
        Err(overloaded) => return StoreFuture::ready(Err(overloaded)),
    };
    let answer = ask();
    match answer.answer() {
        Some(_) => answer,
        None => StoreFuture::boxed(async move {
            let _permit = permit;
            answer.await
        }),
    }
}

impl<S: Store> Wrapper for InFlight<S> {
    type Pending = Option<Permit>;

    fn before(&self, take: &Take) -> Result<Self::Pending, Answer> {
        self.permit(take).map_err(Err)
    }

    fn after(_: Self::Pending, _: &Take, answer: Answer) -> Answer {
        answer
    }
}

impl<S: Store> Store for InFlight<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        hold(self.permit(take), || self.inner.take(take))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.count(|| self.inner.refund(take, receipt))
    }

    fn reset(&self, take: &Take) -> StoreFuture<()> {
        self.count(|| self.inner.reset(take))
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
