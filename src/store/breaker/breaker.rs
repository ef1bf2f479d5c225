use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::prober::{PROBE_TIMEOUT, Probe, Prober, bounded};
use super::state::{Phase, State, Ticket};
use crate::error::{StoreError, StoreErrorKind};
use crate::log_on_change::LogOnChange;
use crate::store::wrapper::{Asked, Wrapped, Wrapper};
use crate::store::{Store, Take};
use crate::sync::lock;
use crate::trace;

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
pub(crate) struct Breaker<S> {
    inner: Arc<S>,
    state: Arc<SharedState>,
    prober: Prober,
    probe_every: Duration,
    /// How long one probe may take.
    patience: Duration,
}

/// A request that may ask the store. If it is dropped without a result, another one may be tried.
#[derive(Debug)]
pub(crate) struct AdmittedCall<S> {
    breaker: Arc<Breaker<S>>,
    ticket: Ticket,
}

impl<S: Store> Breaker<S> {
    pub(crate) fn new(
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
    pub(crate) fn admit(self: &Arc<Self>, take: &Take) -> Result<AdmittedCall<S>, StoreError> {
        let ticket = self.state.admit(take)?;
        let breaker = Arc::clone(self);
        Ok(AdmittedCall { breaker, ticket })
    }

    /// Whether requests are refused now, except for trials.
    pub(crate) fn is_open(&self) -> bool {
        let seen = Snapshot::of(self.state.snapshot.load(Ordering::Relaxed));
        matches!(seen, Snapshot::Open | Snapshot::AskState)
    }
}

impl<S: Store> AdmittedCall<S> {
    /// Records the store's answer. A failure that opens the breaker starts the probes.
    pub(crate) fn answered<T>(self, take: &Take, asked: Asked, answer: &Result<T, StoreError>) {
        // The take of a candidate travels with that of its rule: they fail together, once.
        if take.rule().is_shadow() {
            return;
        }
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

/// The state of a breaker, shared by all threads that ask the store.
#[derive(Debug)]
pub(super) struct SharedState {
    name: Box<str>,
    max_failures: u32,
    state: Mutex<State>,
    /// The state's generation and its [`Snapshot`], for requests that take no lock.
    snapshot: AtomicU64,
    /// The error of requests that are refused. It is set before the breaker opens.
    refusal: ArcSwapOption<StoreError>,
    /// One of the takes that were refused, for the next probe: the take that failed last may be of
    /// one broken key or node, which must not keep the breaker open for all others.
    refused: ArcSwapOption<Take>,
    failures: LogOnChange,
}

/// What a request can read of the state without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Snapshot {
    /// Closed, and the last request was decided.
    Healthy = 0,
    /// Closed, and the last request failed.
    Failing = 1,
    /// Open, and a task probes the store.
    Open = 2,
    /// Whether a request may pass stands in the state, behind the lock.
    AskState = 3,
}

impl Snapshot {
    const fn of(seen: u64) -> Self {
        match seen & 3 {
            0 => Self::Healthy,
            1 => Self::Failing,
            2 => Self::Open,
            _ => Self::AskState,
        }
    }
}

/// What an answer says about the store.
#[derive(Debug, Clone, Copy)]
enum Health<'a> {
    Healthy,
    Unhealthy(&'a StoreError),
    /// The answer says nothing about the store: for example, an error about one key.
    Unknown,
}

impl SharedState {
    fn new(name: String, max_failures: u32) -> Self {
        Self {
            name: name.into(),
            max_failures,
            state: Mutex::new(State::new()),
            snapshot: AtomicU64::new(Snapshot::Healthy as u64),
            refusal: ArcSwapOption::empty(),
            refused: ArcSwapOption::empty(),
            failures: LogOnChange::default(),
        }
    }

