use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::jitter;

/// A release whose message is lost is noticed after this long.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Keeps waiters from asking without a pause while a lease is about to end.
const MIN_SLEEP: Duration = Duration::from_millis(5);
/// From a question that failed to the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// A waiter that was woken and is not done after this long does not hold up the others.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this long without a reply, waiting fails.
const MAX_OUTAGE: Duration = Duration::from_secs(5);

/// The tasks of a process that wait for the same name, in the order of their arrival.
///
/// All of them have asked for themselves and were refused. From then on a wake-up lets the first of
/// them ask again. That one passes the wake-up on when it is done, or when it gives up; a refusal
/// ends the wake-up. So ten thousand waiters cost about as many calls as one, and a waiter that is
/// not polled costs the others a second at most.
#[derive(Debug)]
pub(super) struct Waiters {
    waiters: BTreeMap<u64, Waiter>,
    /// When one of them asks again if there is no wake-up before.
    ask_at: Instant,
    /// The questions that have failed since the last reply.
    outage: Option<Outage>,
}

/// Who waits.
#[derive(Debug, Clone, Copy)]
pub(in crate::lock) struct Caller {
    pub(in crate::lock) owner: Option<u64>,
    /// How long one of its questions may take.
    pub(in crate::lock) timeout: Duration,
}

#[derive(Debug)]
struct Waiter {
    caller: Caller,
    state: State,
    /// When it was woken, or began to ask.
    since: Instant,
    woken: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its question is not answered yet.
    Asking,
    Asleep,
    /// It is to ask, or asks, because of a wake-up.
    Woken,
    /// The same, and another wake-up has come meanwhile, perhaps after Redis has answered.
    WokenAgain,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    error: StoreError,
    /// Of the questions that have failed, the longest. Callers with more patience may be answered.
    timeout: Duration,
}

/// What a waiter does next.
#[derive(Debug)]
pub(super) enum Next {
    Ask,
    SleepUntil(Instant),
    /// Its time is up, and others have the lock.
    GiveUp,
    Fail(StoreError),
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self {
            waiters: BTreeMap::new(),
            ask_at: Instant::now() + MAX_SLEEP,
            outage: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds one whose first question has been answered or has failed.
    pub(super) fn join(&mut self, number: u64, caller: Caller) -> Arc<Notify> {
        let woken = Arc::new(Notify::new());
        // The owner may have taken the lock between that question and now: it asks once more.
        let state = match caller.owner {
            Some(_) => State::WokenAgain,
            None => State::Asking,
        };
        let waiter = Waiter {
            caller,
            state,
            since: Instant::now(),
            woken: Arc::clone(&woken),
        };
        self.waiters.insert(number, waiter);
        woken
    }

    /// Adds one that has not asked yet, since others go first.
    pub(super) fn join_asleep(&mut self, number: u64, caller: Caller) -> Arc<Notify> {
        let woken = self.join(number, caller);
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.state = State::Asleep;
        }
        match caller.owner {
            // It does not stand behind others.
            Some(owner) => self.wake_all_of(owner),
            None => self.wake_one(),
        }
        woken
    }

    /// Removes a waiter that is done or gives up.
    pub(super) fn leave(&mut self, number: u64) {
        let waiter = self.waiters.remove(&number);
        if waiter.is_some_and(|waiter| waiter.is_woken()) {
            self.wake_one();
        }
    }

    /// Wakes the one that has waited longest.
    pub(super) fn wake_one(&mut self) {
        let now = Instant::now();
        let mut waiters = self.waiters.values_mut();
        if let Some(waiter) = waiters.find(|waiter| !waiter.is_stuck(now)) {
            waiter.wake();
            self.ask_at = self.ask_at.min(now + PATIENCE);
        }
    }

    /// Wakes those of an owner that has the lock now, and may take it again.
    pub(super) fn wake_all_of(&mut self, owner: u64) {
        let mut waiters = self.waiters.values_mut();
        while let Some(waiter) = waiters.find(|waiter| waiter.caller.owner == Some(owner)) {
            waiter.wake();
        }
    }

    /// Redis has answered.
    pub(super) fn answered(&mut self) {
        self.outage = None;
    }

    /// The question of this one was answered: others have the lock, and their lease ends then.
    pub(super) fn refused(&mut self, number: u64, ends_after: Option<Duration>) {
        self.answered();
        self.sleep(number, ends_after.unwrap_or(MAX_SLEEP));
    }

    /// The question of this one was not answered.
    pub(super) fn failed(&mut self, number: u64, error: StoreError) {
        let now = Instant::now();
        let waiter = self.waiters.get(&number);
        let timeout = waiter.map_or(Duration::ZERO, |waiter| waiter.caller.timeout);
        let (since, timeout) = match self.outage.take() {
            Some(outage) if outage.timeout >= timeout => (outage.since, outage.timeout),
            _ => (now, timeout),
        };
        self.outage = Some(Outage {
            since,
            error,
            timeout,
        });
        self.sleep(number, PAUSE);
        let mut others = self.waiters.values_mut();
        if now - since >= MAX_OUTAGE {
            others.for_each(Waiter::wake);
        } else if let Some(patient) =
            others.find(|waiter| waiter.caller.timeout > timeout && !waiter.is_stuck(now))
        {
            patient.wake();
        }
    }

