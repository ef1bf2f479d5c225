use std::sync::Arc;

use crate::key::Key;
use crate::quota::Quota;
use crate::rule::Rule;

/// One question to a store: may this key spend this cost under this rule?
#[derive(Debug, Clone)]
pub struct Take {
    rule: Arc<Rule>,
    key: Key,
    cost: u64,
    is_repeat: bool,
}

impl Take {
    /// A take at the rule's cost.
    #[must_use]
    pub fn new(rule: Arc<Rule>, key: Key) -> Self {
        let cost = rule.cost();
        Self {
            rule,
            key,
            cost,
            is_repeat: false,
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
    /// Stores may answer repeats about one key together, and [`InFlight`](crate::store::InFlight)
    /// does not count them.
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.is_repeat = true;
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
        &self.rule
    }

    /// The key that is counted.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The cost, in units.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The quotas that have to have room.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.rule.quotas()
    }

    /// The same question under another rule.
    pub(crate) fn under(&self, rule: Arc<Rule>) -> Self {
        let mut take = self.clone();
        take.rule = rule;
        take
    }

    pub(crate) fn into_rule(self) -> Arc<Rule> {
        self.rule
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }
}
