use std::sync::Arc;

use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::key::Key;
use crate::quota::Quota;
use crate::rule::{CountName, Rule};

/// One question to a store: may this key spend this cost under this rule?
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{Key, Quota, Rule, Take};
///
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
/// let take = Take::new(rule, Key::from("alice")).with_cost(4);
/// assert_eq!((take.cost(), take.key().as_str()), (4, "alice"));
/// assert_eq!(take.quotas(), [Quota::per_hour(10)]);
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Take {
    name: CountName,
    cost: u64,
    is_repeat: bool,
    /// Whether it is a refund for which nobody waits.
    is_unawaited: bool,
    /// What [`OpenCharges::refunds`](crate::metrics::OpenCharges) said before it was asked.
    pub(crate) refunds: u32,
    /// The earliest of the time-outs around the store; `None` if only its own counts.
    deadline: Option<Deadline>,
    /// Why the store gave no decision to an outer layer of the same request.
    failure: Option<Box<StoreError>>,
}

impl Take {
    /// A take at the rule's cost.
    #[must_use]
    pub fn new(rule: Arc<Rule>, key: Key) -> Self {
        let cost = rule.cost();
        Self::of(CountName::new(rule, key), cost)
    }

    /// A first question that no caller waits for yet.
    fn of(name: CountName, cost: u64) -> Self {
        Self {
            name,
            cost,
            is_repeat: false,
            is_unawaited: false,
            refunds: 0,
            deadline: None,
            failure: None,
        }
    }

    /// The same at another cost, in units. A cost of 0 only looks.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The same, asked again by a caller that was denied and has waited.
    ///
    /// Stores may answer repeats about one key together, and a [bound](crate::Resilient::in_flight)
    /// does not count them.
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.is_repeat = true;
        self.failure = None;
        self
    }

    /// Whether this is a waiting caller's [repeat](Take::repeat), and not a first question.
    #[must_use]
    pub const fn is_repeat(&self) -> bool {
        self.is_repeat
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &Arc<Rule> {
        &self.name.rule
    }

    /// The key that is counted.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.name.key
    }

    /// The cost, in units.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The quotas that are charged: those of the rule, which have to have room, and behind them
    /// those that [only count](Quota::only_counts), because other plans of the rule have them. A
    /// decision says nothing of the latter.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.rule().charged_quotas()
    }

    /// The name under which a store keeps the count of the rule and key: the prefix, the rule's
    /// [id](Rule::id), and the key's parts, joined by `:`. `default_prefix` is for rules that have
    /// no [prefix](Rule::prefix) of their own.
    ///
    /// Neither ids nor parts of keys hold a bare `:`, so two different counts never share a name.
    ///
    /// ```
    /// use tidegate::{Algorithm, Key, Quota, Rule, Take};
    ///
    /// let rule = Rule::new("login", [Quota::per_minute(5)])?.with_algorithm(Algorithm::Gcra);
    /// let take = Take::new(rule.into(), Key::from("alice"));
    /// assert_eq!(take.name("CurrentLimiter:"), "CurrentLimiter:login~gcra:alice");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn name(&self, default_prefix: &str) -> String {
        self.name.pieces(default_prefix).concat()
    }

    pub(crate) const fn count_name(&self) -> &CountName {
        &self.name
    }

    /// The same for a caller that waits no longer than this.
    pub(crate) fn within(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline.or_earlier(self.deadline));
        self
    }

    #[cfg(feature = "redis")]
    pub(crate) const fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Says that the store has just failed for the same request, so that the server is not asked;
    /// or that this is over.
    pub(crate) fn set_failure(&mut self, error: Option<StoreError>) {
        self.failure = error.map(Box::new);
    }

    pub(crate) fn failure(&self) -> Option<&StoreError> {
        self.failure.as_deref()
    }

    /// A first question about the same count at this cost, which no caller waits for.
    pub(crate) fn anew(&self, cost: u64) -> Self {
        Self::of(self.name.clone(), cost)
    }

    /// The same for a refund of so many units, for which nobody waits.
    pub(crate) fn unawaited(&self, units: u64) -> Self {
        let mut take = self.anew(units);
        take.is_unawaited = true;
        take
    }

    pub(crate) const fn is_unawaited(&self) -> bool {
        self.is_unawaited
    }

    /// The same question under another rule.
    pub(crate) fn under(&self, rule: Arc<Rule>) -> Self {
        let mut take = self.clone();
        take.name.rule = rule;
        take
    }

    pub(crate) fn into_rule(self) -> Arc<Rule> {
        self.name.rule
    }

    pub(crate) fn into_key(self) -> Key {
        self.name.key
    }
}
