//! The core: decides takes over a list of counts, each of any kind, as `lua/include/core.lua` does.
//!
//! A take is charged in all of its counts, or in none: each count is asked once whether it fits,
//! and then answers once. What a kind of count does is in [`CountState`]; a [`State`] tells the kinds
//! apart.

use std::time::Duration;

use smallvec::SmallVec;

use super::Count;
use super::calendar::CalendarCount;
use super::lockout::LockoutState;
use super::permits::PermitHolders;
use super::spec::{Kind, Spec};
use crate::decision::{Decision, Receipt};

/// The instant of a call, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// By a clock that only tells how much time passes.
    pub(crate) micros: u64,
    /// By the host's clock, where a count needs it, or 0.
    pub(crate) wall: u64,
}

impl Now {
    /// For a count that does not need the host's clock.
    pub(crate) const fn within(micros: u64) -> Self {
        Self { micros, wall: 0 }
    }
}

/// The question of a take about one of its counts.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) cost: u64,
    /// The number of the permit that the take may get.
    pub(crate) holder: u64,
    pub(crate) hold: Hold,
}

/// The failures and the hold of a key, as a take finds them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hold {
    /// For how much longer the key is held, in microseconds.
    pub(crate) time: Option<u64>,
    /// Whether a success of the request would end failures.
    pub(crate) has_failures: bool,
}

/// The operations of a kind of count on the state under a key.
pub(super) trait CountState {
    /// How it counts.
    type Spec;

    /// Whether a take fits. What counts no more may be dropped.
    fn fits(&mut self, of: &Self::Spec, now: Now, cost: u64) -> bool;

    /// Charges a take of this cost if it fits, right after it was asked whether it does.
    fn answer(&mut self, of: &Self::Spec, now: Now, cost: u64, asked: &Asked<'_>) -> Decision;

    /// Charges units above max, and returns their number.
    fn owe(&mut self, of: &Self::Spec, now: Now, receipt: &Receipt, units: u64) -> u64;

    /// Gives back up to so many units of this receipt, and returns their number.
    fn refund(&mut self, of: &Self::Spec, now: Now, receipt: &Receipt, units: u64) -> u64;

    /// Forgets what counts, and returns whether anything did.
    fn reset(&mut self, now: Now) -> bool;

    /// For how much longer a store keeps it, in microseconds.
    fn needed_for(&self, now: Now) -> u64;
}

/// Says which of the states under a name it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StateKind {
    Windows,
    Calendar,
    Permits,
    Hold,
}

/// The state that a store keeps under a name.
#[derive(Debug)]
pub(crate) enum State {
    Windows(Count),
    Calendar(CalendarCount),
    Permits(PermitHolders),
    /// The failures of a key, and until when it is held.
    Hold(LockoutState),
}

/// Asks a state that counts with what its spec says of its kind.
macro_rules! ask {
    ($state:expr, $spec:expr, $count:ident, $of:ident, $asked:expr) => {
        match ($state, &$spec.kind) {
            (State::Windows($count), Kind::Windows($of)) => $asked,
            (State::Calendar($count), Kind::Calendar($of)) => $asked,
            (State::Permits($count), Kind::Permits($of)) => $asked,
            _ => unreachable!("a state is of the kind of its spec"),
        }
    };
}

impl StateKind {
    pub(crate) const ALL: [Self; 4] = [Self::Windows, Self::Calendar, Self::Permits, Self::Hold];

    pub(crate) const fn from_spec(spec: &Spec) -> Self {
        match &spec.kind {
            Kind::Windows(_) => Self::Windows,
            Kind::Calendar(_) => Self::Calendar,
            Kind::Permits(_) => Self::Permits,
        }
    }
}

impl State {
    /// A state in which nothing is charged.
    pub(crate) fn new(kind: StateKind, spec: &Spec) -> Self {
        match &spec.kind {
            _ if kind == StateKind::Hold => Self::Hold(LockoutState::default()),
            Kind::Windows(windows) => Self::Windows(Count::new(windows.algorithm())),
            Kind::Calendar(_) => Self::Calendar(CalendarCount::default()),
            Kind::Permits(_) => Self::Permits(PermitHolders::default()),
        }
    }

    #[inline]
    pub(crate) const fn kind(&self) -> StateKind {
        match self {
            Self::Windows(_) => StateKind::Windows,
            Self::Calendar(_) => StateKind::Calendar,
            Self::Permits(_) => StateKind::Permits,
            Self::Hold(_) => StateKind::Hold,
        }
    }

