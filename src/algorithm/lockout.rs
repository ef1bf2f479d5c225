//! Counts the failures of a key, and says for how long it is held: the same as `lua/lockout.lua`.

use super::constants::{MAX_REPEATED, SLOW_REQUEST, TEN_YEARS};
use super::core::Hold;

/// After how many failures a key is held. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockoutSpec {
    pub(crate) after: usize,
    pub(crate) within: u64,
    /// For how long each time; the last one counts for all further times. There is at least one.
    pub(crate) holds: Box<[u64]>,
    /// For how long behind the end of the last hold its step is remembered.
    pub(crate) forget_after: u64,
}

/// The outcome of an admitted take, as it is reported, or a question about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// It failed. No other failure has this id. It was told first so many microseconds ago.
    Failed {
        id: u64,
        late: u64,
    },
    Succeeded,
    /// No outcome: only asks how many times in a row the key was held.
    Nothing,
    /// No outcome: only asks how many failures are left until the key is held.
    AskAttempts,
}

/// The failures and the hold of a key. Times are in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockoutState {
    until: u64,
    /// From then on the whole state is void.
    ends: u64,
    /// The outcome of a take that was admitted before this instant does not count.
    since: u64,
    /// How many times in a row the key was held.
    step: u64,
    /// In the order of their reports, each for as long as it may be reported again.
    failures: Vec<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    id: u64,
    /// When it was reported.
    at: u64,
    /// How many times in a row the key was held with the hold that it has begun; else 0.
    step: u64,
    /// Whether it counted although its take was admitted before `since`.
    is_slow: bool,
    /// Whether it still counts: neither a hold nor a success has come behind it.
    counts: bool,
}

impl LockoutSpec {
    /// For how long a key is held the n-th time.
    pub(crate) fn hold(&self, step: u64) -> u64 {
        let last = self.holds.len().saturating_sub(1);
        let at = usize::try_from(step.saturating_sub(1)).map_or(last, |at| at.min(last));
        self.holds.get(at).copied().unwrap_or(0)
    }
}

impl LockoutState {
    /// For how much longer the key is held.
    fn held_for(&self, now: u64) -> Option<u64> {
        let held = self.until.checked_sub(now)?;
        (1..=TEN_YEARS).contains(&held).then_some(held)
    }

    /// Whether a success would end failures or steps.
    fn has_failures(&self, now: u64) -> bool {
        self.ends > now && (self.step > 0 || self.counted() > 0)
    }

    /// The hold and the failures, as a take at this instant finds them.
    pub(crate) fn hold_at(&self, now: u64) -> Hold {
        Hold {
            time: self.held_for(now),
            has_failures: self.has_failures(now),
        }
    }

    /// How many failures count.
    fn counted(&self) -> usize {
        self.failures.iter().filter(|it| it.counts).count()
    }

    /// For how much longer the state is needed, in microseconds.
    pub(crate) const fn needed_for(&self, now: u64) -> u64 {
        self.ends.saturating_sub(now)
    }

    /// Its rank where there is no room for all states: one with failures that count is above one
    /// with steps alone, and one that ends later above one that ends earlier. `None` while the key
    /// is held.
    pub(crate) fn worth(&self, now: u64) -> Option<(bool, u64)> {
        let is_held = self.held_for(now).is_some();
        (!is_held).then_some((self.counted() > 0, self.ends))
    }

    /// Holds the key at least so long, and says for how long it is held.
    pub(crate) fn hold(&mut self, now: u64, time: u64) -> u64 {
        self.until = self.until.max(now.saturating_add(time));
        self.ends = self.ends.max(self.until);
        self.until - now
    }

    /// A state without failures, hold and steps: outcomes of takes that were admitted before do not
    /// count.
    pub(crate) fn reset(spec: &LockoutSpec, now: u64) -> Self {
        Self {
            ends: now + spec.within,
            since: now + 1,
            ..Self::default()
        }
    }

