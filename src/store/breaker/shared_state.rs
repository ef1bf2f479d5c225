use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::state::{Phase, State, Ticket};
use crate::error::{StoreError, StoreErrorKind};
use crate::log_on_change::LogOnChange;
use crate::store::Take;
use crate::trace;

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
pub(super) enum Health<'a> {
    Healthy,
    Unhealthy(&'a StoreError),
    /// The answer says nothing about the store: for example, an error about one key.
    Unknown,
}

impl SharedState {
    pub(super) fn new(name: String, max_failures: u32) -> Self {
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
    pub(super) fn admit(&self, take: &Take) -> Result<Ticket, StoreError> {
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut state);
        let snapshot = match state.phase() {
            Phase::Closed { failures: 0 } => Snapshot::Healthy,
            Phase::Closed { .. } => Snapshot::Failing,
            Phase::Open { try_at: None } => Snapshot::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => Snapshot::AskState,
        };
        let seen = state.generation() << 2 | snapshot as u64;
        self.snapshot.store(seen, Ordering::Release);
        changed
    }

    /// Records the result of a request. Returns the generation at which it opened the breaker, if it
    /// did.
    pub(super) fn record(&self, ticket: Ticket, health: Health<'_>) -> Option<u64> {
        match health {
            Health::Unhealthy(failure) => return self.record_failure(ticket, failure),
            Health::Healthy => self.record_success(ticket),
            Health::Unknown => {}
        }
        None
    }

    /// A request ended. If it was a trial without a result, another one may be tried.
    pub(super) fn abandon(&self, ticket: Ticket) {
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
                state.generation()
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
