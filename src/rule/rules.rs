use std::collections::HashMap;
use std::sync::Arc;

use super::answers::AnswerSettings;
use super::exemptions::Exemptions;
use super::rule::Rule;
use crate::warning::Warning;

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
    rules: HashMap<Arc<str>, Listed>,
    disabled: bool,
    /// What the rules' file says for all of them.
    file: Arc<FileSwitches>,
}

/// What a file says for all its rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileSwitches {
    pub(crate) is_shadow: bool,
    pub(crate) closes_uploads: bool,
    pub(crate) exemptions: Exemptions,
    pub(crate) answers: AnswerSettings,
}

#[derive(Debug, Clone)]
struct Listed {
    rule: Arc<Rule>,
    /// Whether this rule alone is switched off.
    is_off: bool,
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
        let listed = self.rules.get(path)?;
        (!self.disabled && !listed.is_off).then_some(&listed.rule)
    }

    /// The rule of this path, also while it is switched off.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<Rule>> {
        self.rules.get(path).map(|listed| &listed.rule)
    }

    /// Whether there is a rule for this path, also while it is switched off.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.rules.contains_key(path)
    }

    /// The number of rules, with those that are switched off.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// All rules in alphabetical order of their paths, even those that are switched off.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let rules = self.rules.values().map(|listed| &listed.rule);
        let mut rules: Vec<_> = rules.collect();
        rules.sort_unstable_by(|a, b| a.path().cmp(b.path()));
        rules.into_iter()
    }

    /// Mistakes of those in force that are seen without a request.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = Warning> {
        let in_force = self.iter().filter(|rule| self.get(rule.path()).is_some());
        in_force.flat_map(|rule| rule.warnings(rule.extractor().map(Arc::as_ref)))
    }

    /// Rules of a file that says this for all of them.
    #[cfg(feature = "config")]
    pub(crate) fn of_file(file: FileSwitches) -> Self {
        let file = Arc::new(file);
        Self {
            file,
            ..Self::default()
        }
    }

    /// Adds a rule. It replaces an earlier rule of the same path. What the file of these rules says
    /// for all rules applies to it, too, as `shadow` and `exempt`.
    pub fn insert(&mut self, rule: Rule) {
        let rule = Arc::new(rule.in_file(&self.file));
        // What is made of a rule is made now, and not by its first request.
        rule.resolved();
        let is_off = false;
        let path = Arc::clone(rule.shared_path());
        self.rules.insert(path, Listed { rule, is_off });
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
        let listed = self.rules.get_mut(path);
        listed.map(|listed| listed.is_off = true).is_some()
    }

    /// The ids of counts that begin anew with these rules: those of rules that have or had several
    /// subjects, and that had no such count in `old`. In alphabetical order.
    pub(super) fn new_counts(&self, old: &Self) -> Vec<String> {
        let pairs = self.rules.iter();
        let pairs = pairs.filter_map(|(path, new)| Some((old.find(path)?, &new.rule)));
        let has_subjects = |rule: &Rule| !rule.subjects().is_empty();
        let changed = pairs.filter(|(old, new)| has_subjects(old) || has_subjects(new));
        let of_rules = changed.flat_map(|(old, new)| {
            let old = old.ids_of_counts();
            let ids = new.ids_of_counts().into_iter();
            ids.filter(move |id| !old.contains(id))
        });
        let mut ids: Vec<_> = of_rules.collect();
        ids.sort_unstable();
        ids
    }

    /// Adds the rules of `old` that these rules lack and that are wanted, each switched on or off
    /// as it was. Returns their paths in alphabetical order.
    pub(super) fn keep_missing(
        &mut self,
        old: &Self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut paths = Vec::new();
        for (path, listed) in &old.rules {
            if is_wanted(path) && !self.contains(path) {
                self.insert(Rule::clone(&listed.rule));
                if listed.is_off {
                    self.disable(path);
                }
                paths.push(path.to_string());
            }
        }
        paths.sort_unstable();
        paths
    }
}

impl<I: IntoIterator<Item = Rule>> From<I> for Rules {
    fn from(rules: I) -> Self {
        Self::from_iter(rules)
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut all = Self::default();
        rules.into_iter().for_each(|rule| all.insert(rule));
        all
    }
}
