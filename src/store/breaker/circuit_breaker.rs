use std::sync::Arc;
use std::time::Duration;

use super::prober::{Probe, Prober, bounded};
use super::shared_state::{AdmittedCall, Health, SharedState};
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::wrapper::{Answer, Wrapper};
use crate::store::{Store, StoreFuture, Take};

/// Stops asking a store that keeps failing, so that its failures cost requests no time.
///
/// - **Closed**: it passes every question on. After [`failures`](Self::failures) failures in a row,
///   without a decision in between, it opens.
/// - **Open**: it answers immediately with a [`StoreError`] of the kind
///   [`Unavailable`](StoreErrorKind::Unavailable), whose source is the failure that opened it. A
///   task probes the store [every 100 ms](Self::probe_every), with the take that failed last and
///   then with takes that were refused, at a cost of 0. The first answer makes the breaker
///   half-open.
/// - **Half-open**: one request passes, all others are refused. If that request is decided, the
///   breaker closes; if it fails, the breaker opens again. A probe alone is not enough: it writes
///   nothing, so a read-only replica and a server without memory answer it, too.
///
/// | kind of error | counts as |
/// |---|---|
/// | `Timeout`, `Unavailable`, `ReadOnly`, `OutOfMemory`, `Protocol` | a failure |
/// | `WrongType`, `Refused`, `Full`, `Configuration`, `Overloaded` | nothing: it may be about one key, or is about this process |
///
/// A decision on a take that costs something counts as a success, whether it allows or denies. The
/// answer to a question from before the breaker opened or closed counts for nothing.
///
/// The store inside needs a time-out, as `RedisStore` and [`Timeout`](crate::store::Timeout) have;
/// a request that is dropped while it waits is no failure. Clones share the state. The task runs on
/// the runtime in which the breaker opened, and ends with the last clone. Where there is no
/// runtime, or it has ended, a request passes instead of each probe.
///
/// ```
/// use std::time::Duration;
/// use tidegate::MemoryStore;
/// use tidegate::store::CircuitBreaker;
///
/// let store = CircuitBreaker::new(MemoryStore::new())
///     .failures(20)
///     .probe_every(Duration::from_millis(250));
/// # let _ = store;
/// ```
#[derive(Debug)]
pub struct CircuitBreaker<S> {
    inner: Arc<S>,
    state: Arc<SharedState>,
    prober: Arc<Prober>,
    failures: u32,
    probe_every: Duration,
}

impl<S: Store> CircuitBreaker<S> {
    /// The default of [`CircuitBreaker::failures`].
    pub const DEFAULT_FAILURES: u32 = 10;

    /// The default of [`CircuitBreaker::probe_every`].
    pub const DEFAULT_PROBE_EVERY: Duration = Duration::from_millis(100);

    /// A closed breaker around `inner`.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self {
            state: Arc::new(SharedState::new(inner.name())),
            inner: Arc::new(inner),
            prober: Arc::default(),
            failures: Self::DEFAULT_FAILURES,
            probe_every: Self::DEFAULT_PROBE_EVERY,
        }
    }

    /// How many failures in a row open the breaker, at least 1. Default: 10.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// The pause between two probes, from a millisecond to a day; up to a fifth of it is added at
    /// random. A probe takes at most a second. Default: 100 ms.
    #[must_use]
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.probe_every = bounded(pause);
        self
    }

    /// Asks the store inside something else than a take, unless the breaker is open.
    pub(in crate::store) fn guard<T: Send + 'static>(
        &self,
        take: &Take,
        ask: impl FnOnce() -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let call = match self.state.admit(take) {
            Ok(call) => call,
            Err(refusal) => return StoreFuture::ready(Err(refusal)),
        };
        let pending = ask();
        match pending.answer() {
            Some(answer) => {
                self.ended(call, take, false, answer);
                pending
            }
            None => {
                let (breaker, take) = (self.clone(), take.clone());
                StoreFuture::boxed(async move {
                    let answer = pending.await;
                    breaker.ended(call, &take, false, &answer);
                    answer
                })
            }
        }
    }

    fn ended<T>(
        &self,
        call: AdmittedCall,
        take: &Take,
        charges: bool,
        answer: &Result<T, StoreError>,
    ) {
        let Some(generation) = call.finish(health(answer, charges), self.failures) else {
            return;
        };
        self.prober.start(Probe {
            inner: Arc::clone(&self.inner),
            state: Arc::clone(&self.state),
            take: take.anew(0),
            generation,
            every: self.probe_every,
        });
    }
}

/// What an answer says about the store. An answer that charges nothing says nothing: a server that
/// cannot write gives it, too.
fn health<T>(answer: &Result<T, StoreError>, charges: bool) -> Health<'_> {
    use StoreErrorKind as Kind;
    match answer {
        Ok(_) if charges => Health::Healthy,
        Ok(_) => Health::Unknown,
        Err(error) => match error.kind() {
            Kind::Timeout
            | Kind::Unavailable
            | Kind::ReadOnly
            | Kind::OutOfMemory
            | Kind::Protocol => Health::Unhealthy(error),
            // A refusal costs no time, and may be about one key that this user may not use.
            Kind::WrongType
            | Kind::Refused
            | Kind::Full
            | Kind::Configuration
            | Kind::Overloaded => Health::Unknown,
        },
    }
}

impl<S: Store> Wrapper for CircuitBreaker<S> {
    type Pending = (Self, AdmittedCall);

    fn before(&self, take: &Take) -> Result<Self::Pending, Answer> {
        let call = self.state.admit(take).map_err(Err)?;
        Ok((self.clone(), call))
    }

    fn after((breaker, call): Self::Pending, take: &Take, answer: Answer) -> Answer {
        breaker.ended(call, take, take.cost() > 0, &answer);
        answer
    }
}

impl<S: Store> Store for CircuitBreaker<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.ask(take, || self.inner.take(take))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.guard(take, || self.inner.refund(take, receipt))
    }

    fn reset(&self, take: &Take) -> StoreFuture<()> {
        self.guard(take, || self.inner.reset(take))
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    /// Works before the breaker is cloned: afterwards the store inside is shared.
    fn give_up_after(mut self, timeout: Duration) -> Self {
        self.inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => Arc::new(inner.give_up_after(timeout)),
            Err(shared) => shared,
        };
        self
    }

    fn has_fallback(&self) -> bool {
        self.inner.has_fallback()
    }
}

impl<S> Clone for CircuitBreaker<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            state: Arc::clone(&self.state),
            prober: Arc::clone(&self.prober),
            failures: self.failures,
            probe_every: self.probe_every,
        }
    }
}
