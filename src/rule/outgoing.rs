use std::sync::Arc;
use std::time::Duration;

use super::outcomes::Outcomes;
use super::policy::Policy;
use super::rule::Rule;
use super::rule_error::RuleError;
use super::settings::RuleSettings;
use crate::quota::Quota;

impl Rule {
    /// The default of [`with_hold_at_most`](Self::with_hold_at_most): an hour.
    pub const DEFAULT_HOLD_AT_MOST: Duration = Duration::from_secs(3_600);

    /// For calls of this service to a partner: the partner's answers may
    /// [hold](crate::Limits::hold) a key, in all processes that share the store. See
    /// [`Limits::outgoing`](crate::Limits::outgoing).
    ///
    /// The store looks whether the key is held in the call that decides a take, so other rules pay
    /// nothing for it. Such a rule has one subject, whose quotas may have [costs of their
    /// own](super::Policy::with_cost), and no [requests at a time](Self::with_max_concurrent).
    ///
    /// ```
    /// use tidegate::rule::Policy;
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?;
    /// assert!(rule.is_outgoing());
    ///
    /// // 50 requests, and 40,000 of what a call costs: tokens.
    /// let requests = Policy::from(Quota::per_minute(50)).with_cost(1);
    /// let tokens = Policy::from(Quota::per_minute(40_000));
    /// let model = Rule::with_policies("model", [requests, tokens])?.with_outgoing()?;
    /// # let _ = model;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule has several subjects, requests at a time, calendar quotas, or a
    /// lock-out, or if it or a plan of it has no quota that counts the cost of a call.
    pub fn with_outgoing(self) -> Result<Self, RuleError> {
        let at_most = Self::DEFAULT_HOLD_AT_MOST;
        self.with(|it| it.hold_at_most = Some(at_most))
            .with_plans(std::iter::empty::<(&str, _)>())
    }

    /// How long a partner's answer holds a key of an [outgoing](Self::with_outgoing) rule at most:
    /// what is longer is cut, and the log says so once. It is about later answers. More than ten
    /// years are ten years. Default: 1 hour.
    #[must_use]
    pub fn with_hold_at_most(self, time: Duration) -> Self {
        let time = time.min(Quota::MAX_WINDOW);
        self.with(|it| it.hold_at_most = it.hold_at_most.map(|_| time))
    }

    /// How long a refusal holds a key that says nothing of it, or an instant without a `Date`: at
    /// most [that](Self::with_hold_at_most). Default: 1 second.
    #[must_use]
    pub fn with_hold_untold(self, time: Duration) -> Self {
        self.with(|it| it.hold_untold = Some(time))
    }

    /// How long a refusal [without a time](Self::with_hold_untold) holds a key.
    pub(crate) fn hold_untold(&self) -> Duration {
        self.settings.hold_untold.unwrap_or(Duration::from_secs(1))
    }

    /// With which other statuses than 429 and 503 the partner refuses calls: a class such as
    /// `"5xx"`, a status such as `"403"`, or a gRPC status such as `"grpc-8"`. An answer with one
    /// holds its key for as long as its fields say, or [so long](Self::with_hold_untold); a 400, which
    /// may be a mistake of the caller, only if a field says when, or that nothing is left. It is
    /// about later answers to calls under an [outgoing](Self::with_outgoing) rule. Default: none.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("claude", [Quota::per_minute(50)])?.with_outgoing()?;
    /// let rule = rule.with_hold_on(["529"])?;
    /// assert!(rule.hold_on().eq(["529"]));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if one of them is no status of a refusal, as a success, or if there is none.
    pub fn with_hold_on<'a>(
        self,
        statuses: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, RuleError> {
        let statuses = Arc::new(Outcomes::statuses(statuses)?);
        Ok(self.with(|it| it.hold_on = Some(statuses)))
    }

    /// The statuses that [`with_hold_on`](Self::with_hold_on) was told.
    pub fn hold_on(&self) -> impl Iterator<Item = String> {
        self.refusals().into_iter().flat_map(Outcomes::texts)
    }

    /// Those statuses, to be compared with.
    pub(crate) fn refusals(&self) -> Option<&Outcomes> {
        self.settings.hold_on.as_deref()
    }

    /// Whether a partner's answers may hold its keys.
    #[must_use]
    pub fn is_outgoing(&self) -> bool {
        self.settings.hold_at_most.is_some()
    }

    /// How long a partner's answer [may hold](Self::with_hold_at_most) a key; zero under a rule
    /// that is not outgoing.
    #[must_use]
    pub fn hold_at_most(&self) -> Duration {
        self.settings.hold_at_most.unwrap_or_default()
    }

    /// Whether it, or a plan of it, has a calendar quota.
    pub(crate) fn has_calendar(&self) -> bool {
        let mut policies = self.settings.given_policies();
        policies.any(|policy| policy.period().is_some())
    }

    /// An outgoing rule with what it cannot have is an error.
    pub(super) fn checked_outgoing(self) -> Result<Self, RuleError> {
        self.settings.check_outgoing(&self.settings.policies)?;
        Ok(self)
    }
}

impl RuleSettings {
    /// Whether calls to a partner can be under these policies, of the rule or of a plan.
    pub(super) fn check_outgoing(&self, policies: &[Policy]) -> Result<(), RuleError> {
        let any = |is_it: fn(&Policy) -> bool| policies.iter().any(is_it);
        match () {
            () if self.hold_at_most.is_none() => Ok(()),
            () if self.subjects.len() > 1 => Err(RuleError::OutgoingSubjects),
            () if any(Policy::is_concurrent) => Err(RuleError::OutgoingConcurrent),
            () if any(|it| it.period().is_some()) => Err(RuleError::OutgoingCalendar),
            () if self.lockout.is_some() => Err(RuleError::Lockout(
                "a partner's answers hold the keys of outgoing calls, expected no lock-out",
            )),
            // A hold stands on the count of these, whatever plan a call has.
            () if !any(|it| it.cost().is_none()) => Err(RuleError::OutgoingCost),
            () => Ok(()),
        }
    }
}
