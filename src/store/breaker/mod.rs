//! A store that is left alone for as long as it fails.

mod core;
mod probe;
mod refused;
mod state;

use std::sync::Arc;
use std::time::Duration;

use self::core::{Call, Core, Health};
use self::probe::{Errand, Prober};
use super::around::{Answer, Around};
use super::{Store, StoreFuture, Take};
use crate::decision::{Decisions, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::rule::Rule;

/// Leaves a store alone after it has failed several times in a row, so that its failures cost no request any time.
///
/// **Closed**, it passes everything on. After [`failures`](Self::failures) in a row without a decision in between it is
/// **open**: it answers at once with a [`StoreError`] of the kind [`Unavailable`](StoreErrorKind::Unavailable), whose
/// source is the failure that opened it. Meanwhile a task looks after the store [every 100 ms](Self::probe_every), by the
/// very take that failed last at a cost of 0, and then by those that were refused meanwhile, so that it runs what requests
/// run. Once one is answered, the breaker is
/// **half-open**: one request goes through, all others are answered as before. If it is decided, the breaker is closed; if
/// it fails, open. A look alone would not do: it writes nothing, so it is answered also by a read-only replica, and by a
/// server without memory.
///
/// | kind of error | |
/// |---|---|
/// | `Timeout`, `Unavailable`, `ReadOnly`, `OutOfMemory`, `Protocol` | a failure |
/// | `WrongType`, `Refused`, `Full`, `Configuration`, `Overloaded` | none: it may be about one key, or is about this process |
///
/// A decision is one on a take that costs something, allowed or denied. What was asked before the breaker opened or closed
/// changes nothing after it.
///
/// The store inside must give up by itself, as `RedisStore` and [`Timeout`](crate::store::Timeout) do; a
/// request that is dropped while it waits is no failure. Clones share the state. The task ends with the last clone. It runs on
/// the runtime in which the breaker opened, which has to be driven. Where there is none, or it has ended, a request goes through
/// after the time instead.
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
    core: Arc<Core>,
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
            core: Arc::new(Core::new(inner.name())),
            inner: Arc::new(inner),
            prober: Arc::default(),
            failures: Self::DEFAULT_FAILURES,
            probe_every: Self::DEFAULT_PROBE_EVERY,
        }
    }

    /// How many failures in a row open it; 0 is as 1. Default: 10.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// The pause between two looks after the store, of a millisecond to a day, to which up to a fifth is added at random.
    /// Each may take a second at most. Default: 100 ms.
    #[must_use]
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.probe_every = probe::pause(pause);
        self
    }

    /// Asks the store inside, if it may be asked, to give back what this take was charged.
    pub(super) fn through<T: Send + 'static>(
        &self,
        take: &Take,
        ask: impl FnOnce() -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let call = match self.core.admit(take) {
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

    fn ended<T>(&self, call: Call, take: &Take, charges: bool, answer: &Result<T, StoreError>) {
        let Some(generation) = call.ends(health(answer, charges), self.failures) else {
            return;
        };
        self.prober.start(Errand {
            inner: Arc::clone(&self.inner),
            core: Arc::clone(&self.core),
            look: take.clone().cost(0),
            generation,
            every: self.probe_every,
        });
    }
}

/// What an answer says about the store. One that charges nothing says little: it comes also where nothing can be written.
fn health<T>(answer: &Result<T, StoreError>, charges: bool) -> Health<'_> {
    use StoreErrorKind as Kind;
    match answer {
        Ok(_) if charges => Health::Well,
        Ok(_) => Health::Unknown,
        Err(error) => match error.kind() {
            Kind::Timeout
            | Kind::Unavailable
            | Kind::ReadOnly
            | Kind::OutOfMemory
            | Kind::Protocol => Health::Ill(error),
            // A refusal costs no time, and may be about one key that this user must not touch.
            Kind::WrongType
            | Kind::Refused
            | Kind::Full
            | Kind::Configuration
            | Kind::Overloaded => Health::Unknown,
        },
    }
}

impl<S: Store> Around for CircuitBreaker<S> {
    /// Without a take nothing is said about the store.
    type Asking = Option<(Self, Call)>;

    fn begin(&self, takes: &[Take]) -> Result<Self::Asking, Answer> {
        let Some(last) = takes.last() else {
            return Ok(None);
        };
        let call = self.core.admit(last).map_err(Err)?;
        Ok(Some((self.clone(), call)))
    }

    fn end(asking: Self::Asking, takes: &[Take], answer: Answer) -> Answer {
        if let (Some((breaker, call)), Some(last)) = (asking, takes.last()) {
            let charges = takes.iter().any(|take| take.units() > 0);
            breaker.ended(call, last, charges, &answer);
        }
        answer
    }
}

impl<S: Store> Store for CircuitBreaker<S> {
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions> {
        self.ask(takes, || self.inner.take(takes))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.through(take, || self.inner.refund(take, receipt))
    }

    fn reset(&self, rule: &Arc<Rule>, key: &Key) -> StoreFuture<()> {
        let take = Take::new(Arc::clone(rule), key.clone());
        self.through(&take, || self.inner.reset(rule, key))
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    /// Before it is cloned: afterwards the store inside is not this one's alone.
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
            core: Arc::clone(&self.core),
            prober: Arc::clone(&self.prober),
            failures: self.failures,
            probe_every: self.probe_every,
        }
    }
}
