//! After how many failures a key is locked out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::outcomes::Outcomes;
use super::policy::{Per, Policy};
use super::rule::{OnError, Rule};
use super::rule_error::RuleError;
use super::settings::RuleSettings;
use crate::algorithm::Algorithm;
use crate::algorithm::lockout::LockoutSpec;
use crate::algorithm::spec::HeldBy;
use crate::key::{Everyone, KeyExtractor};
use crate::quota::Quota;
use crate::warning::{Warning, WarningKind as Kind};

/// In microseconds.
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Holds a key after so many failures, longer each time: see [`Rule::with_lockout`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::rule::Lockout;
/// use tidegate::{PeerIp, Quota, Rule};
///
/// let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
/// let lockout = Lockout::after(5)
///     .within(minutes(15))
///     .hold([minutes(15), minutes(60), minutes(24 * 60)])
///     .on(["401"]);
/// let login = Rule::new("login", [Quota::per_minute(10)])?.with_key(PeerIp);
/// let login = login.with_lockout(lockout)?;
/// # let _ = login;
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lockout {
    spec: LockoutSpec,
    /// Failures, if it was said which they are, and successes.
    outcomes: [Option<Result<Outcomes, RuleError>>; 2],
    subject: Option<Arc<str>>,
}

impl Lockout {
    /// The most failures that may be counted.
    pub const MAX_AFTER: u32 = 100;
    /// The most times of a hold.
    const MAX_HOLDS: usize = 16;

    /// After so many failures of a key, 1 to 100.
    #[must_use]
    pub fn after(failures: u32) -> Self {
        Self {
            spec: LockoutSpec {
                after: failures as usize,
                within: 900 * SECOND,
                holds: Box::default(),
                forget_after: DAY,
            },
            outcomes: [None, None],
            subject: None,
        }
    }

    /// So many failures within this time, 1 s to ten years: in any such span, by the store's clock.
    /// A failure counts from when the store is told: who sends the ends of requests late gains no
    /// more guesses than [`with_lockout`](Rule::with_lockout) says. Default: 15 minutes.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.spec.within = micros(time);
        self
    }

    /// For how long the key is held the first time, the second time, and so on, 1 s to ten years
    /// each, 1 to 16 of them; the last one counts for all further times. The next time is a first
    /// one after a success, and where the last hold is [forgotten](Self::forget_after). Default:
    /// none, an error.
    #[must_use]
    pub fn hold(mut self, times: impl IntoIterator<Item = Duration>) -> Self {
        self.spec.holds = times.into_iter().map(micros).collect();
        self
    }

    /// How long behind its end a hold is remembered, up to 30 days: another one within that time is
    /// longer, as [`hold`](Self::hold) says. Nothing: each hold is a first one. Default: a day.
    #[must_use]
    pub fn forget_after(mut self, time: Duration) -> Self {
        self.spec.forget_after = micros(time);
        self
    }

    /// Which responses are failures, as in [`Rule::with_refund_on`]: a class such as `"4xx"`, a
    /// status such as `"401"`, a gRPC status such as `"grpc-16"`, or `"error"`. It has to be said:
    /// a form answers a wrong password with a 200, and a 401 of an expired token is none. Here, a
    /// 200 without a gRPC status in its head is a 200, whatever its content type, and a gRPC status
    /// in the trailers counts when it comes. A failure goes before a [success](Self::reset_on). It
    /// may be empty, if code says [`Charges::failed`](crate::store::Charges::failed), which a
    /// shadow rule does not hear: it shows handlers no charge.
    #[must_use]
    pub fn on<'a>(mut self, outcomes: impl IntoIterator<Item = &'a str>) -> Self {
        self.outcomes[0] = Some(Outcomes::of_lockout(outcomes));
        self
    }

    /// Which responses are successes. Default: none, since a page that is shown, or a login of the
    /// attacker under the same address, would end failures as well: by an address it is a
    /// [warning](Kind::LockoutOfGuesses).
    #[must_use]
    pub fn reset_on<'a>(mut self, outcomes: impl IntoIterator<Item = &'a str>) -> Self {
        self.outcomes[1] = Some(Outcomes::of_lockout(outcomes));
        self
    }

    /// Which [subject](super::Subject) of a [joint](Rule::joint) rule is held, which has to say it
    /// where there are several. Not one that is everyone, also if that is its last
    /// [alternative](KeyExtractor::or).
    #[must_use]
    pub fn subject(mut self, name: &str) -> Self {
        self.subject = Some(name.into());
        self
    }

    /// Whether a quota lets so few requests pass within the time that none can be held.
    fn is_out_of_reach(&self, policy: &Policy, of: &RuleSettings) -> bool {
        let requests = of.requests_within(self.spec.within, policy);
        !policy.is_concurrent() && requests < self.spec.after as u128
    }

    /// How many requests of a key the quotas, or those of a plan, let pass in ten seconds, if those
    /// are far more than may fail, and may all run at a time.
    fn burst(&self, of: &RuleSettings) -> Option<u128> {
        let place = of.place_of(self.subject.as_deref());
        let is_of_key = |it: &&Policy| of.place_of(it.subject()) == place;
        let requests = |policies: &[Policy]| {
            let of_key = policies.iter().filter(is_of_key);
            of_key.map(|it| of.requests_within(10 * SECOND, it)).min()
        };
        let plans = of.plans.iter().map(|plan| of.merged(&plan.quotas));
        let of_plans = plans.filter_map(|policies| requests(&policies));
        let most = of_plans.chain(requests(&of.policies)).max();
        most.filter(|it| *it > 10 * self.spec.after as u128)
    }
}

