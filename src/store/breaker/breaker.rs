use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::prober::{PROBE_TIMEOUT, Probe, Prober, bounded};
use super::state::{BreakerState, Phase, Ticket};
use crate::error::{StoreError, StoreErrorKind};
use crate::log_on_change::LogOnChange;
use crate::question::Ask;
use crate::store::Store;
use crate::store::guarded::QuestionKind;
use crate::sync::lock;
use crate::trace;

/// After so many failures in a row a breaker opens by default.
pub(crate) const MAX_FAILURES: u32 = 10;

/// The breaker of a store: see [`Resilient::failures`](crate::Resilient::failures).
pub(crate) struct Breaker<S> {
    inner: Arc<S>,
    state: Arc<SharedState>,
    prober: Prober,
}

/// A request that may ask the store. If it is dropped without a result, another one may be tried.
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
        let state = SharedState {
            name: inner.name().into(),
            max_failures,
            probe_every: bounded(probe_every),
            patience: timeout.map_or(PROBE_TIMEOUT, |it| it.min(PROBE_TIMEOUT)),
            state: Mutex::new(BreakerState::new()),
            snapshot: AtomicU64::new(BreakerSnapshot::Healthy as u64),
            refusal: ArcSwapOption::empty(),
            refused: ArcSwapOption::empty(),
            failures: LogOnChange::default(),
        };
        Self {
            state: Arc::new(state),
            inner,
            prober: Prober::default(),
        }
    }

    /// Lets a request ask the store.
    ///
    /// # Errors
    ///
    /// The error for the request, if the breaker refuses it.
    pub(crate) fn admit(self: &Arc<Self>, ask: &Ask) -> Result<AdmittedCall<S>, StoreError> {
        let ticket = self.state.admit(ask)?;
        let breaker = Arc::clone(self);
        Ok(AdmittedCall { breaker, ticket })
    }

    /// Whether requests are refused now, except for trials.
    pub(crate) fn is_open(&self) -> bool {
        let seen = BreakerSnapshot::new(self.state.snapshot.load(Ordering::Relaxed));
        matches!(seen, BreakerSnapshot::Open | BreakerSnapshot::AskState)
    }
}

impl<S: Store> AdmittedCall<S> {
    /// Records the store's answer. A failure that opens the breaker starts the probes.
    pub(crate) fn answered<T>(self, ask: &Ask, kind: QuestionKind, answer: &Result<T, StoreError>) {
        // A shadow rule stands beside the one that decides: they fail together, once.
        if ask.in_shadow() {
            return;
        }
        let breaker = &*self.breaker;
        let opened = match answer {
            // A server that cannot write gives an answer that charges nothing, too.
            Ok(_) if kind == QuestionKind::Take && !ask.only_looks() => {
                breaker.state.record_success(self.ticket);
                None
            }
            Err(error) if is_failure(error.kind()) => {
                breaker.state.record_failure(self.ticket, error)
            }
            Ok(_) | Err(_) => None,
        };
        if let Some(generation) = opened {
            breaker.prober.start(Probe {
                inner: Arc::clone(&breaker.inner),
                state: Arc::clone(&breaker.state),
                ask: Arc::new(ask.first_question(0).looking()),
                generation,
            });
        }
    }
}

impl<S> Drop for AdmittedCall<S> {
    fn drop(&mut self) {
        if self.ticket.trial.is_some() {
            let state = &self.breaker.state;
            state.change(|state| state.abandon_trial(self.ticket));
        }
    }
}

/// Whether an error of this kind says that the store is unhealthy.
const fn is_failure(kind: StoreErrorKind) -> bool {
    use StoreErrorKind as Kind;
    // A refusal costs no time, and may be about one key that this user may not use.
    matches!(
        kind,
        Kind::Timeout | Kind::Unavailable | Kind::ReadOnly | Kind::OutOfMemory | Kind::Protocol
    )
}

/// The state of a breaker, shared by all threads that ask the store.
pub(super) struct SharedState {
    name: Box<str>,
    max_failures: u32,
    /// The pause between two probes.
    pub(super) probe_every: Duration,
    /// How long one probe may take.
    pub(super) patience: Duration,
    state: Mutex<BreakerState>,
    /// The state's generation and its [`BreakerSnapshot`], for requests that take no lock.
    snapshot: AtomicU64,
    /// The error of requests that are refused. It is set before the breaker opens.
    refusal: ArcSwapOption<StoreError>,
    /// One of the takes that were refused, for the next probe: the take that failed last may be of
    /// one broken key or node, which must not keep the breaker open for all others.
    refused: ArcSwapOption<Ask>,
    failures: LogOnChange,
}

/// What a request can read of the state without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerSnapshot {
    /// Closed, and the last request was decided.
    Healthy = 0,
    /// Closed, and the last request failed.
    Failing = 1,
    /// Open, and a task probes the store.
    Open = 2,
    /// Whether a request may pass is in the state, behind the lock.
    AskState = 3,
}

impl BreakerSnapshot {
    const fn new(seen: u64) -> Self {
        match seen & 3 {
            0 => Self::Healthy,
            1 => Self::Failing,
            2 => Self::Open,
            _ => Self::AskState,
        }
    }
}

impl SharedState {
    /// Lets a request ask the store.
    ///
    /// # Errors
    ///
    /// The error for the request, if the breaker refuses it.
    fn admit(&self, ask: &Ask) -> Result<Ticket, StoreError> {
        let seen = self.snapshot.load(Ordering::Acquire);
        let ticket = match BreakerSnapshot::new(seen) {
            BreakerSnapshot::Healthy | BreakerSnapshot::Failing => Some(Ticket {
                generation: seen >> 2,
                trial: None,
            }),
            BreakerSnapshot::Open => None,
            BreakerSnapshot::AskState => self.change(|state| state.admit(Instant::now())),
        };
        ticket.ok_or_else(|| self.refuse(ask))
    }

    fn refuse(&self, ask: &Ask) -> StoreError {
        // Most threads only read.
        if self.refused.load().is_none() {
            self.refused
                .store(Some(Arc::new(ask.first_question(0).looking())));
        }
        let refusal = self.refusal.load();
        refusal.as_ref().map_or_else(
            || StoreError::new(StoreErrorKind::Unavailable, "the circuit breaker is open"),
            |refusal| StoreError::clone(refusal),
        )
    }

    /// A take that was refused since the last call, if there was one. It only looks.
    pub(super) fn refused(&self) -> Option<Arc<Ask>> {
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

    fn change<T>(&self, change: impl FnOnce(&mut BreakerState) -> T) -> T {
        // A state is whole between any two statements, so a panic elsewhere does not harm it.
        let mut state = lock(&self.state);
        let changed = change(&mut state);
        let snapshot = match state.phase {
            Phase::Closed { failures: 0 } => BreakerSnapshot::Healthy,
            Phase::Closed { .. } => BreakerSnapshot::Failing,
            Phase::Open { try_at: None } => BreakerSnapshot::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerSnapshot::AskState,
        };
        let seen = state.generation << 2 | snapshot as u64;
        self.snapshot.store(seen, Ordering::Release);
        changed
    }

    fn record_success(&self, ticket: Ticket) {
        if BreakerSnapshot::new(self.snapshot.load(Ordering::Relaxed)) == BreakerSnapshot::Healthy {
            return;
        }
        let closed = self.change(|state| state.record_success(ticket));
        if closed && self.failures.worked() {
            let store = &*self.name;
            trace::event!(info: store, "the circuit breaker is closed again");
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
