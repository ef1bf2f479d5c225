use std::sync::Arc;

use super::plans::Chosen;
use super::policy::Policy;
use super::rule::Rule;
use super::rule_error::RuleError;
use crate::key::{Everyone, KeyExtractor};
use crate::question::RuleCounts;

/// The most subjects of a rule.
pub(super) const MAX_SUBJECTS: usize = 8;

/// What quotas count: a key with a name, such as the user, the address, or everyone.
///
/// A rule of several subjects is decided as one: a request that does not fit into some quota of
/// some subject is denied, and charged nowhere. See [`Rule::joint`].
#[derive(Clone)]
pub struct Subject {
    name: Arc<str>,
    /// `None`: the key that a rule of one subject would have.
    key: Option<Arc<dyn KeyExtractor>>,
    may_be_absent: bool,
    policies: Vec<Policy>,
}

impl Subject {
    /// A subject with this key. It has no quota yet. The name is a part of the names of its keys in
    /// a store.
    #[must_use]
    pub fn new(name: &str, key: impl KeyExtractor) -> Self {
        Self::with_key(name, Some(Arc::new(key)))
    }

    /// `None`: the key of the layer, of the rule, or the default of `Limits`.
    pub(crate) fn with_key(name: &str, key: Option<Arc<dyn KeyExtractor>>) -> Self {
        Self {
            name: name.into(),
            key,
            may_be_absent: false,
            policies: Vec::new(),
        }
    }

    /// Adds a quota, or a [`Policy`]: a quota with a name, with a cost of its own, or that clients
    /// are not told of. A rule has at most 16.
    #[must_use]
    pub fn limit(mut self, quota: impl Into<Policy>) -> Self {
        self.policies.push(quota.into().with_subject(&self.name));
        self
    }

    /// A request without the key is not counted here: the other subjects decide. One subject at
    /// least has to be in every request. Default: such a request is answered with a 400.
    #[must_use]
    pub fn skip_absent(mut self) -> Self {
        self.may_be_absent = true;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(crate) const fn key(&self) -> Option<&Arc<dyn KeyExtractor>> {
        self.key.as_ref()
    }

    /// Whether it has one key, that of [`Everyone`](crate::key::Everyone).
    pub(crate) fn is_everyone(&self) -> bool {
        self.key
            .as_ref()
            .is_some_and(|it| it.mark() == Everyone.mark())
    }

    pub(crate) const fn may_be_absent(&self) -> bool {
        self.may_be_absent
    }
}

crate::named::debug_fields!(Subject: name, may_be_absent);

impl Rule {
    /// A rule of 1 to 8 subjects. A request is decided for all of them together, by one clock and
    /// in one call: it is charged in each, or denied and charged in none. A denial says when the
    /// last of the quotas that deny has room again.
    ///
    /// ```
    /// use tidegate::key::{Bearer, Everyone};
    /// use tidegate::rule::Subject;
    /// use tidegate::{PeerIp, Quota, Rule};
    ///
    /// let rule = Rule::joint("api", [
    ///     Subject::new("user", Bearer).limit(Quota::per_second(10)),
    ///     Subject::new("address", PeerIp).limit(Quota::per_minute(100)),
    ///     Subject::new("everyone", Everyone).limit(Quota::per_second(5_000)),
    /// ])?;
    /// assert_eq!(rule.policies()[1].subject(), Some("address"));
    /// assert_eq!(rule.policies()[1].name(), "api-address");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// The key of a count in a store is the prefix, the rule's id in braces, the subject's name,
    /// and the subject's key: `CurrentLimiter:{api}:user:alice`. So all keys of the rule lie on one
    /// master of a cluster. A quota with a [cost of its own](Policy::with_cost) has counts of its
    /// own, as `CurrentLimiter:{api}:user~1:alice`. Which subjects there are decides about these
    /// names: a subject that gets another name begins anew. A rule of one subject, and without such
    /// costs, is as one that [`Rule::new`] makes.
    ///
    /// The quotas of a [plan](Self::with_plan) say [of which subject](Policy::with_subject) they are.
    /// Subjects that a plan does not name keep the rule's quotas.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the path is empty; if there are no subjects or more than 8; if two have the
    /// same name, one has no name or no quota, or each may be absent; if there are more than 16
    /// quotas, or two have the same name; if a quota has a cost of 0.
    pub fn joint(
        path: &str,
        subjects: impl IntoIterator<Item = Subject>,
    ) -> Result<Self, RuleError> {
        let subjects: Vec<_> = subjects.into_iter().collect();
        if !(1..=MAX_SUBJECTS).contains(&subjects.len()) {
            return Err(RuleError::NumberOfSubjects(subjects.len()));
        }
        for (at, Subject { name, policies, .. }) in subjects.iter().enumerate() {
            if name.is_empty() {
                return Err(RuleError::EmptySubject);
            }
            if subjects[..at].iter().any(|other| other.name == *name) {
                return Err(RuleError::SameSubject(name.to_string()));
            }
            if policies.is_empty() {
                return Err(RuleError::NoQuotaOfSubject(name.to_string()));
            }
        }
        if subjects.iter().all(|subject| subject.may_be_absent) {
            return Err(RuleError::NoCertainSubject);
        }
        match &subjects[..] {
            [only] if only.policies.iter().all(|policy| policy.cost().is_none()) => {
                let policies = only.policies.iter().cloned().map(Policy::without_subject);
                let rule = Self::with_policies(path, policies)?;
                let (name, key) = (Some(Arc::clone(&only.name)), only.key.clone());
                Ok(rule.with(|it| (it.key, it.only_subject) = (key, name)))
            }
            _ => {
                let policies = subjects.iter().flat_map(|it| it.policies.iter().cloned());
                let policies = policies.collect();
                Self::of_subjects(path, subjects.into(), policies)
            }
        }
    }

    /// The subjects of a [joint](Self::joint) rule; empty for a rule of one.
    #[must_use]
    pub fn subjects(&self) -> &[Subject] {
        &self.settings.subjects
    }

    /// What a store keeps: a count for each subject of a joint rule and each cost, and for permits.
    #[inline]
    pub(crate) fn counts(&self) -> &Arc<RuleCounts> {
        &self.resolved().counts
    }

    /// The ids that the counts of the rule and of its plans have in a store.
    pub(super) fn ids_of_counts(&self) -> Vec<String> {
        let settings = &self.settings;
        match self.choice.chosen {
            Chosen::Own => settings.names_of_counts(settings.given_policies(), self.id()),
            Chosen::Plan(_) | Chosen::Value(_) => {
                settings.names_of_counts(self.policies(), self.id())
            }
        }
    }

    /// Whether it holds keys under other names than the rule of before, so that these are free.
    pub(super) fn ends_holds_of(&self, old: Option<&Arc<Self>>) -> bool {
        let rules = [old.map(Arc::as_ref), Some(self)].map(|it| it.filter(|it| !it.is_shadow()));
        let held = rules.map(|it| it?.counts().list.iter().find(|it| it.spec.may_be_held()));
        matches!(held, [Some(old), Some(new)] if old.names != new.names)
    }

    /// The name of the subject of a rule that has one; `None` if it has no name.
    pub(crate) fn only_subject(&self) -> Option<&str> {
        self.settings.only_subject.as_deref()
    }

    /// The place of the subject with this name.
    pub(crate) fn place_of_subject(&self, name: &str) -> Option<usize> {
        self.settings.place_of(Some(name))
    }
}