    /// Counts the outcome of a take that was admitted at `admitted`. Returns how many times in a
    /// row the key was held, if this failure has begun the hold, or if that is asked and the key is
    /// held; else 0, or the number of failures left, if that is asked.
    pub(crate) fn report(
        &mut self,
        spec: &LockoutSpec,
        now: u64,
        admitted: u64,
        what: Reported,
    ) -> u64 {
        let mut next = self.at(spec, now);
        let admitted = admitted.min(now);
        let is_held = next.until > now;
        let while_held = |step: u64| if is_held { step } else { 0 };
        // It was reported before. The step of a hold that it has begun is returned again.
        if let Reported::Failed { id, .. } = what
            && let Some(known) = next.failures.iter().find(|known| known.id == id)
        {
            return while_held(known.step);
        }
        // A client chooses how late it reports a failure, which therefore counts from its report.
        let is_within = |it: &Failure| it.at + spec.within > now && it.at < now + spec.within;
        next.failures.retain(is_within);
        match what {
            Reported::Nothing => return while_held(next.step),
            Reported::AskAttempts if is_held => return 0,
            Reported::AskAttempts => {
                return spec.after.saturating_sub(next.counted()).max(1) as u64;
            }
            Reported::Failed { .. } | Reported::Succeeded => {}
        }
        let is_new = admitted >= next.since;
        // A request whose end its client kept back is a guess behind the hold, and not beside it.
        let is_slow = match what {
            Reported::Failed { late, .. } => now - admitted > late.saturating_add(SLOW_REQUEST),
            _ => false,
        };
        if !is_new && !is_slow {
            return 0;
        }
        let mut begun = 0;
        if let Reported::Failed { id, .. } = what {
            begun = next.fail(spec, now, id, !is_new);
        } else {
            (next.since, next.step) = (admitted + 1, 0);
            let failures = next.failures.iter_mut();
            failures.for_each(|it| it.counts &= it.at > admitted);
        }
        let memory = if next.step > 0 { spec.forget_after } else { 0 };
        next.ends = (next.until + memory).max(now + spec.within);
        *self = next;
        begun
    }

    /// Adds a failure, and holds the key if there are enough.
    fn fail(&mut self, spec: &LockoutSpec, now: u64, id: u64, is_slow: bool) -> u64 {
        if self.failures.len() >= spec.after + MAX_REPEATED {
            let slow = self.failures.iter().position(|it| it.is_slow && !it.counts);
            let oldest = || self.failures.iter().position(|it| !it.counts);
            slow.or_else(oldest).map(|at| self.failures.remove(at));
        }
        // In the instant of a hold, that of a slow request counts for the next one.
        let mut failure = Failure {
            id,
            at: now.max(self.since),
            step: 0,
            is_slow,
            counts: true,
        };
        if self.counted() + 1 >= spec.after {
            (self.step, self.since) = (self.step + 1, now + 1);
            self.until = self.until.max(now + spec.hold(self.step));
            self.failures.iter_mut().for_each(|it| it.counts = false);
            (failure.step, failure.counts) = (self.step, false);
        }
        let begun = failure.step;
        self.failures.push(failure);
        begun
    }

