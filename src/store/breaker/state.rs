//! When a breaker opens, tries and closes: without a clock and without a store.

use std::time::Duration;

use tokio::time::Instant;

/// How long a trial may take before another request is tried: its future may never be polled.
pub(super) const MAX_TRIAL: Duration = Duration::from_secs(1);

pub(super) struct BreakerState {
    pub(super) phase: Phase,
    /// Counts the changes of phase. A result from before a change says nothing about the phase
    /// after it.
    pub(super) generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests pass. `failures` of them have failed since the last decision.
    Closed { failures: u32 },
    /// No request passes, and a task probes the store. With `try_at` there is no such task: from
    /// then on one request is tried.
    Open { try_at: Option<Instant> },
    /// The store answers again. One request at a time passes as a trial, and its result decides.
    HalfOpen { trial: Option<Instant> },
}

/// The permission for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) generation: u64,
    /// When the request began as the trial, if it is one.
    pub(super) trial: Option<Instant>,
}

impl BreakerState {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Closed { failures: 0 },
            generation: 0,
        }
    }

    /// The permission for a request, if it may pass.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        match self.phase {
            Phase::Closed { .. } => return Some(self.ticket(None)),
            Phase::HalfOpen { trial: None } => {
                self.phase = Phase::HalfOpen { trial: Some(now) };
            }
            Phase::HalfOpen { trial: Some(began) } if now >= began + MAX_TRIAL => {
                self.phase = Phase::HalfOpen { trial: Some(now) };
            }
            Phase::Open { try_at: Some(at) } if now >= at => {
                self.enter(Phase::HalfOpen { trial: Some(now) });
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => return None,
        }
        Some(self.ticket(Some(now)))
    }

    /// A request was decided. Returns whether that closes the breaker.
    pub(super) fn record_success(&mut self, ticket: Ticket) -> bool {
        if ticket.generation != self.generation {
            return false;
        }
        let closes = ticket.trial.is_some();
        if closes {
            self.generation += 1;
        }
        self.phase = Phase::Closed { failures: 0 };
        closes
    }

    /// A request failed. Returns whether that opens the breaker, as failure number `max_failures`
    /// in a row does.
    pub(super) fn record_failure(&mut self, ticket: Ticket, max_failures: u32) -> bool {
        match self.phase {
            _ if ticket.generation != self.generation => return false,
            Phase::Closed { failures } if failures + 1 < max_failures => {
                self.phase = Phase::Closed {
                    failures: failures + 1,
                };
                return false;
            }
            Phase::Closed { .. } | Phase::HalfOpen { .. } | Phase::Open { .. } => {}
        }
        self.enter(Phase::Open { try_at: None });
        true
    }

    /// A trial ended without a result: another request may be tried.
    pub(super) fn abandon_trial(&mut self, ticket: Ticket) {
        let its = Phase::HalfOpen {
            trial: ticket.trial,
        };
        if ticket.generation == self.generation && self.phase == its {
            self.phase = Phase::HalfOpen { trial: None };
        }
    }

    /// The store answered a probe. The breaker had opened at this generation.
    pub(super) fn store_answered(&mut self, generation: u64) {
        if generation == self.generation {
            self.enter(Phase::HalfOpen { trial: None });
        }
    }

    /// The probes ended without an answer. The breaker had opened at this generation.
    pub(super) fn stop_probing(&mut self, generation: u64, try_at: Instant) {
        if generation == self.generation {
            let try_at = Some(try_at);
            self.phase = Phase::Open { try_at };
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation += 1;
    }

    const fn ticket(&self, trial: Option<Instant>) -> Ticket {
        Ticket {
            generation: self.generation,
            trial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_FAILURES: u32 = 3;

    fn admitted(state: &mut BreakerState, now: Instant) -> Ticket {
        state.admit(now).expect("it goes through")
    }

    /// A breaker that opened just now.
    fn open(now: Instant) -> BreakerState {
        let mut state = BreakerState::new();
        let opened: Vec<_> = (0..MAX_FAILURES)
            .map(|_| {
                let ticket = admitted(&mut state, now);
                state.record_failure(ticket, MAX_FAILURES)
            })
            .collect();
        assert_eq!(opened, [false, false, true]);
        state
    }

    fn half_open(now: Instant) -> BreakerState {
        let mut state = open(now);
        state.store_answered(state.generation);
        state
    }

    #[test]
    fn a_decision_in_between_begins_the_count_anew() {
        let now = Instant::now();
        let mut state = BreakerState::new();
        let ticket = admitted(&mut state, now);
        for _ in 0..100 {
            assert!(!state.record_failure(ticket, MAX_FAILURES));
            assert!(!state.record_failure(ticket, MAX_FAILURES));
            assert!(!state.record_success(ticket));
        }
        assert_eq!(state.phase, Phase::Closed { failures: 0 });
    }

    #[test]
    fn open_lets_nobody_through_until_somebody_was_answered() {
        let now = Instant::now();
        let mut state = open(now);
        let later = now + Duration::from_secs(3600);
        assert_eq!(state.admit(later), None);
        let generation = state.generation;
        state.store_answered(generation - 1);
        assert_eq!(state.admit(later), None, "that was before it opened");
        state.store_answered(generation);
        assert!(admitted(&mut state, later).trial.is_some());
    }

    #[test]
    fn half_open_lets_one_through_and_that_decides() {
        let now = Instant::now();
        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        assert_eq!(state.admit(now), None);
        assert!(state.record_success(trial));
        assert!(admitted(&mut state, now).trial.is_none());

        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        assert!(state.record_failure(trial, MAX_FAILURES), "one is enough");
        assert_eq!(state.admit(now), None);
        assert_eq!(state.phase, Phase::Open { try_at: None });
    }

    #[test]
    fn a_trial_that_says_nothing_makes_room() {
        let now = Instant::now();
        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        state.abandon_trial(trial);
        let trial = admitted(&mut state, now);
        assert_eq!(state.admit(now), None);
        assert!(state.record_success(trial));
    }

    #[test]
    fn a_trial_that_takes_too_long_makes_room() {
        let now = Instant::now();
        let mut state = half_open(now);
        let stuck = admitted(&mut state, now);
        assert_eq!(state.admit(now + MAX_TRIAL - Duration::from_nanos(1)), None);
        let next = admitted(&mut state, now + MAX_TRIAL);
        state.abandon_trial(stuck);
        assert_eq!(
            state.admit(now + MAX_TRIAL),
            None,
            "there is still the other"
        );
        // Answers that always take longer than that are answers all the same.
        assert!(state.record_success(stuck));
        assert!(!state.record_failure(next, MAX_FAILURES) && !state.record_success(next));
    }

    /// What began before the breaker opened, or closed, changes nothing after it.
    #[test]
    fn late_results_change_nothing() {
        let now = Instant::now();
        let mut state = BreakerState::new();
        let early = admitted(&mut state, now);
        let ticket = admitted(&mut state, now);
        for _ in 0..MAX_FAILURES {
            state.record_failure(ticket, MAX_FAILURES);
        }
        let is_open = |state: &BreakerState| state.phase == Phase::Open { try_at: None };
        assert!(!state.record_success(early) && is_open(&state));
        assert!(!state.record_failure(early, MAX_FAILURES) && is_open(&state));
        let generation = state.generation;
        state.store_answered(generation);
        assert!(!state.record_success(early) && !state.record_failure(early, MAX_FAILURES));
        let trial = admitted(&mut state, now);
        state.abandon_trial(early);
        assert_eq!(state.admit(now), None);
        assert!(state.record_success(trial));
        for _ in 0..2 * MAX_FAILURES {
            assert!(
                !state.record_failure(early, MAX_FAILURES)
                    && !state.record_failure(trial, MAX_FAILURES)
            );
        }
        state.store_answered(generation);
        state.stop_probing(generation, now);
        assert_eq!(state.phase, Phase::Closed { failures: 0 });
    }

    #[test]
    fn where_nobody_looks_a_request_does() {
        let now = Instant::now();
        let mut state = open(now);
        let at = now + Duration::from_millis(100);
        state.stop_probing(state.generation, at);
        assert_eq!(state.admit(at - Duration::from_nanos(1)), None);
        let trial = admitted(&mut state, at);
        assert!(trial.trial.is_some());
        assert_eq!(state.admit(at), None);
        assert!(state.record_failure(trial, MAX_FAILURES));
        assert_eq!(state.admit(at + Duration::from_secs(9)), None);
    }
}
