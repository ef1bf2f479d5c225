use std::sync::Arc;

use crate::key::Key;
use crate::quota::Quota;
use crate::rule::Rule;

/// One question to a store: may this key spend this much under this rule?
#[derive(Debug, Clone)]
pub struct Take {
    rule: Arc<Rule>,
    key: Key,
    cost: u64,
}

impl Take {
    /// A take at the rule's cost.
    #[must_use]
    pub fn new(rule: Arc<Rule>, key: Key) -> Self {
        let cost = rule.request_cost();
        Self { rule, key, cost }
    }

    /// The same at another cost, in units. A cost of 0 only looks.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Who is asking.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// What it costs, in units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.cost
    }

    /// The quotas that have to have room.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.rule.quotas()
    }

    /// The same question under another rule.
    pub(super) fn under(&self, rule: Arc<Rule>) -> Self {
        Self {
            rule,
            key: self.key.clone(),
            cost: self.cost,
        }
    }

    pub(crate) fn into_rule(self) -> Arc<Rule> {
        self.rule
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }
}