    /// The part of the state that is still valid at this instant.
    fn at(&self, spec: &LockoutSpec, now: u64) -> Self {
        let mut known = match self.needed_for(now) {
            0 => Self::default(),
            _ => self.clone(),
        };
        // The clock went back: nothing is written with a later `since`.
        if known.until > now + TEN_YEARS {
            known.until = 0;
        }
        if known.since > now + 1 {
            known.since = 0;
        }
        if now > known.until + spec.forget_after {
            known.step = 0;
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn spec() -> LockoutSpec {
        LockoutSpec {
            after: 3,
            within: 60 * SECOND,
            holds: [10 * SECOND, 100 * SECOND].into(),
            forget_after: 86_400 * SECOND,
        }
    }

    fn failed(id: u64) -> Reported {
        Reported::Failed { id, late: 0 }
    }

    fn fail(state: &mut LockoutState, at: u64, id: u64) -> u64 {
        state.report(&spec(), at * SECOND, at * SECOND, failed(id))
    }

    #[test]
    fn so_many_failures_hold_the_key_longer_each_time() {
        let mut state = LockoutState::default();
        let steps: Vec<_> = (1..=3).map(|at| fail(&mut state, 1_000 + at, at)).collect();
        assert_eq!(steps, [0, 0, 1]);
        assert_eq!(state.held_for(1_003 * SECOND), Some(10 * SECOND));
        // What was asked before is told again, and counts nothing.
        assert_eq!([2, 3].map(|id| fail(&mut state, 1_003, id)), [0, 1]);
        // Others of the same episode.
        assert_eq!((4..50).map(|id| fail(&mut state, 1_003, id)).max(), Some(0));
        assert_eq!(state.held_for(1_013 * SECOND), None);
        let again: Vec<_> = (50..53).map(|id| fail(&mut state, 1_020, id)).collect();
        assert_eq!(again, [0, 0, 2]);
        let again: Vec<_> = (60..63).map(|id| fail(&mut state, 1_130, id)).collect();
        assert_eq!(again, [0, 0, 3]);
        assert_eq!(state.held_for(1_130 * SECOND), Some(100 * SECOND));
        // A day after the end of the last hold.
        let later = 1_230 + 86_400;
        let again: Vec<_> = (70..73).map(|id| fail(&mut state, later + 1, id)).collect();
        assert_eq!(again, [0, 0, 1]);
    }

    #[test]
    fn a_failure_makes_no_step_last_longer() {
        let mut state = LockoutState::default();
        (1..=3).for_each(|at| _ = fail(&mut state, 1_000 + at, at));
        let end = 1_013 + 86_400;
        assert_eq!(fail(&mut state, end - 5, 4), 0);
        let again: Vec<_> = (5..7).map(|id| fail(&mut state, end + 5, id)).collect();
        assert_eq!(again, [0, 1]);
    }

    #[test]
    fn failures_leave_the_window() {
        let mut state = LockoutState::default();
        for at in 1..100 {
            assert_eq!(fail(&mut state, 1_000 + 30 * at, at), 0);
        }
    }

    #[test]
    fn a_failure_counts_from_when_it_is_told() {
        let mut state = LockoutState::default();
        let slow = |at: u64| {
            let failed = failed(at);
            (at * SECOND, (at - 900) * SECOND, failed)
        };
        let steps = [1_000, 1_001, 1_002].map(slow);
        let steps = steps.map(|(now, admitted, what)| state.report(&spec(), now, admitted, what));
        assert_eq!(steps, [0, 0, 1]);
        // Others that were admitted before the hold, and end in its instant, bring the next one.
        let steps = [1, 2, 3].map(|id| {
            let what = failed(id);
            state.report(&spec(), 1_002 * SECOND, 990 * SECOND, what)
        });
        assert_eq!(steps, [0, 0, 2]);
        // Requests that took no longer, or whose failures were told first in time, bring none.
        for (took, late) in [(10, 0), (40, 30)] {
            let (now, late) = (1_003 * SECOND, late * SECOND);
            let known = state.clone();
            for id in 10..50 {
                let what = Reported::Failed { id, late };
                assert_eq!(state.report(&spec(), now, now - took * SECOND, what), 0);
            }
            assert_eq!(state, known);
        }
    }

    #[test]
    fn a_hold_of_ten_years_begins_at_once() {
        let mut state = LockoutState::default();
        let spec = LockoutSpec {
            holds: [TEN_YEARS].into(),
            ..spec()
        };
        for id in 1..=3 {
            state.report(&spec, SECOND, SECOND, failed(id));
        }
        assert_eq!(state.held_for(SECOND), Some(TEN_YEARS));
    }

    #[test]
    fn a_clock_that_goes_back_keeps_nobody_from_failing() {
        let mut state = LockoutState::reset(&spec(), 1_000 * SECOND);
        let steps: Vec<_> = (1..=3).map(|id| fail(&mut state, 990 + id, id)).collect();
        assert_eq!(steps, [0, 0, 1]);
    }

    #[test]
    fn a_success_ends_failures_and_steps_and_no_hold() {
        let mut state = LockoutState::default();
        (1..=3).for_each(|at| _ = fail(&mut state, 1_000 + at, at));
        let success = |state: &mut LockoutState, now: u64, admitted: u64| {
            state.report(
                &spec(),
                now * SECOND,
                admitted * SECOND,
                Reported::Succeeded,
            )
        };
        // Of a take that was admitted before the hold.
        success(&mut state, 1_004, 1_002);
        assert!(state.has_failures(1_004 * SECOND));
        fail(&mut state, 1_014, 4);
        fail(&mut state, 1_016, 5);
        success(&mut state, 1_020, 1_015);
        // The one behind the success stays.
        assert_eq!(fail(&mut state, 1_020, 6), 0);
        assert_eq!(fail(&mut state, 1_020, 7), 1);
        state = LockoutState::reset(&spec(), 1_021 * SECOND);
        assert_eq!(state.held_for(1_021 * SECOND), None);
        assert!(!state.has_failures(1_021 * SECOND));
        assert_eq!(
            state.report(&spec(), 1_022 * SECOND, 1_020 * SECOND, failed(9)),
            0
        );
        assert!(!state.has_failures(1_022 * SECOND));
    }
}