    /// Lets a request ask the store.
    ///
    /// # Errors
    ///
    /// The error for the request, if the breaker refuses it.
    fn admit(&self, take: &Take) -> Result<Ticket, StoreError> {
        let seen = self.snapshot.load(Ordering::Acquire);
        let ticket = match Snapshot::of(seen) {
            Snapshot::Healthy | Snapshot::Failing => Some(Ticket {
                generation: seen >> 2,
                trial: None,
            }),
            Snapshot::Open => None,
            Snapshot::AskState => self.change(|state| state.admit(Instant::now())),
        };
        ticket.ok_or_else(|| self.refuse(take))
    }

    fn refuse(&self, take: &Take) -> StoreError {
        // Most threads only read.
        if self.refused.load().is_none() {
            self.refused.store(Some(Arc::new(take.anew(0))));
        }
        let refusal = self.refusal.load();
        refusal.as_ref().map_or_else(
            || StoreError::new(StoreErrorKind::Unavailable, "the circuit breaker is open"),
            |refusal| StoreError::clone(refusal),
        )
    }

    /// A take that was refused since the last call, at a cost of 0, if there was one.
    pub(super) fn refused(&self) -> Option<Arc<Take>> {
        self.refused.swap(None)
    }

    /// The store answered a probe. The breaker had opened at this generation.
    pub(super) fn store_answered(&self, generation: u64) {
        self.change(|state| state.store_answered(generation));
    }

    /// No task probes the store any more: from `try_at` on a request is let through instead.
    pub(super) fn stop_probing(&self, generation: u64, try_at: Instant) {
        self.change(|state| state.stop_probing(generation, try_at));
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // A state is whole between any two statements, so a panic elsewhere does not harm it.
        let mut state = lock(&self.state);
        let changed = change(&mut state);
        let snapshot = match state.phase {
            Phase::Closed { failures: 0 } => Snapshot::Healthy,
            Phase::Closed { .. } => Snapshot::Failing,
            Phase::Open { try_at: None } => Snapshot::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => Snapshot::AskState,
        };
        let seen = state.generation << 2 | snapshot as u64;
        self.snapshot.store(seen, Ordering::Release);
        changed
    }

    /// Records the result of a request. Returns the generation at which it opened the breaker, if
    /// it did.
    fn record(&self, ticket: Ticket, health: Health<'_>) -> Option<u64> {
        match health {
            Health::Unhealthy(failure) => return self.record_failure(ticket, failure),
            Health::Healthy => self.record_success(ticket),
            Health::Unknown => {}
        }
        None
    }

    /// A request ended. If it was a trial without a result, another one may be tried.
    fn abandon(&self, ticket: Ticket) {
        if ticket.trial.is_some() {
            self.change(|state| state.abandon_trial(ticket));
        }
    }

    fn record_success(&self, ticket: Ticket) {
        if Snapshot::of(self.snapshot.load(Ordering::Relaxed)) == Snapshot::Healthy {
            return;
        }
        let closed = self.change(|state| state.record_success(ticket));
        if closed && self.failures.worked() {
            let store = &*self.name;
            trace::event!(warn: store, "the circuit breaker is closed again");
        }
    }

    /// Returns the generation at which this failure opened the breaker, if it did.
    fn record_failure(&self, ticket: Ticket, failure: &StoreError) -> Option<u64> {
        let opened = self.change(|state| {
            let opens = state.record_failure(ticket, self.max_failures);
            // A request that finds the breaker open needs its error.
            opens.then(|| {
                self.refusal.store(Some(self.refusal_for(failure)));
                state.generation
            })
        })?;
        if self.failures.failed() {
            let (store, error) = (&*self.name, failure.to_string());
            trace::event!(warn: store, error, "the circuit breaker is open");
        }
        Some(opened)
    }

    fn refusal_for(&self, failure: &StoreError) -> Arc<StoreError> {
        let message = format!("the circuit breaker of {} is open: {failure}", self.name);
        let refusal = StoreError::new(StoreErrorKind::Unavailable, message);
        Arc::new(refusal.with_source(failure.clone()))
    }
}
