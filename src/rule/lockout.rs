//! After how many failures a key is locked out.

use std::sync::Arc;
use std::time::Duration;

use super::outcomes::Outcomes;
use super::policy::Policy;
use super::rule::Rule;
use super::rule_error::RuleError;
use super::settings::RuleSettings;
use crate::algorithm::Algorithm;
use crate::algorithm::lockout::LockoutSpec;
use crate::algorithm::spec::Holding;
use crate::key::{Everyone, KeyExtractor};
use crate::quota::Quota;

/// Holds a key after so many failures, longer each time: see [`Rule::with_lockout`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::rule::Lockout;
/// use tidegate::{PeerIp, Quota, Rule};
///
/// let minutes = |minutes| Duration::from_secs(60 * minutes);
/// let lockout = Lockout::after(5)
///     .within(minutes(15))
///     .hold([minutes(15), minutes(60), minutes(24 * 60)])
///     .on(["401"]);
/// let login = Rule::new("login", [Quota::per_minute(10)])?.with_key(PeerIp);
/// let login = login.with_lockout(lockout)?;
/// # let _ = login;
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lockout {
    after: u32,
    within: Duration,
    holds: Vec<Duration>,
    on: Option<Vec<String>>,
    reset_on: Vec<String>,
    subject: Option<Arc<str>>,
}

/// A lock-out that makes sense.
#[derive(Debug)]
pub(super) struct CheckedLockout {
    spec: Arc<LockoutSpec>,
    on: Outcomes,
    reset_on: Outcomes,
    subject: Option<Arc<str>>,
}

impl Lockout {
    /// The most failures that may be counted.
    pub const MAX_AFTER: u32 = 100;

    /// After so many failures of a key, 1 to 100.
    #[must_use]
    pub const fn after(failures: u32) -> Self {
        Self {
            after: failures,
            within: Duration::from_secs(15 * 60),
            holds: Vec::new(),
            on: None,
            reset_on: Vec::new(),
            subject: None,
        }
    }

    /// Within which time the requests came that failed, 1 s to ten years: in any such span, by the
    /// store's clock. Default: 15 minutes.
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// For how long the key is held the first time, the second time, and so on, 1 s to ten years
    /// each; the last one counts for all further times. A day after the end of the last hold, and
    /// after a success, the next time is a first one. At least one is required.
    #[must_use]
    pub fn hold(mut self, times: impl IntoIterator<Item = Duration>) -> Self {
        self.holds = times.into_iter().collect();
        self
    }

    /// Which responses are failures, as in [`Rule::with_refund_on`]: a class such as `"4xx"`, a
    /// status such as `"401"`, a gRPC status such as `"grpc-16"`, or `"error"`. It has to be said:
    /// a form answers a wrong password with a 200, and a 401 of an expired token is none. It may be
    /// empty, if code says [`Charges::failed`](crate::store::Charges::failed).
    #[must_use]
    pub fn on<Text: Into<String>>(mut self, outcomes: impl IntoIterator<Item = Text>) -> Self {
        self.on = Some(outcomes.into_iter().map(Into::into).collect());
        self
    }

    /// Which responses are successes. Default: none, since a page that is shown, or a login of the
    /// attacker under the same address, would end failures as well.
    #[must_use]
    pub fn reset_on<Text: Into<String>>(
        mut self,
        outcomes: impl IntoIterator<Item = Text>,
    ) -> Self {
        self.reset_on = outcomes.into_iter().map(Into::into).collect();
        self
    }

    /// Which [subject](super::Subject) of a [joint](Rule::joint) rule is held, which has to say it.
    /// Not one that is everyone.
    #[must_use]
    pub fn subject(mut self, name: &str) -> Self {
        self.subject = Some(name.into());
        self
    }

    fn checked(self) -> Result<CheckedLockout, RuleError> {
        const RANGE: std::ops::RangeInclusive<Duration> =
            Duration::from_secs(1)..=Quota::MAX_WINDOW;
        let mut times = self.holds.iter().chain([&self.within]);
        let on = self.on.as_deref();
        let mut outcomes = on.iter().copied().chain([&*self.reset_on]).flatten();
        let wrong = match () {
            () if !(1..=Self::MAX_AFTER).contains(&self.after) => {
                "a lock-out after 1 to 100 failures was expected"
            }
            () if self.holds.is_empty() => "a lock-out without hold, expected such as 15 minutes",
            () if !times.all(|it| RANGE.contains(it)) => {
                "within and hold of a lock-out, expected 1 s to ten years"
            }
            () if on.is_none() => {
                "a lock-out without on, expected which answers are failures, such as \"401\"; \
                 an empty list if code says it"
            }
            () if outcomes.any(|it| it == "denied") => "what is denied is no failure",
            () => "",
        };
        let lists = [on.unwrap_or_default(), &self.reset_on];
        let [on, reset_on] = lists.map(|list| Outcomes::of_lockout(list));
        let (on, reset_on) = (on?, reset_on?);
        let wrong = match wrong {
            "" if on.overlap(&reset_on) => "an answer is in on and in reset-on, expected one",
            wrong => wrong,
        };
        if !wrong.is_empty() {
            return Err(lockout_error(wrong));
        }
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let spec = Arc::new(LockoutSpec {
            after: self.after as usize,
            within: micros(&self.within),
            holds: self.holds.iter().map(micros).collect(),
        });
        let subject = self.subject;
        Ok(CheckedLockout {
            spec,
            on,
            reset_on,
            subject,
        })
    }
}

