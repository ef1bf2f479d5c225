//! Takes of rules: which counts a request asks for under its rule, and what is decided about the
//! request when each of them is.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::spec::Windows;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::key::Key;
use crate::rule::{CountName, OnError, Rule, RuleError, SubjectCount};
use crate::store::{CountTake, Take};

impl Take {
    /// A take at the rule's cost. Under a [joint](Rule::joint) rule each subject has this key.
    #[must_use]
    pub fn new(rule: Arc<Rule>, key: Key) -> Self {
        if rule.is_joint() {
            let keys = rule
                .counted_subjects()
                .iter()
                .map(|_| Some(key.clone()))
                .collect();
            return Self::joint(rule, keys);
        }
        let cost = rule.cost();
        Self::of_key(rule, key, cost)
    }

    /// A take under a rule of one subject.
    #[inline]
    pub(crate) fn of_key(rule: Arc<Rule>, key: Key, cost: u64) -> Self {
        let subject = CountName::new(rule, key);
        let rule = &subject.rule;
        let SubjectCount { names, spec, .. } = &rule.counts()[0];
        let name = names.of(&subject.key, subject.key_hash);
        let count = CountTake::new(name, spec, cost, false);
        of(subject, None, SmallVec::from_buf([count]), cost)
    }

    /// A take under a [joint](Rule::joint) rule, at the rule's cost, with the key of each subject
    /// by its name. A subject that is not named is not counted: the others decide.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::key::{Bearer, Everyone};
    /// use tidegate::rule::Subject;
    /// use tidegate::{Key, Quota, Rule, Take};
    ///
    /// let user = Subject::new("user", Bearer).limit(Quota::per_second(10));
    /// let all = Subject::new("everyone", Everyone).limit(Quota::per_second(5_000));
    /// let rule = Arc::new(Rule::joint("api", [user, all])?);
    /// let keys = [("user", Key::from("alice")), ("everyone", Key::default())];
    /// let take = Take::of_subjects(rule, keys)?;
    /// let names: Vec<_> = take.counts().iter().map(|count| count.name("")).collect();
    /// assert_eq!(names, ["{api}:user:alice", "{api}:everyone"]);
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError::UnknownSubject`] if the rule has no subject of a name, and
    /// [`RuleError::NoCertainSubject`] if none of its subjects is named.
    pub fn of_subjects<'a>(
        rule: Arc<Rule>,
        keys: impl IntoIterator<Item = (&'a str, Key)>,
    ) -> Result<Self, RuleError> {
        let mut of_subjects: Box<[_]> = rule.counted_subjects().iter().map(|_| None).collect();
        for (name, key) in keys {
            match rule.place_of_subject(name) {
                Some(place) => of_subjects[place] = Some(key),
                None => return Err(RuleError::UnknownSubject(name.to_owned())),
            }
        }
        if of_subjects.iter().all(Option::is_none) {
            return Err(RuleError::NoCertainSubject);
        }
        Ok(Self::joint(rule, of_subjects))
    }

    /// A take with a key for each subject of the rule, in their order. Those without a key are
    /// not counted.
    pub(crate) fn joint(rule: Arc<Rule>, keys: Box<[Option<Key>]>) -> Self {
        let cost = rule.cost();
        let subject = CountName::new(rule, Key::of_subjects(&keys));
        let rule = &subject.rule;
        let counts = rule.counts().iter().filter_map(|count| {
            let key = keys.get(count.subject)?.as_ref()?;
            let name = count.names.of(key, key.hash_in_names());
            let (of_count, has_own) = (count.cost.unwrap_or(cost), count.cost.is_some());
            Some(CountTake::new(name, &count.spec, of_count, has_own))
        });
        let counts = counts.collect();
        of(subject, Some(keys.into()), counts, cost)
    }

    /// This take at the cost that the rule lets it [reserve](Rule::with_reserve_max).
    #[inline]
    pub(crate) fn reserving(mut self) -> Self {
        if !self.rule().reserves_max() {
            return self;
        }
        let windows = self.counts_owed().filter_map(|(_, it)| it.spec().windows());
        let limits = windows.flat_map(Windows::limits);
        let cost = limits.fold(self.cost(), u64::min);
        self.is_reduced = cost < self.cost();
        self.with_cost(cost)
    }

    /// The decision about this take: `decisions` has one about each of its
    /// [counts](Self::counts), all charged, or none. It is allowed if each of them is, and says when
    /// the last of those that deny has room again.
    ///
    /// # Panics
    ///
    /// If there is not one decision about each count.
    #[must_use]
    pub fn decision_of(&self, decisions: Vec<Decision>) -> Decision {
        if !self.is_joint() {
            let [decision] = <[_; 1]>::try_from(decisions).expect("one decision");
            return decision;
        }
        assert_eq!(decisions.len(), self.counts().len(), "one about each count");
        let algorithm = self.rule().algorithm().algorithm();
        // What is not counted limits nothing, and nobody is told of it.
        let full = |quota| QuotaState::from_micros(algorithm.limit(quota), 0).hidden();
        let mut states: Vec<_> = self.rule().quotas().iter().map(full).collect();
        let (mut verdict, mut source) = (Verdict::Allowed, Source::Local);
        for (kind, decision) in self.kinds().zip(&decisions) {
            verdict = strictest(verdict, decision.verdict());
            source = decision.source();
            for (place, state) in kind.places.iter().zip(decision.quotas()) {
                states[*place] = *state;
            }
        }
        let receipt = match verdict {
            Verdict::Allowed => self.receipt(&decisions),
            _ => None,
        };
        Decision::of_states(verdict, source, states.into()).with_receipt(receipt)
    }

    /// One receipt of all counts. What was charged in counts with a cost of their own is no part of
    /// its units.
    fn receipt(&self, decisions: &[Decision]) -> Option<Receipt> {
        let first = decisions.iter().find_map(Decision::receipt)?;
        let receipts = decisions.iter().map(Decision::receipt_or_none).collect();
        let first = Receipt::new(first.stamp(), first.serial(), self.cost());
        Some(first.of_counts(receipts))
    }

    /// Of each count what the rule says of it.
    fn kinds(&self) -> impl Iterator<Item = &SubjectCount> {
        let is_counted = |count: &&SubjectCount| match self.keys() {
            None => true,
            Some(keys) => matches!(keys.get(count.subject), Some(Some(_))),
        };
        self.rule().counts().iter().filter(is_counted)
    }

    /// Of each count, the states of its quotas in a decision.
    pub(crate) fn states<'a>(
        &'a self,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a CountTake, impl Iterator<Item = &'a QuotaState>)> {
        let counts = self.counts().iter().zip(self.kinds());
        counts.map(|(count, kind)| {
            let places = kind.places.iter();
            (count, places.filter_map(|at| decision.quotas().get(*at)))
        })
    }

    /// Whether each of its counts denies it by this decision. All do, if the decision names none.
    pub(crate) fn denials(&self, decision: &Decision) -> SmallVec<[bool; 1]> {
        let states = self.states(decision);
        let denials = states.map(|(_, mut states)| states.any(QuotaState::is_exceeded));
        let denials: SmallVec<[bool; 1]> = denials.collect();
        match denials.contains(&true) {
            true => denials,
            false => SmallVec::from_elem(true, denials.len()),
        }
    }

    /// Whether clients are told of the quota at this place of the rule: it is not hidden, and
    /// counts this take.
    pub(crate) fn is_told(&self, quota: usize) -> bool {
        let counts = |kind: &SubjectCount| kind.places.contains(&quota);
        !self.rule().policies()[quota].is_hidden() && self.kinds().any(counts)
    }

    /// This take without the subjects at these places: the others decide. `None` if no other is
    /// counted.
    pub(crate) fn without(&self, skips: impl Fn(usize) -> bool) -> Option<Self> {
        let mut keys: Box<[_]> = self.keys()?.into();
        for (place, key) in keys.iter_mut().enumerate() {
            if skips(place) {
                *key = None;
            }
        }
        let take = Self::joint(Arc::clone(self.rule()), keys);
        // A plan may have quotas of the other subjects alone.
        let is_counted = !take.counts().is_empty();
        is_counted.then(|| take.with_cost(self.cost()).like(self))
    }

    /// Another take that asks as this one does.
    fn like(mut self, other: &Self) -> Self {
        if other.only_looks() {
            self = self.looking();
        }
        self.copy_caller(other)
    }

    /// This take under another rule: each of its subjects has the key that the subject of
    /// this name has here.
    pub(crate) fn under(&self, rule: Arc<Rule>) -> Self {
        let own = |place: usize| self.keys()?.get(place)?.clone();
        let key_named = |name: Option<&str>| match (self.keys(), name) {
            (None, Some(name)) if self.rule().only_subject().is_some_and(|own| own != name) => None,
            (None, _) => Some(self.key().clone()),
            (Some(_), Some(name)) => own(self.rule().place_of_subject(name)?),
            (Some(_), None) => own(0),
        };
        let take = if rule.is_joint() {
            let subjects = rule.counted_subjects().iter();
            let keys = subjects.map(|subject| key_named(Some(subject.name())));
            let keys = keys.collect();
            Self::joint(rule, keys).with_cost(self.cost())
        } else if let Some(key) = key_named(rule.only_subject()) {
            Self::of_key(rule, key, self.cost())
        } else {
            // The rule does not count this request.
            let subject = CountName::new(rule, self.key().clone());
            of(subject, Some(Arc::default()), SmallVec::new(), self.cost())
        };
        take.like(self)
    }

    /// Under a rule of several subjects, what names the count of each on the page, with the most
    /// that is known of the rule's quotas at its places; without those of which nothing is.
    pub(crate) fn names_of_subjects<T: Ord>(
        &self,
        known: impl Fn(&[usize]) -> Option<T>,
    ) -> impl Iterator<Item = (CountName, T)> {
        let (rule, keys) = (self.rule(), self.keys().into_iter());
        let subjects = keys.flat_map(move |keys| rule.counted_subjects().iter().zip(keys));
        subjects
            .enumerate()
            .filter_map(move |(place, (subject, key))| {
                let counts = rule.counts().iter().filter(|count| count.subject == place);
                let known = counts.filter_map(|count| known(&count.places)).max()?;
                let key = key.as_ref()?.of_subject(subject.name());
                Some((CountName::new(Arc::clone(rule), key), known))
            })
    }
}

/// A first question under the rule of this subject, about these counts.
fn of(
    subject: CountName,
    keys: Option<Arc<[Option<Key>]>>,
    counts: SmallVec<[CountTake; 1]>,
    cost: u64,
) -> Take {
    let rule = &subject.rule;
    let in_shadow = rule.is_shadow();
    let falls_back = matches!(rule.on_error(), None | Some(OnError::Fallback));
    Take::of(subject, keys, counts, cost, in_shadow, falls_back)
}

/// What is decided about a take, of what is decided about two of its counts.
fn strictest(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (Verdict::Allowed, other) | (other, Verdict::Allowed) => other,
        (Verdict::Never, _) | (_, Verdict::Never) => Verdict::Never,
        (Verdict::Denied { retry_after: one }, Verdict::Denied { retry_after: other }) => {
            let retry_after = one.max(other);
            Verdict::Denied { retry_after }
        }
        // A count with room for what another one denies has nothing to wait for.
        (busy @ Verdict::Busy { .. }, Verdict::Denied { retry_after })
        | (Verdict::Denied { retry_after }, busy @ Verdict::Busy { .. })
            if retry_after.is_zero() =>
        {
            busy
        }
        (denied @ Verdict::Denied { .. }, Verdict::Busy { .. })
        | (Verdict::Busy { .. }, denied @ Verdict::Denied { .. }) => denied,
        (busy @ Verdict::Busy { .. }, Verdict::Busy { .. }) => busy,
        // A rule that holds has one count.
        (hold @ Verdict::OnHold { .. }, _) | (_, hold @ Verdict::OnHold { .. }) => hold,
    }
}
