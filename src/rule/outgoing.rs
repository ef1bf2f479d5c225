use std::time::Duration;

use super::rule::Rule;
use super::rule_error::RuleError;
use crate::quota::Quota;

impl Rule {
    /// The default of [`with_hold_at_most`](Self::with_hold_at_most): an hour.
    pub const DEFAULT_HOLD_AT_MOST: Duration = Duration::from_secs(3_600);

    /// For calls of this service to a partner: the partner's answers may
    /// [hold](crate::Limits::hold) a key, in all processes that share the store. See
    /// [`Limits::outgoing`](crate::Limits::outgoing).
    ///
    /// The store looks whether the key is held in the call that decides a take, so other rules pay
    /// nothing for it. Such a rule has one subject, no
    /// [requests at a time](Self::with_max_concurrent) and no [lease](Self::with_lease).
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?;
    /// assert!(rule.is_outgoing());
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule has several subjects, permits or a lease.
    pub fn with_outgoing(self) -> Result<Self, RuleError> {
        let at_most = Self::DEFAULT_HOLD_AT_MOST;
        self.with(|it| it.hold_at_most = Some(at_most))
            .checked_outgoing()
    }

    /// How long a partner's answer holds a key of an [outgoing](Self::with_outgoing) rule at most:
    /// what is longer is cut, and the log says so once. It is about later answers. More than ten
    /// years are ten years. Default: 1 hour.
    #[must_use]
    pub fn with_hold_at_most(self, time: Duration) -> Self {
        let time = time.min(Quota::MAX_WINDOW);
        self.with(|it| it.hold_at_most = it.hold_at_most.map(|_| time))
    }

    /// Whether a partner's answers may hold its keys.
    #[must_use]
    pub const fn is_outgoing(&self) -> bool {
        self.settings.hold_at_most.is_some()
    }

    /// How long a partner's answer [may hold](Self::with_hold_at_most) a key; zero under a rule
    /// that is not outgoing.
    #[must_use]
    pub fn hold_at_most(&self) -> Duration {
        self.settings.hold_at_most.unwrap_or_default()
    }

    /// An outgoing rule with what it cannot have is an error.
    pub(super) fn checked_outgoing(self) -> Result<Self, RuleError> {
        match () {
            () if !self.is_outgoing() => Ok(self),
            () if self.is_joint() => Err(RuleError::OutgoingSubjects),
            () if self.lease().is_some() => Err(RuleError::OutgoingLease),
            () => Ok(self),
        }
    }
}
