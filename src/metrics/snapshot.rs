use super::rule_snapshot::RuleSnapshot;

/// What the layers of [`Limits`](crate::Limits) have counted since they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) rules: Vec<RuleSnapshot>,
    pub(crate) unmatched: u64,
}

impl Snapshot {
    /// The rules that a layer was made for, in alphabetical order of their paths. Rules that no
    /// layer uses are not among them, nor are rules that were removed.
    #[must_use]
    pub fn rules(&self) -> &[RuleSnapshot] {
        &self.rules
    }

    /// The rule of this path; `None` if there is none, or no layer was made for it.
    #[must_use]
    pub fn rule(&self, path: &str) -> Option<&RuleSnapshot> {
        let at = self.rules.binary_search_by(|rule| rule.path().cmp(path));
        at.ok().map(|at| &self.rules[at])
    }

    /// Requests that no rule matched: they passed without being limited. Those of a rule that is
    /// switched off are not among them.
    #[must_use]
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }
}
