use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use http::HeaderValue;

use crate::algorithm::period::Period;
use crate::key::escaped;
use crate::quota::{MAX_QUOTAS, Quota, ShortWindow};

/// A quota with the name that clients see in the `RateLimit` fields.
///
/// ```
/// use tidegate::rule::Policy;
/// use tidegate::{Quota, Rule};
///
/// let rule = Rule::with_policies("login", [Policy::new("per-minute", Quota::per_minute(5))])?;
/// assert_eq!(rule.policies()[0].name(), "per-minute");
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Empty until a rule gives it one.
    name: String,
    pub(super) quota: Quota,
    /// In a rule of several subjects.
    pub(super) subject: Option<Arc<str>>,
    cost: Option<u64>,
    is_hidden: bool,
    pub(super) per: Per,
}

/// A quota's max is that of a window, of a period, or of requests at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Per {
    Window,
    /// A period of the calendar.
    Period(Period),
    /// The requests in progress.
    AtATime,
}

impl Policy {
    /// The words for the quotas of a window, and for requests at a time.
    pub(super) const KINDS: [&str; 2] = ["max-count", "max-concurrent"];

    pub(super) fn kind(&self) -> &'static str {
        Self::KINDS[usize::from(self.is_concurrent())]
    }

    /// A quota with a name. Characters of the name that a header field cannot contain are
    /// percent-encoded.
    #[must_use]
    pub fn new(name: &str, quota: Quota) -> Self {
        Self::from(quota).named(name)
    }

    /// This policy with another name. Default: the rule gives one.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = String::with_capacity(name.len());
        for char in name.chars() {
            if matches!(char, ' '..='~') && !matches!(char, '"' | '\\') {
                self.name.push(char);
            } else {
                self.name += &escaped(char.encode_utf8(&mut [0; 4]));
            }
        }
        self
    }

    /// At most so many requests at a time, in place of a quota: each holds a *permit* until its
    /// response has ended. The name is given by the rule. See
    /// [`Rule::with_max_concurrent`](crate::Rule::with_max_concurrent).
    ///
    /// ```
    /// use tidegate::Rule;
    /// use tidegate::rule::Policy;
    ///
    /// let export = Rule::with_policies("export", [Policy::concurrent(1)])?;
    /// assert!(export.policies()[0].is_concurrent());
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn concurrent(max: u64) -> Self {
        // The window has no meaning: it is the shortest one.
        let max = max.min(Quota::MAX_UNITS);
        Self {
            per: Per::AtATime,
            ..Self::from(Quota::from_micros(max, 1_000))
        }
    }

    /// At most so many units in each day, week or month of the calendar, in place of a window that
    /// moves: a budget. It begins at the period's first instant, and all of it is back at its end,
    /// by the clock of the store. More than [`Quota::MAX_UNITS`] are so many.
    ///
    /// Another max goes on with what is used; another period is another count. After a change of
    /// the time zone, or of the [day](Period::from_day) on which it begins, the running period keeps
    /// its end, and one shorter period may follow. In a plan a period without a zone has that of its
    /// rule's period, and another zone is a [`RuleError`](super::RuleError); where it begins, it may
    /// say for itself.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    /// use tidegate::rule::{Period, Policy};
    ///
    /// let budget = Policy::calendar(Period::MONTH, 10_000);
    /// let chat = Rule::with_policies("chat", [Quota::per_minute(100).into(), budget])?;
    /// assert_eq!(chat.policies()[1].name(), "chat-month");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn calendar(period: Period, max: u64) -> Self {
        let max = max.min(Quota::MAX_UNITS);
        let quota = Quota::from_micros(max, period.usual_micros());
        Self {
            per: Per::Period(period),
            ..Self::from(quota)
        }
    }

    /// A cost of its own, in place of that of the request: with 1 the quota counts requests, beside
    /// others that count tokens or bytes. It is not 0. Default: that of the request.
    ///
    /// ```
    /// use tidegate::rule::{Policy, Subject};
    /// use tidegate::key::Bearer;
    /// use tidegate::{Algorithm, Quota, Rule};
    ///
    /// let requests = Policy::from(Quota::per_minute(60)).with_cost(1);
    /// let user = Subject::new("user", Bearer).limit(Quota::per_minute(90_000));
    /// let rule = Rule::joint("chat", [user.limit(requests)])?
    ///     .with_algorithm(Algorithm::SlidingWindow)
    ///     .with_cost(1_000);
    /// assert_eq!(rule.policies()[1].name(), "chat-user-1m-cost1");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Clients are not told of it: it stands in no fields, problem documents or details of gRPC,
    /// and not in [`Decision::remaining`](crate::Decision::remaining). Metrics and the page show
    /// it. Default: they are told.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    /// For the quotas of a plan: the [subject](super::Subject) with this name is limited by it.
    /// Default: the rule's only subject, or its first.
    #[must_use]
    pub fn with_subject(mut self, name: &str) -> Self {
        self.subject = Some(name.into());
        self
    }

    pub(super) fn without_subject(mut self) -> Self {
        self.subject = None;
        self
    }

    /// Gives names to those of a path that have none. The only quota of a path is named like the
    /// path, one of several like the path and its window; that of a subject like the path, the
    /// subject, and, if the subject has several, its window, and its cost where it has one.
    pub(super) fn name_all(path: &str, policies: &mut [Self]) {
        if policies.len() > MAX_QUOTAS {
            // They are refused, and naming them takes time by the square of their number.
            return;
        }
        for at in 0..policies.len() {
            let policy = &policies[at];
            if !policy.name.is_empty() {
                continue;
            }
            let with_subject = policies.iter().filter(|it| it.subject == policy.subject);
            let is_only = with_subject.count() == 1;
            let mut name = path.to_owned();
            for part in [
                policy.subject.as_deref().map(str::to_owned),
                (!is_only).then(|| match &policy.per {
                    Per::Window => ShortWindow(&policy.quota).to_string(),
                    Per::Period(period) => period.name().to_owned(),
                    Per::AtATime => "concurrent".to_owned(),
                }),
                policy
                    .cost
                    .filter(|_| !is_only)
                    .map(|cost| format!("cost{cost}")),
            ] {
                part.into_iter().for_each(|part| name.extend(["-", &part]));
            }
            policies[at] = policy.clone().named(&name);
        }
    }

    /// The name: printable ASCII without quotes and backslashes. Empty for one that has none, until
    /// it is part of a rule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota. The window of a [calendar](Self::calendar) quota is the longest that its period
    /// has without a change of clocks.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The [subject](super::Subject) that it limits; `None` in a rule with one.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Its [own cost](Self::with_cost).
    #[must_use]
    pub const fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Whether it limits the requests [at a time](Self::concurrent): the max of its quota is their
    /// number.
    #[must_use]
    pub const fn is_concurrent(&self) -> bool {
        matches!(self.per, Per::AtATime)
    }

    /// The window; of a calendar quota the length of its period, by the host's clock.
    pub(crate) fn window(&self) -> Duration {
        let Some(period) = self.period() else {
            return self.quota.window();
        };
        let Range { start, end } = period.around(SystemTime::now());
        end.duration_since(start).unwrap_or_default()
    }

    /// The period of a [calendar](Self::calendar) quota; `None` for others.
    #[must_use]
    pub const fn period(&self) -> Option<&Period> {
        match &self.per {
            Per::Period(period) => Some(period),
            Per::Window | Per::AtATime => None,
        }
    }

    /// Whether clients are not told of it.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        self.is_hidden
    }
}