impl CheckedLockout {
    /// Whether a quota lets so many requests pass within the time that they could be held.
    fn is_reached_by(&self, policy: &Policy, algorithm: Algorithm, cost: u64) -> bool {
        let (quota, within) = (policy.quota(), self.spec.within);
        let cost = u128::from(policy.cost().unwrap_or(cost).max(1));
        let max = u128::from(quota.max());
        let (window, within) = (u128::from(quota.window_micros()), u128::from(within));
        let units = match algorithm {
            Algorithm::Gcra => u128::from(quota.burst()) + max * within / window,
            _ => max * (within / window + 1),
        };
        policy.is_concurrent() || units / cost >= self.spec.after as u128
    }
}

impl Rule {
    /// Holds a key after so many failures: its requests are denied at once, as
    /// [`LockedOut`](crate::decision::Verdict::LockedOut), with a 429 that says until when, in all
    /// processes that share the store.
    ///
    /// What a failure is, says [`Lockout::on`] by the response, or code by
    /// [`Charges::failed`](crate::store::Charges::failed). Each counts once, by the store's clock, at
    /// the instant at which its request was admitted. Failures of requests that were admitted before
    /// the last hold, or before the last [success](Lockout::reset_on), count nothing: fifty guesses
    /// side by side are one episode. How many guesses run side by side is bound by the quotas, of
    /// which each has to let so many requests pass.
    ///
    /// A request that is dropped before its response counts nothing, and stays charged; code that
    /// delays a refusal says `failed()` first. While the store gives no answer, a failure is asked
    /// again until it is too old to count; what a [fallback](crate::Resilient::fallback) admits
    /// counts in its process. A process that is killed takes with it what it has not told yet.
    ///
    /// [`Limits::reset`](crate::Limits::reset) ends failures, hold and steps. An operator who lets a
    /// key through admits it while its hold runs on. A [shadow rule](Self::into_shadow) counts,
    /// and denies nobody. Without this setting, holds are ignored at once.
    ///
    /// # Errors
    ///
    /// [`RuleError`] that says what does not make sense, or what it cannot stand beside.
    pub fn with_lockout(self, lockout: Lockout) -> Result<Self, RuleError> {
        let lockout = Arc::new(lockout.checked()?);
        let rule = self.with(|it| it.lockout = Some(lockout));
        rule.settings.check_lockout(&rule.settings.policies)?;
        rule.with_plans(std::iter::empty::<(&str, _)>())
    }

    /// Which outcomes are failures, and which are successes; `None` if neither counts.
    pub(crate) fn lockout_outcomes(&self) -> Option<[&Outcomes; 2]> {
        let lockout = self.settings.lockout.as_ref()?;
        Some([&lockout.on, &lockout.reset_on])
    }
}

impl RuleSettings {
    /// What may hold the keys of the count of this subject, with this cost of its own.
    pub(super) fn holding(&self, subject: Option<usize>, cost: Option<u64>) -> Holding {
        match &self.lockout {
            Some(lockout) if self.is_locked(lockout, subject, cost) => {
                Holding::Failures(Arc::clone(&lockout.spec))
            }
            _ if self.hold_at_most.is_some() => Holding::Partner,
            _ => Holding::Nothing,
        }
    }

    fn is_locked(&self, of: &CheckedLockout, subject: Option<usize>, cost: Option<u64>) -> bool {
        let held = of.subject.as_deref().and_then(|it| self.place_of(Some(it)));
        cost.is_none() && subject == held
    }

    /// Whether failures can hold a key under these policies, of the rule or of a plan.
    pub(super) fn check_lockout(&self, policies: &[Policy]) -> Result<(), RuleError> {
        let Some(lockout) = &self.lockout else {
            return Ok(());
        };
        let key = match (lockout.subject.as_deref(), &*self.subjects) {
            (None, []) => self.key.as_ref(),
            (None, _) => {
                return Err(lockout_error(
                    "several subjects, expected subject: the one that is locked out",
                ));
            }
            (name, []) if self.only_subject.as_deref() == name => self.key.as_ref(),
            (Some(name), _) => match self.place_of(Some(name)) {
                None => return Err(RuleError::UnknownSubject(name.to_owned())),
                Some(at) => self.subjects[at].key(),
            },
        };
        if key.is_some_and(|it| it.mark() == Everyone.mark()) {
            return Err(lockout_error(
                "one failing client would lock everyone out, expected a key",
            ));
        }
        let is_locked = |policy: &Policy| {
            let subject = self.place_of(policy.subject());
            !policy.is_concurrent() && self.is_locked(lockout, subject, policy.cost())
        };
        if !policies.iter().any(is_locked) {
            let message = "nothing counts the requests of the key, expected a quota at their cost";
            return Err(lockout_error(message));
        }
        let (algorithm, after) = (self.algorithm.algorithm(), lockout.spec.after);
        let is_small = |it: &&Policy| !lockout.is_reached_by(it, algorithm, self.cost);
        match policies.iter().find(is_small) {
            None => Ok(()),
            Some(policy) => {
                let quota = policy.quota();
                let message =
                    format!("{quota} admits fewer than {after} requests within that time");
                Err(RuleError::Lockout(message))
            }
        }
    }
}

pub(super) fn lockout_error(message: &str) -> RuleError {
    RuleError::Lockout(message.to_owned())
}
