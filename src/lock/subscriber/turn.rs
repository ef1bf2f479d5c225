use std::time::Duration;

use tokio::time::Instant;

/// How many holds in a row a process may have of a lock while others wait: handing it over within
/// a process takes a fraction of the time that another process takes to wake up.
const MAX_HOLDS: u32 = 16;
/// A turn of longer holds ends earlier.
const MAX_TURN: Duration = Duration::from_millis(10);
/// How long a free lock is left to others: a thread of a JVM takes milliseconds to wake up.
const PAUSE: Duration = Duration::from_millis(5);
/// After this long without a release it does not matter any more whose turn it was.
const MEMORY: Duration = Duration::from_secs(1);

/// How a process takes turns with others that wait for the same lock.
///
/// While others wait, a process has the lock for a few holds in a row, and then leaves it to the
/// others until each of them may have had as many. It does not wait for those who do not take it: a
/// lock that stays free during a pause is its own again.
#[derive(Debug)]
pub(super) struct Turn {
    /// How many others listened at the latest release.
    others: u32,
    /// How many holds this process has had more than its share; below 0, fewer than that. The
    /// balances of all that wait add up to 0: never does everybody leave the lock to everybody.
    balance: i64,
    /// When this process took the lock from another one, if it has not passed it on since then.
    began: Option<Instant>,
    /// This process has it: the others cannot go first.
    is_held: bool,
    /// The others go first until then, or until they are behind no more.
    pause: Option<Instant>,
    /// Messages of releases of this process that it has not heard yet.
    own_messages: u32,
    used: Instant,
}

impl Turn {
    /// The turn of a process that took the lock at `taken` and releases it now, while `others`
    /// wait.
    pub(super) fn new(others: u32, taken: Instant, now: Instant) -> Self {
        let mut turn = Self {
            others,
            balance: 0,
            began: Some(taken),
            is_held: false,
            pause: None,
            own_messages: 0,
            used: now,
        };
        turn.released(false, now);
        turn
    }

    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now - self.used >= MEMORY
    }

    /// Until when the others go first, if they do.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        self.pause.filter(|until| now < *until && !self.is_held)
    }

    /// This process has taken the lock.
    pub(super) fn taken(&mut self, now: Instant) {
        // None of the others has wanted it.
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
            self.balance = 0;
            self.began = None;
        }
        self.began.get_or_insert(now);
        self.is_held = true;
    }

    /// This process sends a release, whose message comes back to it if it listens.
    pub(super) fn released(&mut self, is_listening: bool, now: Instant) {
        self.used = now;
        self.is_held = false;
        self.own_messages = (self.own_messages + u32::from(is_listening)).min(MAX_HOLDS);
        let others = i64::from(self.others);
        let most = i64::from(MAX_HOLDS) * others;
        self.balance = (self.balance + others).min(most);
        let is_long = self.began.is_some_and(|began| now - began >= MAX_TURN);
        if self.balance == most || is_long {
            self.pause = Some(now + PAUSE);
        }
    }

    /// So many others listened at a release, by its reply.
    pub(super) fn told(&mut self, others: u32) {
        self.others = others;
    }

    /// A message: the lock was released.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.own_messages > 0 {
            self.own_messages -= 1;
            return;
        }
        self.used = now;
        self.began = None;
        self.balance = (self.balance - 1).max(-i64::from(MAX_HOLDS));
        if self.balance <= 0 {
            self.pause = None;
        } else if self.pause.is_some() {
            // The next one of them.
            self.pause = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turns of a process beside so many others that wait: the next one is its own.
    fn turn(others: u32) -> Turn {
        let mut turn = Turn::new(others, Instant::now(), Instant::now());
        others_hold(&mut turn, others);
        turn
    }

    fn hold(turn: &mut Turn) {
        turn.taken(Instant::now());
        turn.released(false, Instant::now());
    }

    fn others_hold(turn: &mut Turn, holds: u32) {
        (0..holds).for_each(|_| turn.heard(Instant::now()));
    }

    fn is_paused(turn: &Turn) -> bool {
        turn.pause(Instant::now()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_the_others_may_have_as_many() {
        let mut turn = turn(2);
        for _ in 0..3 {
            for _ in 0..MAX_HOLDS {
                assert!(!is_paused(&turn));
                hold(&mut turn);
            }
            for _ in 0..2 * MAX_HOLDS {
                assert!(is_paused(&turn));
                tokio::time::advance(PAUSE / 2).await;
                turn.heard(Instant::now());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_hold_is_a_turn() {
        let mut turn = turn(1);
        turn.taken(Instant::now());
        tokio::time::advance(MAX_TURN).await;
        turn.released(false, Instant::now());
        assert!(is_paused(&turn));
        turn.heard(Instant::now());
        assert!(!is_paused(&turn), "the other one has had it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_taken_back() {
        let mut turn = turn(1);
        (0..MAX_HOLDS).for_each(|_| hold(&mut turn));
        tokio::time::advance(PAUSE).await;
        assert!(!is_paused(&turn));
        hold(&mut turn);
        assert!(!is_paused(&turn), "a turn as long as the first one");
    }

    /// Those who do not wait for others take the lock also during a pause.
    #[tokio::test(start_paused = true)]
    async fn others_are_never_more_than_a_turn_behind() {
        let mut turn = turn(2);
        (0..100 * MAX_HOLDS).for_each(|_| hold(&mut turn));
        others_hold(&mut turn, 2 * MAX_HOLDS);
        assert!(!is_paused(&turn));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_had_more_is_made_up_for() {
        let mut turn = turn(1);
        others_hold(&mut turn, 3);
        (0..MAX_HOLDS + 2).for_each(|_| hold(&mut turn));
        assert!(!is_paused(&turn));
        hold(&mut turn);
        assert!(is_paused(&turn));
    }

    #[tokio::test(start_paused = true)]
    async fn others_come_in_between_also_when_there_is_much_to_make_up_for() {
        let mut turn = turn(1);
        others_hold(&mut turn, 100 * MAX_HOLDS);
        for _ in 0..MAX_HOLDS / 2 {
            turn.taken(Instant::now());
            tokio::time::advance(MAX_TURN).await;
            turn.released(false, Instant::now());
            assert!(is_paused(&turn));
            others_hold(&mut turn, 1);
            assert!(!is_paused(&turn));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn others_that_hold_it_long_still_have_their_turn() {
        let mut turn = turn(1);
        (0..MAX_HOLDS).for_each(|_| hold(&mut turn));
        for _ in 1..MAX_HOLDS {
            tokio::time::advance(2 * PAUSE).await;
            turn.heard(Instant::now());
            assert!(is_paused(&turn));
        }
        turn.heard(Instant::now());
        assert!(!is_paused(&turn));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_of_its_own_is_nobody_elses_turn() {
        let mut turn = turn(1);
        (0..MAX_HOLDS - 1).for_each(|_| hold(&mut turn));
        turn.released(true, Instant::now());
        turn.heard(Instant::now());
        assert!(is_paused(&turn));
        others_hold(&mut turn, MAX_HOLDS);
        assert!(!is_paused(&turn));
    }
}
