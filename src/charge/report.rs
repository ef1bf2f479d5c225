//! Reports that a request under a lock-out has failed or succeeded.

use std::mem::replace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::charge::Charge;
use super::charges::Charges;
use crate::deadline::Deadline;
use crate::decision::{Receipt, Source};
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;
use crate::log_on_change::LogOnChange;
use crate::question::{Ask, Change};
use crate::store::StoreFuture;
use crate::sync::lock;
use crate::trace;

/// Log failures that did not reach the store, and failures of requests without a key.
static UNSENT: LazyLock<LogOnChange> = LazyLock::new(LogOnChange::default);
static NO_KEY: LazyLock<LogOnChange> = LazyLock::new(LogOnChange::default);

/// The pause before a report is sent again, and the longest addition to it.
const PAUSE: Duration = Duration::from_millis(200);
const MAX_JITTER: Duration = Duration::from_millis(100);

/// The report to a store that the request of a charge has failed or succeeded.
#[derive(Debug)]
pub(super) struct OutcomeReport {
    pub(super) charge: Charge,
    change: Change,
    /// When it was told.
    since: Instant,
}

/// How many failures a key has left before it is locked out, or until when it is:
/// [`Charge::tell_failure`] returns it.
///
/// ```
/// use tidegate::store::Attempts;
///
/// assert_ne!(Attempts::Left(1), Attempts::Left(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempts {
    /// After so many more failures, 1 or more, it is [locked out](crate::Rule::with_lockout).
    Left(u64),
    /// It is locked out.
    LockedOut {
        /// Until when, by the clock of this process.
        until: SystemTime,
    },
}

impl Charge {
    /// Says that the request has failed, such as a login with a wrong password: after so many
    /// failures its key is [locked out](crate::Rule::with_lockout). The store is told in the
    /// background, again until it answers, also if the request is dropped; before a refusal that is
    /// delayed, say it first. What is said first of a charge counts, also before the outcome of the
    /// response, and clones are one charge. Under a rule without a lock-out it does nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::rule::Lockout;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let hour = Duration::from_secs(3_600);
    /// let lockout = Lockout::after(2).hold([hour]).on([] as [&str; 0]);
    /// let login = Rule::new("login", [Quota::per_minute(10)])?.with_lockout(lockout)?;
    /// let limits = Limits::new([login]);
    /// for _ in 0..2 {
    ///     let admitted = limits.check("login", "alice").await?;
    ///     admitted.charge.expect("it was charged").failed();
    /// }
    /// let refused = limits.check("login", "alice").await.unwrap_err();
    /// assert!(refused.decision().is_some_and(|it| it.is_locked_out()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn failed(&self) {
        let id = next_id();
        let late = Duration::ZERO;
        self.ended(|receipt| Change::Failed { receipt, id, late });
    }

    /// Says that the request has [failed](Self::failed), and asks how many failures are left until
    /// its key is locked out. Said in both ways, and by the response, it counts once. `None` under
    /// a rule without a lock-out.
    ///
    /// Dropped at its await, or after an error, it has said so nevertheless: the store is told
    /// again in the background. A failure that is still on its way is not in the number.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::rule::Lockout;
    /// use tidegate::store::Attempts;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lockout = Lockout::after(5).hold([Duration::from_secs(900)]).on(["401"]);
    /// let login = Rule::new("login", [Quota::per_minute(10)])?.with_lockout(lockout)?;
    /// let admitted = Limits::new([login]).check("login", "alice").await?;
    /// let charge = admitted.charge.expect("it was charged");
    /// assert_eq!(charge.tell_failure().await?, Some(Attempts::Left(4)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer in time, or does not count failures.
    pub async fn tell_failure(&self) -> Result<Option<Attempts>, StoreError> {
        self.failed();
        let (take, store) = (self.take(), self.store());
        let count = take.lockout_count();
        if !count.is_some_and(|it| it.name_in_store().has_key()) {
            return Ok(None);
        }
        let ask = take.first_question(take.cost());
        let left = Change::AskAttempts(self.receipt());
        let left = store.change(&ask, &left).await?;
        if left > 0 {
            return Ok(Some(Attempts::Left(left)));
        }
        let look = store.take(&ask.looking()).await?;
        let until = after_now(look.retry_after().unwrap_or_default());
        Ok(Some(Attempts::LockedOut { until }))
    }

    /// Says that the request has succeeded: earlier failures of its key count no more, and the
    /// next hold is a first one. A hold stays. See [`failed`](Self::failed).
    pub fn succeeded(&self) {
        self.ended(Change::Succeeded);
    }

    /// Reports the outcome to the store, unless one was reported before, or a success would end
    /// nothing.
    fn ended(&self, change: impl FnOnce(Receipt) -> Change) {
        let change = change(self.receipt());
        let is_needed = !matches!(change, Change::Succeeded(_)) || self.decision().has_failures;
        match self.take().lockout_count() {
            Some(_) if replace(&mut lock(&self.inner.state).is_reported, true) || !is_needed => {}
            Some(count) if count.name_in_store().has_key() => {
                let mut charge = self.clone();
                charge.stop_keeping_open();
                let state = self.inner.path.as_ref();
                if let Some(state) = state.filter(|_| matches!(change, Change::Failed { .. })) {
                    state.counters.failures.add(1);
                }
                self.inner.refunds.report(OutcomeReport {
                    charge,
                    change,
                    since: Instant::now(),
                });
            }
            Some(_) if NO_KEY.failed() => {
                let path = self.take().rule().path();
                trace::event!(warn: path, "failures of requests without a key lock nobody out: give the rule or its layer a key");
            }
            _ => {}
        }
    }
}

