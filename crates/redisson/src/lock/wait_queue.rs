use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::jitter;

/// The longest time without a call: a release whose message is lost is noticed after this time.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// The shortest time between two calls while a lease is about to end.
const MIN_SLEEP: Duration = Duration::from_millis(5);
/// From a call that failed to the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// A caller that was woken and has not finished after this time does not delay the others.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// After this time without a reply, waiting fails.
const MAX_OUTAGE: Duration = Duration::from_secs(5);

/// The callers of a process that wait for the same lock, in the order of their arrival.
///
/// All of them have asked and were denied. From then on, a wake-up lets the first caller ask again.
/// It passes the wake-up on when it has acquired the lock or gives up; a denial ends the wake-up.
/// So ten thousand callers cost about as many calls as one. A caller that is not polled delays the
/// others by a second at most.
#[derive(Debug)]
pub(super) struct WaitQueue {
    waiters: BTreeMap<u64, QueueEntry>,
    /// When the first caller asks again without a wake-up.
    ask_at: Instant,
    /// The calls that have failed since the last reply.
    outage: Option<FailingCalls>,
}

/// What the queue knows of a caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaiterInfo {
    /// For whom it calls, if an owner may hold the lock more than once.
    pub(super) owner: Option<u64>,
    /// How long one of its calls may take.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
struct QueueEntry {
    info: WaiterInfo,
    state: WaiterState,
    /// When the caller was woken, or began to ask.
    since: Instant,
    woken: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    /// Its first call is in progress.
    Asking,
    Asleep,
    /// It was woken: it is about to ask, or its call is in progress.
    Woken,
    /// As `Woken`, and it was woken once more meanwhile, perhaps after Redis has answered its call.
    WokenAgain,
}

#[derive(Debug)]
struct FailingCalls {
    since: Instant,
    error: StoreError,
    /// The longest timeout of the calls that have failed. A call with a longer timeout may succeed.
    timeout: Duration,
}

/// What a caller does next.
#[derive(Debug)]
pub(super) enum NextStep {
    Ask,
    SleepUntil(Instant),
    /// Its deadline has passed, and the lock is still held.
    GiveUp,
    Fail(StoreError),
}

impl WaitQueue {
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

    /// Adds a caller whose first call was denied or has failed.
    pub(super) fn join(&mut self, number: u64, info: WaiterInfo) -> Arc<Notify> {
        // The owner may have acquired the lock since that call, so the caller asks once more.
        let state = match info.owner {
            Some(_) => WaiterState::WokenAgain,
            None => WaiterState::Asking,
        };
        self.insert(number, info, state)
    }

    /// Adds a caller that has not asked yet, because it is the turn of other processes.
    pub(super) fn join_asleep(&mut self, number: u64, info: WaiterInfo) -> Arc<Notify> {
        let woken = self.insert(number, info, WaiterState::Asleep);
        match info.owner {
            // An owner does not wait behind other callers.
            Some(owner) => self.wake_owner(owner),
            None => self.wake_one(),
        }
        woken
    }

    fn insert(&mut self, number: u64, info: WaiterInfo, state: WaiterState) -> Arc<Notify> {
        let woken = Arc::new(Notify::new());
        let waiter = QueueEntry {
            info,
            state,
            since: Instant::now(),
            woken: Arc::clone(&woken),
        };
        self.waiters.insert(number, waiter);
        woken
    }

    /// Removes a caller that has acquired the lock or gives up.
    pub(super) fn leave(&mut self, number: u64) {
        let waiter = self.waiters.remove(&number);
        if waiter.is_some_and(|waiter| waiter.is_woken()) {
            self.wake_one();
        }
    }

    /// Wakes the first caller, except for callers that were woken and do not ask.
    pub(super) fn wake_one(&mut self) {
        let now = Instant::now();
        let mut waiters = self.waiters.values_mut();
        if let Some(waiter) = waiters.find(|waiter| !waiter.is_stuck(now)) {
            waiter.wake();
            self.ask_at = self.ask_at.min(now + MAX_DELAY);
        }
    }

    /// Wakes all callers of an owner that has acquired the lock: it may acquire the lock again.
    pub(super) fn wake_owner(&mut self, owner: u64) {
        let mut waiters = self.waiters.values_mut();
        while let Some(waiter) = waiters.find(|waiter| waiter.info.owner == Some(owner)) {
            waiter.wake();
        }
    }

    /// Redis has answered a call.
    pub(super) fn answered(&mut self) {
        self.outage = None;
    }

    /// This caller was denied: the lease of another holder ends after this time.
    pub(super) fn denied(&mut self, number: u64, ends_after: Option<Duration>) {
        self.answered();
        self.sleep(number, ends_after.unwrap_or(MAX_SLEEP));
    }

    /// The call of this caller was not answered.
    pub(super) fn failed(&mut self, number: u64, error: StoreError) {
        let now = Instant::now();
        let waiter = self.waiters.get(&number);
        let timeout = waiter.map_or(Duration::ZERO, |waiter| waiter.info.timeout);
        let (since, timeout) = match self.outage.take() {
            Some(outage) if outage.timeout >= timeout => (outage.since, outage.timeout),
            _ => (now, timeout),
        };
        self.outage = Some(FailingCalls {
            since,
            error,
            timeout,
        });
        self.sleep(number, PAUSE);
        let mut others = self.waiters.values_mut();
        if now - since >= MAX_OUTAGE {
            others.for_each(QueueEntry::wake);
        } else if let Some(patient) =
            others.find(|waiter| waiter.info.timeout > timeout && !waiter.is_stuck(now))
        {
            patient.wake();
        }
    }

