//! When a breaker opens, tries and closes: without a clock and without a store.

use std::time::Duration;

use tokio::time::Instant;

/// How long a trial may take until another request gets its turn: its future may be kept without being polled.
pub(super) const TRIAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct State {
    phase: Phase,
    /// Counts the changes of phase: what began before one says nothing about what is after it.
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests go through; so many have failed since the last decision.
    Closed { failures: u32 },
    /// No request goes through: somebody looks whether the store answers. From `try_at` on nobody does any more, and
    /// then a request has to find out.
    Open { try_at: Option<Instant> },
    /// The store answers again. One request at a time goes through, and its outcome decides.
    HalfOpen { trial: Option<Instant> },
}

/// A request that may go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) generation: u64,
    /// Since when it is the one that goes through.
    pub(super) trial: Option<Instant>,
}

impl State {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Closed { failures: 0 },
            generation: 0,
        }
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets a request through, or not.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        match self.phase {
            Phase::Closed { .. } => return Some(self.ticket(None)),
            Phase::HalfOpen { trial: None } => {
                self.phase = Phase::HalfOpen { trial: Some(now) };
            }
            Phase::HalfOpen { trial: Some(began) } if now >= began + TRIAL => {
                self.phase = Phase::HalfOpen { trial: Some(now) };
            }
            Phase::Open { try_at: Some(at) } if now >= at => {
                self.enter(Phase::HalfOpen { trial: Some(now) });
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => return None,
        }
        Some(self.ticket(Some(now)))
    }

    /// A request was decided. Whether that closes the breaker.
    pub(super) fn succeeds(&mut self, ticket: Ticket) -> bool {
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

    /// A request failed. Whether that opens the breaker: the first of `most` in a row do not.
    pub(super) fn fails(&mut self, ticket: Ticket, most: u32) -> bool {
        match self.phase {
            _ if ticket.generation != self.generation => return false,
            Phase::Closed { failures } if failures + 1 < most => {
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

    /// A trial has ended and nothing is known by it: another one may begin.
    pub(super) fn says_nothing(&mut self, ticket: Ticket) {
        let its = Phase::HalfOpen {
            trial: ticket.trial,
        };
        if ticket.generation == self.generation && self.phase == its {
            self.phase = Phase::HalfOpen { trial: None };
        }
    }

    /// Who looked since the breaker opened, at this generation, was answered.
    pub(super) fn answers(&mut self, generation: u64) {
        if generation == self.generation {
            self.enter(Phase::HalfOpen { trial: None });
        }
    }

    /// Nobody looks any more since the breaker opened at this generation.
    pub(super) fn is_left_alone(&mut self, generation: u64, try_at: Instant) {
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

    const MOST: u32 = 3;

    fn admitted(state: &mut State, now: Instant) -> Ticket {
        state.admit(now).expect("it goes through")
    }

    /// A breaker that opened just now.
    fn open(now: Instant) -> State {
        let mut state = State::new();
        let opened: Vec<_> = (0..MOST)
            .map(|_| {
                let ticket = admitted(&mut state, now);
                state.fails(ticket, MOST)
            })
            .collect();
        assert_eq!(opened, [false, false, true]);
        state
    }

    fn half_open(now: Instant) -> State {
        let mut state = open(now);
        state.answers(state.generation());
        state
    }

    #[test]
    fn a_decision_in_between_begins_the_count_anew() {
        let now = Instant::now();
        let mut state = State::new();
        let ticket = admitted(&mut state, now);
        for _ in 0..100 {
            assert!(!state.fails(ticket, MOST));
            assert!(!state.fails(ticket, MOST));
            assert!(!state.succeeds(ticket));
        }
        assert_eq!(state.phase(), Phase::Closed { failures: 0 });
    }

    #[test]
    fn open_lets_nobody_through_until_somebody_was_answered() {
        let now = Instant::now();
        let mut state = open(now);
        let later = now + Duration::from_secs(3600);
        assert_eq!(state.admit(later), None);
        let generation = state.generation();
        state.answers(generation - 1);
        assert_eq!(state.admit(later), None, "that was before it opened");
        state.answers(generation);
        assert!(admitted(&mut state, later).trial.is_some());
    }

    #[test]
    fn half_open_lets_one_through_and_that_decides() {
        let now = Instant::now();
        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        assert_eq!(state.admit(now), None);
        assert!(state.succeeds(trial));
        assert!(admitted(&mut state, now).trial.is_none());

        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        assert!(state.fails(trial, MOST), "one is enough");
        assert_eq!(state.admit(now), None);
        assert_eq!(state.phase(), Phase::Open { try_at: None });
    }

    #[test]
    fn a_trial_that_says_nothing_makes_room() {
        let now = Instant::now();
        let mut state = half_open(now);
        let trial = admitted(&mut state, now);
        state.says_nothing(trial);
        let trial = admitted(&mut state, now);
        assert_eq!(state.admit(now), None);
        assert!(state.succeeds(trial));
    }

    #[test]
    fn a_trial_that_takes_too_long_makes_room() {
        let now = Instant::now();
        let mut state = half_open(now);
        let stuck = admitted(&mut state, now);
        assert_eq!(state.admit(now + TRIAL - Duration::from_nanos(1)), None);
        let next = admitted(&mut state, now + TRIAL);
        state.says_nothing(stuck);
        assert_eq!(state.admit(now + TRIAL), None, "there is still the other");
        // Answers that always take longer than that are answers all the same.
        assert!(state.succeeds(stuck));
        assert!(!state.fails(next, MOST) && !state.succeeds(next));
    }

    /// What began before the breaker opened, or closed, changes nothing after it.
    #[test]
    fn late_results_change_nothing() {
        let now = Instant::now();
        let mut state = State::new();
        let early = admitted(&mut state, now);
        let ticket = admitted(&mut state, now);
        for _ in 0..MOST {
            state.fails(ticket, MOST);
        }
        let is_open = |state: &State| state.phase() == Phase::Open { try_at: None };
        assert!(!state.succeeds(early) && is_open(&state));
        assert!(!state.fails(early, MOST) && is_open(&state));
        let generation = state.generation();
        state.answers(generation);
        assert!(!state.succeeds(early) && !state.fails(early, MOST));
        let trial = admitted(&mut state, now);
        state.says_nothing(early);
        assert_eq!(state.admit(now), None);
        assert!(state.succeeds(trial));
        for _ in 0..2 * MOST {
            assert!(!state.fails(early, MOST) && !state.fails(trial, MOST));
        }
        state.answers(generation);
        state.is_left_alone(generation, now);
        assert_eq!(state.phase(), Phase::Closed { failures: 0 });
    }

    #[test]
    fn where_nobody_looks_a_request_does() {
        let now = Instant::now();
        let mut state = open(now);
        let at = now + Duration::from_millis(100);
        state.is_left_alone(state.generation(), at);
        assert_eq!(state.admit(at - Duration::from_nanos(1)), None);
        let trial = admitted(&mut state, at);
        assert!(trial.trial.is_some());
        assert_eq!(state.admit(at), None);
        assert!(state.fails(trial, MOST));
        assert_eq!(state.admit(at + Duration::from_secs(9)), None);
    }
}