/// Whether requests share a key, at least those that have nothing else. All of a route do, too.
pub(crate) fn may_be_everyone(key: &dyn KeyExtractor) -> bool {
    let alternatives = key.alternatives();
    [&*Everyone.mark(), "matched-path"].contains(&&*key.mark())
        || alternatives.iter().any(|it| may_be_everyone(&**it))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Rule {
    /// Holds a key after so many failures: its requests are denied at once, as
    /// [`LockedOut`](crate::decision::Verdict::LockedOut), with a 429 that says until when, in all
    /// processes that share the store.
    ///
    /// What a failure is, says [`Lockout::on`] by the response, or code by
    /// [`Charges::failed`](crate::store::Charges::failed). Each counts once, by the store's clock,
    /// from when the store is told. Failures of requests that were admitted before the last hold,
    /// or before the last [success](Lockout::reset_on) whose request found failures, count nothing
    /// (those before a success, for [`within`](Lockout::within) behind it), if they are told within
    /// 10 s: fifty guesses side by side are one episode. A request that has taken longer than 10 s
    /// fails for the next hold, also while the key is held; holds run side by side. So what passes
    /// for one hold is at most the number of failures before it, and what the quotas, of which each
    /// has to let so many requests pass, admit in 10 s: three more under 20 a minute by an even
    /// pace, and 20 more where they may come at once.
    /// [`with_max_concurrent`](Self::with_max_concurrent) bounds it further. Behind a hold that is
    /// [forgotten](Lockout::forget_after), failures of requests that were admitted before it count
    /// again.
    ///
    /// A layer with a lock-out stands outside of authentication: inside it sees no failure.
    ///
    /// A request that is dropped before its response counts nothing, and stays charged; code that
    /// delays a refusal says `failed()` first. While the store gives no answer, a failure is told
    /// again for as long as [`within`](Lockout::within), 4,096 of them in a process at a time; those
    /// beyond are lost, with a warning. So an outage of at most that time is folded into its end:
    /// what failed meanwhile counts from then. What a [fallback](crate::Resilient::fallback) admits
    /// counts in its process alone, and a hold that it begins ends with the outage; it knows the
    /// holds that its process was told of. [`OnError::Respond`](super::OnError::Respond) admits
    /// nothing. A process that is killed takes with it what it has not told yet. A rule with
    /// another algorithm, or other subjects, begins anew.
    ///
    /// [`Limits::reset`](crate::Limits::reset) ends failures, hold and steps. An operator who lets
    /// a key through admits it while its hold runs on. A [shadow rule](Self::into_shadow) counts,
    /// and denies nobody. Without this setting, holds are ignored at once.
    ///
    /// # Errors
    ///
    /// [`RuleError`] that says what does not make sense, or what it cannot stand beside.
    pub fn with_lockout(self, lockout: Lockout) -> Result<Self, RuleError> {
        let rule = self.with(|it| it.lockout = Some(Arc::new(lockout)));
        rule.settings.check_lockout(&rule.settings.policies)?;
        rule.with_plans(std::iter::empty::<(&str, _)>())
    }

    /// Whether failures count.
    pub(crate) fn counts_failures(&self) -> bool {
        self.settings.lockout.is_some()
    }

    /// Mistakes under its lock-out: of the key, which is that of the subject or else this one, and
    /// of what lets guesses through.
    pub(crate) fn warnings(&self, key: Option<&dyn KeyExtractor>) -> Vec<Warning> {
        let settings = &self.settings;
        let Some(lockout) = &settings.lockout else {
            return Vec::new();
        };
        let place = settings.place_of(lockout.subject.as_deref());
        let own = place.and_then(|at| settings.subjects[at].key());
        let (key, none) = (own.map(Arc::as_ref).or(key), HeaderMap::new());
        // An extractor of somebody else may panic.
        let of_key =
            key.and_then(|it| catch_unwind(AssertUnwindSafe(|| it.warning(&none))).ok()?);
        let opens = self.on_error() == Some(OnError::Proceed);
        let open = opens.then(|| Warning::named(Kind::LockoutFailsOpen, "on-error = \"proceed\""));
        let of_burst = |it| Warning::with_name(Kind::LockoutOfBursts, it);
        let burst = lockout.burst(settings).map(of_burst);
        let found = [of_key, open, burst].into_iter().flatten();
        let resets = self.lockout_outcomes()[1].is_some_and(Outcomes::have_status);
        // A layer tells that one, with its first request.
        let found = found.filter(|it| it.kind != Kind::WideTrust && (resets || !it.is_second));
        found.map(|it| it.about(self.path())).collect()
    }

    /// Which outcomes are failures, and which are successes.
    pub(crate) fn lockout_outcomes(&self) -> [Option<&Outcomes>; 2] {
        let lockout = self.settings.lockout.as_deref();
        [0, 1].map(|at| lockout?.outcomes[at].as_ref()?.as_ref().ok())
    }
}

impl RuleSettings {
    /// What may hold the keys of the count of this subject, with this cost of its own.
    pub(super) fn held_by(&self, subject: Option<usize>, cost: Option<u64>) -> HeldBy {
        match &self.lockout {
            Some(lockout) if self.holds_count(lockout, subject, cost) => {
                HeldBy::Failures(lockout.spec.clone().into())
            }
            _ if self.hold_at_most.is_some() && cost.is_none() => HeldBy::Partner,
            _ => HeldBy::Nobody,
        }
    }

    /// Whether a lock-out is of the count of this subject, with this cost of its own.
    fn holds_count(&self, of: &Lockout, subject: Option<usize>, cost: Option<u64>) -> bool {
        cost.is_none() && subject == self.place_of(of.subject.as_deref())
    }

    /// How many requests a quota lets pass within a time, in microseconds, or at a time.
    fn requests_within(&self, time: u64, policy: &Policy) -> u128 {
        let (quota, cost) = (policy.quota(), policy.cost().unwrap_or(self.cost).max(1));
        let [max, window, time, cost] =
            [quota.max(), quota.window_micros(), time, cost].map(u128::from);
        let windows = time.div_ceil(window);
        let within = match self.algorithm.algorithm() {
            Algorithm::Gcra => (u128::from(quota.burst()) + max * time / window) / cost,
            // Such a time may begin within a window.
            Algorithm::FixedWindow => max / cost * (windows + 1),
            Algorithm::SlidingLog | Algorithm::SlidingWindow => max / cost * windows,
        };
        if policy.is_concurrent() { max } else { within }
    }

    /// Whether failures can hold a key under these policies, of the rule or of a plan.
    pub(super) fn check_lockout(&self, policies: &[Policy]) -> Result<(), RuleError> {
        let Some(lockout) = &self.lockout else {
            return Ok(());
        };
        let [on, reset_on] = lockout.outcomes.clone().map(Option::transpose);
        let (on, reset_on) = (on?, reset_on?);
        let (spec, subject) = (&lockout.spec, lockout.subject.as_deref());
        let place = self.place_of(subject);
        let own_key = place.and_then(|at| self.subjects[at].key());
        let key = own_key.or(self.key.as_ref());
        let is_time = |time: &u64| (SECOND..=micros(Quota::MAX_WINDOW)).contains(time);
        let is_of_key = |policy: &Policy| {
            let place = self.place_of(policy.subject());
            policy.per == Per::Window && self.holds_count(lockout, place, policy.cost())
        };
        let is_small = |it: &&Policy| lockout.is_out_of_reach(it, self);
        Err(RuleError::Lockout(match () {
            () if place.is_none()
                && subject.is_some()
                && self.only_subject.as_deref() != subject =>
            {
                return Err(RuleError::UnknownSubject(
                    subject.unwrap_or_default().to_owned(),
                ));
            }
            () if !(1..=Lockout::MAX_AFTER as usize).contains(&spec.after) => {
                "a lock-out after 1 to 100 failures was expected"
            }
            () if spec.holds.is_empty() => "a lock-out without hold, expected such as 15 minutes",
            () if spec.holds.len() > Lockout::MAX_HOLDS => {
                "more than 16 times in the hold of a lock-out, expected 1 to 16"
            }
            () if !spec.holds.iter().chain([&spec.within]).all(is_time) => {
                "within and hold of a lock-out, expected 1 s to ten years"
            }
            () if spec.forget_after > 30 * DAY => {
                "forget-after of a lock-out, expected at most 30 days"
            }
            () if on.is_none() => {
                "a lock-out without on, expected which answers are failures, such as \"401\"; \
                 an empty list if code says it"
            }
            () if on
                .zip(reset_on)
                .is_some_and(|(on, reset_on)| on.overlap(&reset_on)) =>
            {
                "an answer is in on and in reset-on, expected one"
            }
            () if subject.is_none() && self.subjects.len() > 1 => {
                "several subjects, expected subject: the one that is locked out"
            }
            () if key.is_some_and(|it| may_be_everyone(&**it)) => {
                "one failing client would lock everyone out, expected a key"
            }
            () if !policies.iter().any(is_of_key) => {
                "no window counts the requests of the key, expected a quota with a window at their cost"
            }
            () => {
                let small = policies.iter().find(is_small).map(Policy::quota);
                return small.map_or(Ok(()), |it| Err(RuleError::LockoutAfter(it, spec.after)));
            }
        }))
    }
}
