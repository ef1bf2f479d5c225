use std::collections::HashMap;
use std::sync::Arc;

use super::rule::Rule;

/// The rules of a service by their paths, and whether limiting is enabled.
///
/// A path without a rule is not limited. While limiting is disabled, no path is.
///
/// ```
/// use tidegate::{Quota, Rule, Rules};
///
/// let rules: Rules = [Rule::new("getId", [Quota::per_second(5)])?].into_iter().collect();
/// assert!(rules.get("getId").is_some());
/// assert!(rules.get("healthz").is_none());
/// assert!(rules.enabled(false).get("getId").is_none());
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: HashMap<Arc<str>, Arc<Rule>>,
    disabled: bool,
}

impl Rules {
    /// Switches all limiting on or off. Default: on.
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.disabled = !enabled;
        self
    }

    /// Whether limiting is switched on.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        !self.disabled
    }

    /// The rule of this path; `None` if it has none or limiting is disabled.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Arc<Rule>> {
        match self.disabled {
            true => None,
            false => self.rules.get(path),
        }
    }

    /// The rule of this path, also while limiting is disabled.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<Rule>> {
        self.rules.get(path)
    }

    /// Whether there is a rule for this path, also while limiting is disabled.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// All rules in alphabetical order of their paths, even while limiting is disabled.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let mut rules: Vec<_> = self.rules.values().collect();
        rules.sort_unstable_by(|a, b| a.path().cmp(b.path()));
        rules.into_iter()
    }

    /// Adds a rule. It replaces an earlier rule of the same path.
    pub fn insert(&mut self, rule: Rule) {
        self.rules.insert(rule.path().into(), Arc::new(rule));
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut all = Self::default();
        rules.into_iter().for_each(|rule| all.insert(rule));
        all
    }
}
