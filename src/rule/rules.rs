use std::collections::HashMap;
use std::sync::Arc;

use super::rule::Rule;

type RulesByPath = HashMap<Arc<str>, Arc<Rule>>;

/// The rules of a service by their paths, and whether limiting is enabled.
///
/// A path without a rule is not limited, and neither is one whose rule is
/// [switched off](Rules::disable). While limiting is disabled, no path is.
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
    rules: RulesByPath,
    /// The rules that are switched off one by one.
    switched_off: RulesByPath,
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

    /// The rule of this path; `None` if it has none, if it is switched off, or if limiting is
    /// disabled.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Arc<Rule>> {
        match self.disabled {
            true => None,
            false => self.rules.get(path),
        }
    }

    /// The rule of this path, also while it is switched off.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<Rule>> {
        self.rules.get(path).or_else(|| self.switched_off.get(path))
    }

    /// Whether there is a rule for this path, also while it is switched off.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The number of rules, with those that are switched off.
    pub(crate) fn len(&self) -> usize {
        self.rules.len() + self.switched_off.len()
    }

    /// All rules in alphabetical order of their paths, even those that are switched off.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let mut rules: Vec<_> = self.rules.values().collect();
        rules.extend(self.switched_off.values());
        rules.sort_unstable_by(|a, b| a.path().cmp(b.path()));
        rules.into_iter()
    }

    /// Adds a rule. It replaces an earlier rule of the same path.
    pub fn insert(&mut self, rule: Rule) {
        let path: Arc<str> = rule.path().into();
        self.switched_off.remove(&path);
        self.rules.insert(path, Arc::new(rule));
    }

    /// Switches the rule of this path off: its path is not limited until a rule is
    /// [inserted](Rules::insert) again. Returns whether there is such a rule.
    ///
    /// ```
    /// use tidegate::{Quota, Rule, Rules};
    ///
    /// let mut rules: Rules = [Rule::new("getId", [Quota::per_second(5)])?].into_iter().collect();
    /// assert!(rules.disable("getId"));
    /// assert!(rules.get("getId").is_none());
    /// assert_eq!(rules.iter().count(), 1);
    ///
    /// rules.insert(Rule::new("getId", [Quota::per_second(7)])?);
    /// assert!(rules.get("getId").is_some());
    /// assert_eq!(rules.iter().count(), 1);
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn disable(&mut self, path: &str) -> bool {
        if let Some((path, rule)) = self.rules.remove_entry(path) {
            self.switched_off.insert(path, rule);
        }
        self.switched_off.contains_key(path)
    }

    /// Adds the rules of `old` that these rules lack and that are wanted, each switched on or off
    /// as it was. Returns their paths in alphabetical order.
    pub(super) fn keep_missing(
        &mut self,
        old: &Self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let is_missing = |path: &str| is_wanted(path) && !self.contains(path);
        let missing = |rules: &RulesByPath| -> RulesByPath {
            let missing = rules.iter().filter(|(path, _)| is_missing(path));
            missing
                .map(|(path, rule)| (Arc::clone(path), Arc::clone(rule)))
                .collect()
        };
        let (on, off) = (missing(&old.rules), missing(&old.switched_off));
        let mut paths: Vec<_> = on
            .keys()
            .chain(off.keys())
            .map(ToString::to_string)
            .collect();
        paths.sort_unstable();
        self.rules.extend(on);
        self.switched_off.extend(off);
        paths
    }
}

impl<const NUMBER: usize> From<[Rule; NUMBER]> for Rules {
    fn from(rules: [Rule; NUMBER]) -> Self {
        rules.into_iter().collect()
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        rules.into_iter().collect()
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut all = Self::default();
        rules.into_iter().for_each(|rule| all.insert(rule));
        all
    }
}