    fn sleep(&mut self, number: u64, sleep: Duration) {
        self.ask_at = Instant::now() + jitter::pause_before_repeat(sleep, MIN_SLEEP);
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.state = match waiter.state {
                State::WokenAgain => State::Woken,
                _ => State::Asleep,
            };
        }
    }

    /// What this one does now, if it waits up to an instant, and others go first up to another one.
    pub(super) fn next(
        &mut self,
        number: u64,
        until: Option<Instant>,
        pause: Option<Instant>,
    ) -> Next {
        let now = Instant::now();
        let is_late = until.is_some_and(|until| now >= until);
        let waiter = self.waiters.get(&number);
        if let Some(outage) = &self.outage
            && waiter.is_none_or(|waiter| waiter.caller.timeout <= outage.timeout)
            && (is_late || now - outage.since >= MAX_OUTAGE)
        {
            return Next::Fail(outage.error.clone());
        }
        if is_late {
            return Next::GiveUp;
        }
        if now >= self.ask_at {
            self.ask_at = now + MAX_SLEEP;
            self.wake_one();
        }
        let earlier = |at: Instant| Next::SleepUntil(until.map_or(at, |until| until.min(at)));
        match self.waiters.get_mut(&number) {
            Some(waiter) if waiter.is_woken() => {
                waiter.since = now;
                // The question comes after all wake-ups so far.
                waiter.state = State::Woken;
                pause.map_or(Next::Ask, earlier)
            }
            _ => earlier(self.ask_at),
        }
    }
}

impl Waiter {
    fn wake(&mut self) {
        if self.state == State::Asleep {
            self.since = Instant::now();
            self.state = State::Woken;
        } else {
            self.state = State::WokenAgain;
        }
        self.woken.notify_one();
    }

    fn is_woken(&self) -> bool {
        matches!(self.state, State::Woken | State::WokenAgain)
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.is_woken() && now - self.since >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    const CALLER: Caller = Caller {
        owner: None,
        timeout: Duration::from_millis(200),
    };

    /// Waiters without owners, all asleep.
    fn asleep(numbers: std::ops::Range<u64>) -> Waiters {
        let mut waiters = Waiters::new();
        for number in numbers {
            waiters.join(number, CALLER);
            waiters.refused(number, None);
        }
        waiters
    }

    fn awake(waiters: &Waiters) -> Vec<u64> {
        let is_awake = |waiter: &Waiter| waiter.state != State::Asleep;
        let awake = waiters.waiters.iter();
        let awake = awake.filter_map(|(number, waiter)| is_awake(waiter).then_some(*number));
        awake.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_wakes_one_and_is_passed_on() {
        let mut waiters = asleep(0..4);
        waiters.wake_one();
        assert_eq!(awake(&waiters), [0]);
        waiters.leave(0);
        assert_eq!(awake(&waiters), [1], "it was done, or gave up");
        waiters.refused(1, None);
        assert_eq!(awake(&waiters), [0; 0]);
        waiters.leave(2);
        assert_eq!(awake(&waiters), [0; 0], "it had no wake-up to pass on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_during_a_question_is_not_lost() {
        let mut waiters = asleep(0..1);
        waiters.wake_one();
        waiters.wake_one();
        waiters.refused(0, None);
        assert!(matches!(waiters.next(0, None, None), Next::Ask));
        waiters.refused(0, None);
        assert!(matches!(waiters.next(0, None, None), Next::SleepUntil(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_not_polled_costs_the_others_a_second() {
        let mut waiters = asleep(0..3);
        for woken in 0..3 {
            tokio::time::advance(2 * MAX_SLEEP).await;
            waiters.next(2, None, None);
            assert_eq!(awake(&waiters), (0..=woken).collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_does_not_stand_behind_others() {
        let mut waiters = asleep(0..2);
        waiters.join(
            2,
            Caller {
                owner: Some(7),
                ..CALLER
            },
        );
        waiters.refused(2, None);
        assert!(
            matches!(waiters.next(2, None, None), Next::Ask),
            "it asks once more"
        );
        waiters.refused(2, None);
        waiters.wake_all_of(7);
        assert_eq!(awake(&waiters), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hasty_caller_does_not_speak_for_patient_ones() {
        let mut waiters = Waiters::new();
        let timeout = Duration::ZERO;
        waiters.join(0, Caller { timeout, ..CALLER });
        waiters.join(1, CALLER);
        waiters.refused(1, None);
        let error = || StoreError::new(StoreErrorKind::Timeout, "no answer");
        waiters.failed(0, error());
        assert_eq!(awake(&waiters), [1]);
        tokio::time::advance(MAX_OUTAGE).await;
        waiters.failed(0, error());
        assert!(matches!(waiters.next(0, None, None), Next::Fail(_)));
        assert!(matches!(waiters.next(1, None, None), Next::Ask));
        waiters.failed(1, error());
        assert!(!matches!(waiters.next(1, None, None), Next::Fail(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_ends_with_an_answer() {
        let mut waiters = asleep(0..2);
        let error = || StoreError::new(StoreErrorKind::Timeout, "no answer");
        for _ in 0..3 {
            waiters.failed(0, error());
            tokio::time::advance(MAX_OUTAGE * 2 / 3).await;
            waiters.failed(0, error());
            assert!(!matches!(waiters.next(1, None, None), Next::Fail(_)));
            waiters.refused(1, None);
        }
        waiters.failed(0, error());
        tokio::time::advance(MAX_OUTAGE).await;
        waiters.failed(0, error());
        assert!(matches!(waiters.next(1, None, None), Next::Fail(_)));
    }
}