    fn sleep(&mut self, number: u64, sleep: Duration) {
        self.ask_at = Instant::now() + jitter::pause_before_repeat(sleep, MIN_SLEEP);
        if let Some(waiter) = self.waiters.get_mut(&number) {
            waiter.state = match waiter.state {
                WaiterState::WokenAgain => WaiterState::Woken,
                _ => WaiterState::Asleep,
            };
        }
    }

    /// What this caller does now. `until` is its deadline; other processes go first until
    /// `paused_until`.
    pub(super) fn next_step(
        &mut self,
        number: u64,
        until: Option<Instant>,
        paused_until: Option<Instant>,
    ) -> NextStep {
        let now = Instant::now();
        let is_late = until.is_some_and(|until| now >= until);
        let waiter = self.waiters.get(&number);
        if let Some(outage) = &self.outage
            && waiter.is_none_or(|waiter| waiter.info.timeout <= outage.timeout)
            && (is_late || now - outage.since >= MAX_OUTAGE)
        {
            return NextStep::Fail(outage.error.clone());
        }
        if is_late {
            return NextStep::GiveUp;
        }
        if now >= self.ask_at {
            self.ask_at = now + MAX_SLEEP;
            self.wake_one();
        }
        let sleep_until =
            |at: Instant| NextStep::SleepUntil(until.map_or(at, |until| until.min(at)));
        match self.waiters.get_mut(&number) {
            Some(waiter) if waiter.is_woken() => {
                waiter.since = now;
                // The call comes after all wake-ups so far.
                waiter.state = WaiterState::Woken;
                paused_until.map_or(NextStep::Ask, sleep_until)
            }
            _ => sleep_until(self.ask_at),
        }
    }
}

impl QueueEntry {
    fn wake(&mut self) {
        if self.state == WaiterState::Asleep {
            self.since = Instant::now();
            self.state = WaiterState::Woken;
        } else {
            self.state = WaiterState::WokenAgain;
        }
        self.woken.notify_one();
    }

    fn is_woken(&self) -> bool {
        matches!(self.state, WaiterState::Woken | WaiterState::WokenAgain)
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.is_woken() && now - self.since >= MAX_DELAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    const INFO: WaiterInfo = WaiterInfo {
        owner: None,
        timeout: Duration::from_millis(200),
    };

    /// Callers without owners, all asleep.
    fn asleep(numbers: std::ops::Range<u64>) -> WaitQueue {
        let mut waiters = WaitQueue::new();
        for number in numbers {
            waiters.join(number, INFO);
            waiters.denied(number, None);
        }
        waiters
    }

    fn awake(queue: &WaitQueue) -> Vec<u64> {
        let is_awake = |waiter: &QueueEntry| waiter.state != WaiterState::Asleep;
        let awake = queue.waiters.iter();
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
        waiters.denied(1, None);
        assert_eq!(awake(&waiters), [0; 0]);
        waiters.leave(2);
        assert_eq!(awake(&waiters), [0; 0], "it had no wake-up to pass on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_during_a_question_is_not_lost() {
        let mut waiters = asleep(0..1);
        waiters.wake_one();
        waiters.wake_one();
        waiters.denied(0, None);
        assert!(matches!(waiters.next_step(0, None, None), NextStep::Ask));
        waiters.denied(0, None);
        assert!(matches!(
            waiters.next_step(0, None, None),
            NextStep::SleepUntil(_)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_not_polled_delays_the_others_by_a_second() {
        let mut waiters = asleep(0..3);
        for woken in 0..3 {
            tokio::time::advance(2 * MAX_SLEEP).await;
            waiters.next_step(2, None, None);
            assert_eq!(awake(&waiters), (0..=woken).collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_does_not_wait_behind_others() {
        let mut waiters = asleep(0..2);
        waiters.join(
            2,
            WaiterInfo {
                owner: Some(7),
                ..INFO
            },
        );
        waiters.denied(2, None);
        assert!(
            matches!(waiters.next_step(2, None, None), NextStep::Ask),
            "it asks once more"
        );
        waiters.denied(2, None);
        waiters.wake_owner(7);
        assert_eq!(awake(&waiters), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_timeout_does_not_fail_callers_with_longer_ones() {
        let mut waiters = WaitQueue::new();
        let timeout = Duration::ZERO;
        waiters.join(0, WaiterInfo { timeout, ..INFO });
        waiters.join(1, INFO);
        waiters.denied(1, None);
        let error = || StoreError::new(StoreErrorKind::Timeout, "no answer");
        waiters.failed(0, error());
        assert_eq!(awake(&waiters), [1]);
        tokio::time::advance(MAX_OUTAGE).await;
        waiters.failed(0, error());
        assert!(matches!(
            waiters.next_step(0, None, None),
            NextStep::Fail(_)
        ));
        assert!(matches!(waiters.next_step(1, None, None), NextStep::Ask));
        waiters.failed(1, error());
        assert!(!matches!(
            waiters.next_step(1, None, None),
            NextStep::Fail(_)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_ends_with_an_answer() {
        let mut waiters = asleep(0..2);
        let error = || StoreError::new(StoreErrorKind::Timeout, "no answer");
        for _ in 0..3 {
            waiters.failed(0, error());
            tokio::time::advance(MAX_OUTAGE * 2 / 3).await;
            waiters.failed(0, error());
            assert!(!matches!(
                waiters.next_step(1, None, None),
                NextStep::Fail(_)
            ));
            waiters.denied(1, None);
        }
        waiters.failed(0, error());
        tokio::time::advance(MAX_OUTAGE).await;
        waiters.failed(0, error());
        assert!(matches!(
            waiters.next_step(1, None, None),
            NextStep::Fail(_)
        ));
    }
}
