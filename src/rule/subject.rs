use std::fmt;
use std::sync::Arc;

use super::policy::Policy;
use super::rule::{Rule, RuleSettings};
use super::rule_error::RuleError;
use crate::algorithm::spec::{Holding, Kind, Permits, Spec, Windows};
use crate::counts::{RuleCount, RuleCounts};
use crate::decision::QuotaState;
use crate::key::{Everyone, KeyExtractor, escaped};
use crate::name::Names;
use crate::quota::Quota;

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
        self.policies.push(quota.into().of_subject(&self.name));
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

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .field("may_be_absent", &self.may_be_absent)
            .finish_non_exhaustive()
    }
}

/// What tells the counts of a rule apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CountId {
    /// Empty for that of a rule of one.
    pub(super) subject: Arc<str>,
    /// That of its quotas, if it is not that of the request.
    pub(super) cost: Option<u64>,
    /// Whether it counts the requests in progress.
    pub(super) is_permits: bool,
}

impl CountId {
    /// The id of the count of the rule with this id, as keys in a store contain it.
    fn in_store(&self, id: &str) -> String {
        let cost = self
            .cost
            .map_or_else(String::new, |cost| format!("~{cost}"));
        match &*self.subject {
            "" => format!("{id}{cost}"),
            name => format!("{{{id}}}:{}{cost}", escaped(name)),
        }
    }
}

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
    /// The quotas of a [plan](Self::with_plan) say [of which subject](Policy::of_subject) they are.
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
                let policies = only.policies.iter().cloned().map(Policy::of_no_subject);
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
        &self.computed().counts
    }

    /// The ids that the counts of the rule and of its plans have in a store.
    pub(super) fn ids_of_counts(&self) -> Vec<String> {
        let counts = self.settings.ids_of_counts(self.settings.given_policies());
        let counts = counts.iter().filter(|count| !count.is_permits);
        counts.map(|count| count.in_store(self.id())).collect()
    }

    /// The name of the subject of a rule that has one; `None` if it has no name.
    pub(crate) fn only_subject(&self) -> Option<&str> {
        self.settings.only_subject.as_deref()
    }

    /// The place of the subject with this name.
    pub(crate) fn place_of_subject(&self, name: &str) -> Option<usize> {
        let mut subjects = self.subjects().iter();
        subjects.position(|subject| subject.name() == name)
    }
}

impl RuleSettings {
    /// Whether each policy is of a subject of the rule. Only those of a joint rule have costs of
    /// their own.
    pub(super) fn check_subjects(&self, policies: &[Policy]) -> Result<(), RuleError> {
        for policy in policies {
            if let Some(name) = &policy.subject
                && self.subjects.iter().all(|it| it.name != *name)
            {
                return Err(RuleError::UnknownSubject(name.to_string()));
            }
            if policy.cost().is_some() && self.subjects.is_empty() {
                let unnamed = || policy.quota().to_string();
                let name = Some(policy.name()).filter(|name| !name.is_empty());
                let name = name.map_or_else(unnamed, str::to_owned);
                return Err(RuleError::CostWithoutSubject(name));
            }
        }
        Ok(())
    }

    /// Whether one at least of these policies limits a subject that is in every request.
    pub(super) fn has_certain_subject(&self, policies: &[Policy]) -> bool {
        let subject_of = |policy: &Policy| match &policy.subject {
            Some(name) => self.subjects.iter().find(|it| it.name == *name),
            None => self.subjects.first(),
        };
        let mut subjects = policies.iter().map(subject_of);
        subjects.any(|subject| subject.is_none_or(|it| !it.may_be_absent))
    }

    pub(super) fn id_of_count(&self, policy: &Policy) -> CountId {
        let first = || self.subjects.first().map(|subject| &subject.name);
        let name = policy.subject.as_ref().or_else(first);
        CountId {
            subject: name.map(Arc::clone).unwrap_or_default(),
            cost: policy.cost(),
            is_permits: policy.is_concurrent(),
        }
    }

    /// The counts of these policies, those of permits behind all others.
    fn ids_of_counts<'a>(&self, policies: impl IntoIterator<Item = &'a Policy>) -> Vec<CountId> {
        let mut counts = Vec::new();
        for policy in policies {
            let id = self.id_of_count(policy);
            if !counts.contains(&id) {
                counts.push(id);
            }
        }
        counts.sort_by_key(|id| id.is_permits);
        counts
    }

    /// The counts that a take is charged in, for a rule with this id.
    pub(super) fn counts(&self, id: &str, is_shadow: bool) -> Arc<RuleCounts> {
        let counts = self.ids_of_counts(&self.policies).into_iter();
        let count = |it: CountId| self.count(id, is_shadow, &it);
        let algorithm = self.algorithm.algorithm();
        let full = |it: &Policy| QuotaState::from_micros(algorithm.limit(&it.quota()), 0).hidden();
        let counts: Box<[_]> = counts.filter_map(count).collect();
        let has_own_cost = counts.iter().any(|it: &RuleCount| it.cost.is_some());
        Arc::new(RuleCounts {
            path: Arc::clone(&self.path),
            is_joint: has_own_cost || !self.subjects.is_empty(),
            counts,
            untouched: self.policies.iter().map(full).collect(),
        })
    }

    /// `None` if the rule has no such subject.
    fn count(&self, id: &str, is_shadow: bool, count: &CountId) -> Option<RuleCount> {
        let is_of_count = |at: &usize| self.id_of_count(&self.policies[*at]) == *count;
        let places: Box<[_]> = (0..self.policies.len()).filter(is_of_count).collect();
        let subject = match &*self.subjects {
            [] => 0,
            subjects => subjects.iter().position(|it| it.name == count.subject)?,
        };
        let quotas: Box<[_]> = places.iter().map(|at| self.policies[*at].quota()).collect();
        let spec = if count.is_permits {
            self.spec_of_permits(&quotas[0], is_shadow)
        } else {
            let windows = Windows::new(self.algorithm, quotas, self.raised_owed(subject));
            let cost = count.cost.unwrap_or(self.cost);
            Spec::new(Kind::Windows(windows), self.holding(count), cost)
        };
        Some(RuleCount {
            subject,
            // Each request holds one permit.
            cost: count.cost.or(count.is_permits.then_some(1)),
            names: Names::new(
                self.prefix.as_deref(),
                &count.in_store(id),
                count.is_permits,
            ),
            spec: Arc::new(spec),
            places,
        })
    }

    fn spec_of_permits(&self, max: &Quota, is_shadow: bool) -> Spec {
        let permits = Permits {
            quotas: [*max],
            is_unlimited: is_shadow,
            lease: self.permits.lease,
            busy_retry: self.permits.busy_retry,
        };
        Spec::new(Kind::Permits(permits), Holding::Nothing, 1)
    }
}
