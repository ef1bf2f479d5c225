use std::time::Duration;

use super::policy::Policy;
use super::quotas::check_policies;
use super::rule::Rule;
use super::rule_error::RuleError;

/// What holds for the permits of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct PermitSettings {
    pub(super) lease: Duration,
    pub(super) busy_retry: Duration,
}

impl Default for PermitSettings {
    fn default() -> Self {
        Self {
            lease: Rule::DEFAULT_PERMIT_LEASE,
            busy_retry: Rule::DEFAULT_BUSY_RETRY,
        }
    }
}

impl Rule {
    /// The default of [`with_permit_lease`](Self::with_permit_lease).
    pub const DEFAULT_PERMIT_LEASE: Duration = Duration::from_secs(15);

    /// The default of [`with_busy_retry`](Self::with_busy_retry).
    pub const DEFAULT_BUSY_RETRY: Duration = Duration::from_secs(1);

    /// Lets at most `max` requests of a key run at a time, in all processes that share the store,
    /// beside the quotas: a request is charged in each quota and gets a *permit*, or neither. A
    /// rule of nothing but permits is made of [`Policy::concurrent`].
    ///
    /// A request holds its permit until its response has ended, body included, its handler has
    /// panicked, or its client has left. A request that finds no permit is denied as
    /// [`Busy`](crate::decision::Verdict::Busy), or [waits](crate::RateLimitLayer::wait). It is not
    /// known when one comes back.
    ///
    /// The store keeps a permit for its [lease](Self::with_permit_lease), and its process renews
    /// that. Once a process cannot do so for longer than a lease, its requests go on and others are
    /// admitted in their place.
    ///
    /// A [plan](Self::with_plan) may have a max of its own among its quotas; one that has none
    /// keeps the rule's, unless it is [unlimited](super::Quotas::unlimited). The permits of a key
    /// are the same under all plans: each compares their number with its own max.
    ///
    /// In a rule of several subjects the first one is limited;
    /// [`Subject::limit`](super::Subject::limit) takes a [`Policy::concurrent`] for any of them.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("export", [Quota::per_minute(60)])?.with_max_concurrent(4)?;
    /// assert_eq!(rule.policies()[1].name(), "export-concurrent");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule has such a max already, or has 16 quotas.
    pub fn with_max_concurrent(self, max: u64) -> Result<Self, RuleError> {
        let mut policies = self.settings.policies.to_vec();
        let mut policy = Policy::concurrent(max);
        if let Some(first) = self.subjects().first() {
            policy = policy.with_subject(first.name());
        }
        policies.push(policy);
        Policy::name_all(self.path(), &mut policies);
        check_policies(&policies)?;
        let rule = self.with(|it| it.policies = policies.into());
        rule.checked_outgoing()
    }

    /// How long a permit lives without being renewed: so long after its process was killed, it is
    /// free again. A process renews a permit that is older than a third of this. 1 s to 1 day.
    /// Default: 15 s.
    ///
    /// # Errors
    ///
    /// [`RuleError::PermitLeaseLength`] if it is shorter or longer.
    pub fn with_permit_lease(self, lease: Duration) -> Result<Self, RuleError> {
        const RANGE: std::ops::RangeInclusive<Duration> =
            Duration::from_secs(1)..=Duration::from_secs(86_400);
        match RANGE.contains(&lease) {
            true => Ok(self.with(|it| it.permits.lease = lease)),
            false => Err(RuleError::PermitLeaseLength(lease)),
        }
    }

    /// What a request that finds no [permit](Self::with_max_concurrent) is told to wait: a hint,
    /// since nobody knows how long those in progress take. 1 ms to 1 day: a shorter or longer hint
    /// becomes one of these. Default: 1 s.
    #[must_use]
    pub fn with_busy_retry(self, after: Duration) -> Self {
        const RANGE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(86_400)];
        let after = after.clamp(RANGE[0], RANGE[1]);
        self.with(|it| it.permits.busy_retry = after)
    }

    /// How long a permit [lives](Self::with_permit_lease) without being renewed.
    #[must_use]
    pub fn permit_lease(&self) -> Duration {
        self.settings.permits.lease
    }

    /// What a [busy](Self::with_busy_retry) rule tells to wait.
    #[must_use]
    pub fn busy_retry(&self) -> Duration {
        self.settings.permits.busy_retry
    }

    /// Whether the rule, or a plan of it, limits the requests at a time.
    pub(crate) fn has_permits(&self) -> bool {
        self.settings.given_policies().any(Policy::is_concurrent)
    }

    /// Whether the rule, or a plan of it, charges requests.
    #[cfg(feature = "config")]
    pub(crate) fn has_quotas(&self) -> bool {
        let mut policies = self.settings.given_policies();
        policies.any(|policy| !policy.is_concurrent())
    }
}
