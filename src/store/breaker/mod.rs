//! A store that is not asked while it keeps failing.

mod prober;
mod shared_state;
mod state;

use std::sync::Arc;
use std::time::Duration;

use self::prober::{PROBE_TIMEOUT, Probe, Prober, bounded};
use self::shared_state::{Health, SharedState};
use self::state::Ticket;
use super::wrapper::{Asked, Wrapped, Wrapper};
use super::{Store, Take};
use crate::error::{StoreError, StoreErrorKind};

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
    wrapped: Wrapped<S>,
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
        let breaker = Self {
            wrapped: Wrapped::bare(inner),
            failures: Self::DEFAULT_FAILURES,
            probe_every: Self::DEFAULT_PROBE_EVERY,
        };
        breaker.closed()
    }

    /// How many failures in a row open the breaker, at least 1. The breaker begins anew. Default:
    /// 10.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self.closed()
    }

    /// The pause between two probes, from a millisecond to a day; up to a fifth of it is added at
    /// random. A probe takes at most a second. The breaker begins anew. Default: 100 ms.
    #[must_use]
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.probe_every = pause;
        self.closed()
    }

    fn closed(mut self) -> Self {
        let inner = Arc::clone(&self.wrapped.inner);
        let breaker = Breaker::new(inner, self.failures, self.probe_every, None);
        self.wrapped.breaker = Some(Arc::new(breaker));
        self
    }
}

impl<S: Store> Wrapper for CircuitBreaker<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.wrapped
    }
}

impl<S> Clone for CircuitBreaker<S> {
    fn clone(&self) -> Self {
        Self {
            wrapped: self.wrapped.clone(),
            ..*self
        }
    }
}

/// The breaker of a store, without that store's other wrappers.
#[derive(Debug)]
pub(in crate::store) struct Breaker<S> {
    inner: Arc<S>,
    state: Arc<SharedState>,
    prober: Prober,
    probe_every: Duration,
    /// How long one probe may take.
    patience: Duration,
}

/// A request that may ask the store. If it is dropped without a result, another one may be tried.
#[derive(Debug)]
pub(in crate::store) struct AdmittedCall<S> {
    breaker: Arc<Breaker<S>>,
    ticket: Ticket,
}

impl<S: Store> Breaker<S> {
    pub(in crate::store) fn new(
        inner: Arc<S>,
        max_failures: u32,
        probe_every: Duration,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            state: Arc::new(SharedState::new(inner.name(), max_failures)),
            inner,
            prober: Prober::default(),
            probe_every: bounded(probe_every),
            patience: timeout.map_or(PROBE_TIMEOUT, |it| it.min(PROBE_TIMEOUT)),
        }
    }

    /// Lets a request ask the store.
    ///
    /// # Errors
    ///
    /// The error for the request, if the breaker refuses it.
    pub(in crate::store) fn admit(
        self: &Arc<Self>,
        take: &Take,
    ) -> Result<AdmittedCall<S>, StoreError> {
        let ticket = self.state.admit(take)?;
        let breaker = Arc::clone(self);
        Ok(AdmittedCall { breaker, ticket })
    }
}

impl<S: Store> AdmittedCall<S> {
    /// Records the store's answer. A failure that opens the breaker starts the probes.
    pub(in crate::store) fn answered<T>(
        self,
        take: &Take,
        asked: Asked,
        answer: &Result<T, StoreError>,
    ) {
        let charges = asked == Asked::Take && take.cost() > 0;
        let breaker = &*self.breaker;
        let opened = breaker.state.record(self.ticket, health(answer, charges));
        if let Some(generation) = opened {
            breaker.prober.start(Probe {
                inner: Arc::clone(&breaker.inner),
                state: Arc::clone(&breaker.state),
                take: Arc::new(take.anew(0)),
                generation,
                every: breaker.probe_every,
                patience: breaker.patience,
            });
        }
    }
}

impl<S> Drop for AdmittedCall<S> {
    fn drop(&mut self) {
        self.breaker.state.abandon(self.ticket);
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
