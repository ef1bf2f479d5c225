use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::refused::Refused;
use super::state::{Phase, State, Ticket};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Take;
use crate::trace;
use crate::trouble::Trouble;

/// The state of a breaker where many threads look at it.
#[derive(Debug)]
pub(super) struct Core {
    name: Box<str>,
    state: Mutex<State>,
    /// The state's generation and its [`Glance`], for the ways that take no lock.
    glance: AtomicU64,
    /// What requests are told that do not get through; never none once the breaker has opened.
    refusal: ArcSwapOption<StoreError>,
    refused: Refused,
    trouble: Trouble,
}

/// What can be seen of a state without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Glance {
    /// Closed, and the last request was decided.
    Well = 0,
    /// Closed, and something failed.
    Doubtful = 1,
    /// Open, and somebody looks after the store.
    Open = 2,
    /// Whether a request gets through, only the state knows.
    Unclear = 3,
}

impl Glance {
    const fn of(seen: u64) -> Self {
        match seen & 3 {
            0 => Self::Well,
            1 => Self::Doubtful,
            2 => Self::Open,
            _ => Self::Unclear,
        }
    }
}

/// What an answer says about the store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Health<'a> {
    Well,
    Ill(&'a StoreError),
    /// Nothing, such as an error that is about one key.
    Unknown,
}

/// A request that got through. Dropped without a word, it makes room for another one.
#[derive(Debug)]
pub(in crate::store) struct Call {
    core: Arc<Core>,
    ticket: Ticket,
}

impl Core {
    pub(super) fn new(name: String) -> Self {
        Self {
            name: name.into(),
            state: Mutex::new(State::new()),
            glance: AtomicU64::new(Glance::Well as u64),
            refusal: ArcSwapOption::empty(),
            refused: Refused::default(),
            trouble: Trouble::default(),
        }
    }

    /// Lets a request through.
    ///
    /// # Errors
    ///
    /// What it is told if it does not get through.
    pub(super) fn admit(self: &Arc<Self>, take: &Take) -> Result<Call, StoreError> {
        let seen = self.glance.load(Ordering::Acquire);
        let ticket = match Glance::of(seen) {
            Glance::Well | Glance::Doubtful => Some(Ticket {
                generation: seen >> 2,
                trial: None,
            }),
            Glance::Open => None,
            Glance::Unclear => self.change(|state| state.admit(Instant::now())),
        };
        let core = Arc::clone(self);
        let call = ticket.map(|ticket| Call { core, ticket });
        call.ok_or_else(|| self.refuse(take))
    }

    fn refuse(&self, take: &Take) -> StoreError {
        self.refused.note(take);
        let refusal = self.refusal.load();
        refusal.as_ref().map_or_else(
            || StoreError::new(StoreErrorKind::Unavailable, "the circuit breaker is open"),
            |refusal| StoreError::clone(refusal),
        )
    }

    /// A take that did not get through, if there was one since this was asked last, at a cost of 0.
    pub(super) fn refused(&self) -> Option<Take> {
        self.refused.take()
    }

    /// Somebody who looked after the store since the breaker opened was answered.
    pub(super) fn answers(&self, generation: u64) {
        self.change(|state| state.answers(generation));
    }

    /// Nobody looks after the store any more, so a request has to from then on.
    pub(super) fn is_left_alone(&self, generation: u64, try_at: Instant) {
        self.change(|state| state.is_left_alone(generation, try_at));
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // A state is whole between any two statements, so a panic elsewhere does not harm it.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut state);
        let glance = match state.phase() {
            Phase::Closed { failures: 0 } => Glance::Well,
            Phase::Closed { .. } => Glance::Doubtful,
            Phase::Open { try_at: None } => Glance::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => Glance::Unclear,
        };
        let seen = state.generation() << 2 | glance as u64;
        self.glance.store(seen, Ordering::Release);
        changed
    }

    fn succeeds(&self, ticket: Ticket) {
        if Glance::of(self.glance.load(Ordering::Relaxed)) == Glance::Well {
            return;
        }
        let closed = self.change(|state| state.succeeds(ticket));
        if closed && self.trouble.ends() {
            let store = &*self.name;
            trace::event!(warn: store, "the circuit breaker is closed again");
        }
    }

    /// The generation at which that opened the breaker, if it did.
    fn fails(&self, ticket: Ticket, failure: &StoreError, most: u32) -> Option<u64> {
        let opened = self.change(|state| {
            let opens = state.fails(ticket, most);
            // Nobody may see the breaker open before there is something to be told.
            opens.then(|| {
                self.refusal.store(Some(self.refused_for(failure)));
                state.generation()
            })
        })?;
        if self.trouble.begins() {
            let (store, error) = (&*self.name, failure.to_string());
            trace::event!(warn: store, error, "the circuit breaker is open");
        }
        Some(opened)
    }

    fn refused_for(&self, failure: &StoreError) -> Arc<StoreError> {
        let message = format!("the circuit breaker of {} is open: {failure}", self.name);
        let refusal = StoreError::new(StoreErrorKind::Unavailable, message);
        Arc::new(refusal.with_source(failure.clone()))
    }
}

impl Call {
    /// What became of the request; the generation at which that opened the breaker, if it did.
    pub(super) fn ends(self, health: Health<'_>, most: u32) -> Option<u64> {
        match health {
            Health::Ill(failure) => self.core.fails(self.ticket, failure, most),
            Health::Well => {
                self.core.succeeds(self.ticket);
                None
            }
            Health::Unknown => None,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.ticket.trial.is_some() {
            self.core.change(|state| state.says_nothing(self.ticket));
        }
    }
}