impl Charges {
    /// Says of each charge that the request has [failed](Charge::failed), for rules that
    /// [lock out](crate::Rule::with_lockout).
    ///
    /// ```
    /// use tidegate::store::Charges;
    ///
    /// async fn login(charges: Charges) -> &'static str {
    ///     if !is_right().await {
    ///         charges.of("login").failed();
    ///         return "the name or the password is wrong";
    ///     }
    ///     charges.of("login").succeeded();
    ///     "welcome"
    /// }
    /// # async fn is_right() -> bool { true }
    /// # let _ = login;
    /// ```
    pub fn failed(&self) {
        self.iter().for_each(Charge::failed);
    }

    /// Says of each charge that the request has [succeeded](Charge::succeeded).
    pub fn succeeded(&self) {
        self.iter().for_each(Charge::succeeded);
    }
}

impl OutcomeReport {
    /// Sends the report to the store, which has `bound` to answer.
    pub(super) fn ask(&self, bound: Duration) -> StoreFuture<u64> {
        let take = self.charge.take();
        let ask = take.first_question(take.cost()).unawaited(bound);
        let mut change = self.change.clone();
        if let Change::Failed { late, .. } = &mut change {
            *late = self.since.elapsed();
        }
        self.charge.store().change(&ask, &change)
    }

    /// Waits for the answer, and sends the report again until the store answers, or until the store
    /// may have forgotten an earlier report, and would count the failure twice.
    pub(super) async fn send_until_answered(self, mut answer: StoreFuture<u64>) {
        let within = self.charge.take().lockout().map_or(0, |it| it.within);
        let mut bound = Ask::PATIENCE;
        loop {
            match Deadline::after(bound).wait_for(answer).await {
                Some(Ok(step)) => return self.answered(step),
                Some(Err(error)) if self.is_final(&error) => return,
                _ => {}
            }
            sleep(PAUSE + jitter::up_to(MAX_JITTER)).await;
            let left = Duration::from_micros(within).saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return self.is_lost();
            }
            bound = left.min(Ask::PATIENCE);
            answer = self.ask(bound);
        }
    }

    /// Whether the report is not sent again after this error.
    fn is_final(&self, error: &StoreError) -> bool {
        let is_final = error.kind() == StoreErrorKind::Configuration;
        if UNSENT.failed() {
            let (path, error) = (self.charge.take().rule().path(), error.to_string());
            trace::event!(warn: path, error, is_final,
                "failures stay in this process until the store answers");
        }
        is_final
    }

    #[cold]
    pub(super) fn is_lost(&self) {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let lost = LOST.fetch_add(1, Ordering::Relaxed) + 1;
        // A line for each would flood the log.
        if lost.is_power_of_two() {
            let path = self.charge.take().rule().path();
            trace::event!(warn: path, lost, "failures are lost");
        }
    }

    /// Logs a hold that the failure has begun, and calls the callback.
    pub(super) fn answered(&self, step: u64) {
        let path = self.charge.take().rule().path();
        // A fallback's own count is no answer of the store.
        if self.charge.decision().source() != Source::Fallback && UNSENT.worked() {
            trace::event!(info: path, "failures are counted again");
        }
        let Some(lockout) = self.charge.take().lockout().filter(|_| step > 0) else {
            return;
        };
        let take = self.charge.take();
        let until = after_now(Duration::from_micros(lockout.hold(step)));
        let state = self.charge.inner.path.as_ref();
        if let Some((listeners, state)) = self.charge.inner.listeners.as_ref().zip(state) {
            listeners.locked_out(take, state, step, until);
        }
        let key = take.lockout_key();
        if let Some(state) = state {
            state.counters.numbers.lockouts.add(1);
        }
        let name = Arc::clone(take.rule().shared_path());
        let say_more = move |keys: u64| {
            let path = &*name;
            trace::event!(warn: path, keys, "more keys are locked out");
        };
        if state.is_none_or(|it| it.counters.lockout_lines.may_write(say_more)) {
            let named = state.and_then(|it| it.owner.get()?.name(path, key.as_str()));
            let key = named.unwrap_or_else(|| key.hashed().to_string());
            let (shadow, until) = (take.in_shadow(), trace::date(until));
            trace::event!(warn: path, key, step, until, shadow, "a key is locked out");
        }
    }
}

/// The time of this process's clock after this duration.
fn after_now(time: Duration) -> SystemTime {
    let now = SystemTime::now();
    now.checked_add(time).unwrap_or(now)
}

/// An id that no other failure has.
fn next_id() -> u64 {
    static FIRST: LazyLock<u64> = LazyLock::new(|| fastrand::u64(..1 << 51));
    static LAST: AtomicU64 = AtomicU64::new(0);
    *FIRST + 1 + LAST.fetch_add(1, Ordering::Relaxed)
}