    fn fits(&mut self, now: Now, asked: &Asked<'_>) -> bool {
        ask!(self, asked.spec, it, of, it.fits(of, now, asked.cost))
    }

    fn answer(&mut self, now: Now, cost: u64, asked: &Asked<'_>) -> Decision {
        ask!(self, asked.spec, it, of, it.answer(of, now, cost, asked))
    }

    /// Charges units above max, and returns their number.
    pub(crate) fn owe(&mut self, spec: &Spec, now: Now, receipt: &Receipt, units: u64) -> u64 {
        ask!(
            self,
            spec,
            it,
            of,
            CountState::owe(it, of, now, receipt, units)
        )
    }

    /// Gives back up to so many units of this receipt, and returns their number.
    pub(crate) fn refund(&mut self, spec: &Spec, now: Now, receipt: &Receipt, units: u64) -> u64 {
        ask!(self, spec, it, of, {
            CountState::refund(it, of, now, receipt, units)
        })
    }

    /// Keeps the permit of this holder for another lease, also one that is not there.
    pub(crate) fn renew(&mut self, spec: &Spec, now: Now, holder: &Receipt) {
        if let (Self::Permits(holders), Kind::Permits(of)) = (self, &spec.kind) {
            holders.renew(now, of.lease, holder.serial());
        }
    }

    /// Forgets what counts, and returns whether anything did.
    pub(crate) fn reset(&mut self, spec: &Spec, now: Now) -> bool {
        match self {
            Self::Windows(count) => CountState::reset(count, now),
            Self::Calendar(count) => count.reset(now),
            Self::Permits(holders) => holders.reset(now),
            Self::Hold(known) => {
                let hold = known.hold_at(now.micros);
                let afresh = spec.lockout().map(|it| LockoutState::reset(it, now.micros));
                *known = afresh.unwrap_or_default();
                hold.time.is_some() || hold.has_failures
            }
        }
    }

    /// For how much longer a store keeps it, in microseconds.
    pub(crate) fn needed_for(&self, now: Now) -> u64 {
        match self {
            Self::Windows(count) => count.needed_for(now),
            Self::Calendar(count) => count.needed_for(now),
            Self::Permits(holders) => holders.needed_for(now),
            Self::Hold(known) => known.needed_for(now.micros),
        }
    }

    /// Its rank where there is no room for all states: the lowest is dropped first. `None`: it is
    /// kept.
    pub(crate) fn worth(&self, now: u64) -> Option<(bool, u64)> {
        match self {
            Self::Hold(known) => known.worth(now),
            _ => None,
        }
    }
}

/// Access to the states of a take's counts by their places.
pub(crate) trait CountStates {
    fn state(&mut self, place: usize) -> &mut State;

    /// Whether there is room for those that a charge makes.
    fn reserve(&mut self) -> bool;
}

/// Decides a take over these counts. `None` if there is no room for all that are new.
pub(crate) fn decide(
    asked: &[Asked<'_>],
    states: &mut impl CountStates,
    now: Now,
) -> Option<Vec<Decision>> {
    let fits = asked.iter().enumerate();
    let fits = fits.map(|(place, asked)| states.state(place).fits(now, asked));
    let fits: SmallVec<[bool; 8]> = fits.collect();
    let is_charged = fits.iter().all(|it| *it) && asked.iter().all(|it| it.hold.time.is_none());
    if is_charged && !states.reserve() {
        return None;
    }
    let answers = asked.iter().zip(fits).enumerate();
    let answers = answers
        .map(|(place, (asked, fits))| asked.answer(states.state(place), now, fits && !is_charged));
    Some(answers.collect())
}

impl Asked<'_> {
    /// Denies a take over one count whose key is held.
    pub(crate) fn deny_held(&self, state: &mut State, now: Now) -> Decision {
        let fits = state.fits(now, self);
        self.answer(state, now, fits)
    }

    /// Where something else denies the take, a count with room only looks.
    fn answer(&self, state: &mut State, now: Now, only_looks: bool) -> Decision {
        let cost = if only_looks { 0 } else { self.cost };
        self.with_hold(state.answer(now, cost, self))
    }

    /// This decision about a count, of which the hold of its key is known.
    fn with_hold(&self, mut decision: Decision) -> Decision {
        if let Some(time) = self.hold.time {
            let time = Duration::from_micros(time);
            decision = decision.held_for(time, self.spec.held_verdict(time), self.cost);
        }
        decision.has_failures = decision.is_allowed() && self.hold.has_failures;
        decision
    }
}
