use std::time::Duration;

use tokio::time::Instant;

/// How many times in a row a process may hold a lock while other processes wait. Handing the lock
/// over within a process takes a fraction of the time that another process takes to wake up.
const MAX_HOLDS: u32 = 16;
/// A process whose holds are long lets others go first after this time.
const MAX_SPELL: Duration = Duration::from_millis(10);
/// How long a process leaves a free lock to others: a thread of a JVM needs milliseconds to wake
/// up.
const PAUSE: Duration = Duration::from_millis(5);
/// After this time without a release, it no longer matters who goes first.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How this process shares one lock with other processes that wait for it.
///
/// While others wait, the process holds the lock several times in a row. Then it pauses until each
/// of the others may have had as many holds. If nobody takes the free lock during a pause, the
/// process goes on.
pub(super) struct Fairness {
    /// How many other processes listened at the latest release.
    pub(super) others: u32,
    /// How many holds this process has had above its share; negative if below. The balances of all
    /// waiting processes add up to 0, so that they never all leave the lock to each other.
    balance: i64,
    /// When this process acquired the lock after another process; `None` if another process has
    /// held it since.
    began: Option<Instant>,
    /// Whether this process holds the lock, so that no other process can go first.
    is_held: bool,
    /// Until when the others go first, unless they have had their holds before.
    paused_until: Option<Instant>,
    /// The number of releases of this process whose messages have not come back to it yet.
    own_messages: u32,
    last_release: Instant,
}

impl Fairness {
    /// That of a process that acquired the lock at `acquired` and releases it now, while
    /// `others` wait.
    pub(super) fn new(others: u32, acquired: Instant, now: Instant) -> Self {
        let mut fairness = Self {
            others,
            balance: 0,
            began: Some(acquired),
            is_held: false,
            paused_until: None,
            own_messages: 0,
            last_release: now,
        };
        fairness.release_sent(false, now);
        fairness
    }

    pub(super) fn is_outdated(&self, now: Instant) -> bool {
        now - self.last_release >= MAX_AGE
    }

    /// Until when the others go first; `None` if they do not.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until
            .filter(|until| now < *until && !self.is_held)
    }

    /// This process has acquired the lock.
    pub(super) fn acquired(&mut self, now: Instant) {
        // No other process took the lock during the pause.
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            self.balance = 0;
            self.began = None;
        }
        self.began.get_or_insert(now);
        self.is_held = true;
    }

    /// This process sends a release, whose message comes back to it if it listens.
    pub(super) fn release_sent(&mut self, is_listening: bool, now: Instant) {
        self.last_release = now;
        self.is_held = false;
        self.own_messages = (self.own_messages + u32::from(is_listening)).min(MAX_HOLDS);
        let others = i64::from(self.others);
        let max = i64::from(MAX_HOLDS) * others;
        self.balance = (self.balance + others).min(max);
        let is_long = self.began.is_some_and(|began| now - began >= MAX_SPELL);
        if self.balance == max || is_long {
            self.paused_until = Some(now + PAUSE);
        }
    }

    /// A message has arrived: some process has released the lock.
    pub(super) fn message_received(&mut self, now: Instant) {
        if self.own_messages > 0 {
            self.own_messages -= 1;
            return;
        }
        self.last_release = now;
        self.began = None;
        self.balance = (self.balance - 1).max(-i64::from(MAX_HOLDS));
        if self.balance <= 0 {
            self.paused_until = None;
        } else if self.paused_until.is_some() {
            // The next one of the others goes first.
            self.paused_until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of a process beside this many others, before its next hold.
    fn fairness(others: u32) -> Fairness {
        let mut fairness = Fairness::new(others, Instant::now(), Instant::now());
        others_hold(&mut fairness, others);
        fairness
    }

    fn hold(fairness: &mut Fairness) {
        fairness.acquired(Instant::now());
        fairness.release_sent(false, Instant::now());
    }

    fn others_hold(fairness: &mut Fairness, holds: u32) {
        (0..holds).for_each(|_| fairness.message_received(Instant::now()));
    }

    fn is_paused(fairness: &Fairness) -> bool {
        fairness.paused_until(Instant::now()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn each_other_process_may_have_as_many_holds() {
        let mut fairness = fairness(2);
        for _ in 0..3 {
            for _ in 0..MAX_HOLDS {
                assert!(!is_paused(&fairness));
                hold(&mut fairness);
            }
            for _ in 0..2 * MAX_HOLDS {
                assert!(is_paused(&fairness));
                tokio::time::advance(PAUSE / 2).await;
                fairness.message_received(Instant::now());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_hold_ends_a_spell() {
        let mut fairness = fairness(1);
        fairness.acquired(Instant::now());
        tokio::time::advance(MAX_SPELL).await;
        fairness.release_sent(false, Instant::now());
        assert!(is_paused(&fairness));
        fairness.message_received(Instant::now());
        assert!(!is_paused(&fairness), "the other one has had it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_nobody_takes_is_acquired_again() {
        let mut fairness = fairness(1);
        (0..MAX_HOLDS).for_each(|_| hold(&mut fairness));
        tokio::time::advance(PAUSE).await;
        assert!(!is_paused(&fairness));
        hold(&mut fairness);
        assert!(!is_paused(&fairness), "a spell as long as the first one");
    }

    /// A caller that tries once may acquire the lock also during a pause.
    #[tokio::test(start_paused = true)]
    async fn others_are_never_more_than_a_spell_behind() {
        let mut fairness = fairness(2);
        (0..100 * MAX_HOLDS).for_each(|_| hold(&mut fairness));
        others_hold(&mut fairness, 2 * MAX_HOLDS);
        assert!(!is_paused(&fairness));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_behind_makes_up_for_it() {
        let mut fairness = fairness(1);
        others_hold(&mut fairness, 3);
        (0..MAX_HOLDS + 2).for_each(|_| hold(&mut fairness));
        assert!(!is_paused(&fairness));
        hold(&mut fairness);
        assert!(is_paused(&fairness));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_far_behind_still_pauses() {
        let mut fairness = fairness(1);
        others_hold(&mut fairness, 100 * MAX_HOLDS);
        for _ in 0..MAX_HOLDS / 2 {
            fairness.acquired(Instant::now());
            tokio::time::advance(MAX_SPELL).await;
            fairness.release_sent(false, Instant::now());
            assert!(is_paused(&fairness));
            others_hold(&mut fairness, 1);
            assert!(!is_paused(&fairness));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn others_with_long_holds_still_have_theirs() {
        let mut fairness = fairness(1);
        (0..MAX_HOLDS).for_each(|_| hold(&mut fairness));
        for _ in 1..MAX_HOLDS {
            tokio::time::advance(2 * PAUSE).await;
            fairness.message_received(Instant::now());
            assert!(is_paused(&fairness));
        }
        fairness.message_received(Instant::now());
        assert!(!is_paused(&fairness));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_of_its_own_does_not_count_as_a_hold_of_others() {
        let mut fairness = fairness(1);
        (0..MAX_HOLDS - 1).for_each(|_| hold(&mut fairness));
        fairness.release_sent(true, Instant::now());
        fairness.message_received(Instant::now());
        assert!(is_paused(&fairness));
        others_hold(&mut fairness, MAX_HOLDS);
        assert!(!is_paused(&fairness));
    }
}