/// Its quota, such as `100 per 1m`, `10000 per month`, or `4 at a time`.
///
/// ```
/// use tidegate::Quota;
/// use tidegate::rule::Policy;
///
/// let policies = [Quota::per_minute(100).into(), Policy::concurrent(4)];
/// assert_eq!(policies.map(|it| it.to_string()), ["100 per 1m", "4 at a time"]);
/// ```
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.per {
            Per::Window => self.quota.fmt(f),
            Per::Period(period) => write!(f, "{} per {period}", self.quota.max()),
            Per::AtATime => write!(f, "{} at a time", self.quota.max()),
        }
    }
}

/// A policy without a name, which the rule gives it.
impl From<Quota> for Policy {
    fn from(quota: Quota) -> Self {
        Self {
            name: String::new(),
            quota,
            subject: None,
            cost: None,
            is_hidden: false,
            per: Per::Window,
        }
    }
}

/// Texts for clients that depend on nothing but a rule's policies. The first caller that needs one
/// writes it.
#[derive(Clone, Default)]
pub(crate) struct PolicyTexts {
    /// The field `RateLimit-Policy`.
    pub(crate) field: OnceLock<HeaderValue>,
    /// The members of a denial's document that are always the same, if there is only one quota that
    /// can deny.
    pub(crate) denial: OnceLock<String>,
}
