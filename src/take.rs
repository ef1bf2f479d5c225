//! Takes: which counts a request asks for under its rule, and what their states say about it.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::{Decision, QuotaState};
use crate::key::Key;
use crate::question::{Ask, CountAsk};
use crate::rule::{Rule, RuleError};

/// One question to a store: may this key spend this cost under this rule? What a
/// [`Store`](crate::Store) is [asked](Ask), with the rule and the key.
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
    rule: Arc<Rule>,
    /// Under a rule of several subjects, made of the keys of all of them.
    key: Key,
    /// Under a rule of several subjects, those of each. Those without one are not counted.
    keys: Option<Arc<[Option<Key>]>>,
    pub(crate) ask: Ask,
    /// The last refund of its path before it was asked: see
    /// [`OpenCharges`](crate::charge::OpenCharges).
    pub(crate) refunds_before: u64,
    /// The key of the lane in which it waits, of no parts without one, while somebody looks at who
    /// waits.
    pub(crate) lane_key: Option<Arc<Key>>,
}

impl Deref for Take {
    type Target = Ask;

    #[inline]
    fn deref(&self) -> &Ask {
        &self.ask
    }
}

impl Take {
    /// A take at the rule's cost. Under a [joint](Rule::joint) rule each subject has this key.
    #[must_use]
    pub fn new(rule: Arc<Rule>, key: Key) -> Self {
        let cost = rule.cost();
        if rule.subjects().is_empty() {
            return Self::for_key(rule, key, cost);
        }
        let keys = rule.subjects().iter().map(|_| Some(key.clone()));
        let keys = keys.collect();
        Self::joint(rule, keys)
    }

    /// A take under a rule of one subject.
    #[inline]
    pub(crate) fn for_key(rule: Arc<Rule>, key: Key, cost: u64) -> Self {
        let ask = Ask::of_key(rule.counts(), key.text(), key.hash_in_names(), cost);
        Self::from_parts(rule, key, None, ask)
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
        let mut of_subjects: Box<[_]> = rule.subjects().iter().map(|_| None).collect();
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
        let (key, of) = (Key::from_subjects(&keys), rule.counts());
        let counts = of.list.iter().enumerate().filter_map(|(place, count)| {
            let key = keys.get(count.subject)?.as_ref()?;
            let name = count.names.name_for(key.text(), key.hash_in_names());
            Some(CountAsk::new(of, place, name, cost))
        });
        let ask = Ask::new(of, counts.collect(), cost);
        Self::from_parts(rule, key, Some(keys.into()), ask)
    }

    /// A first question under the rule.
    fn from_parts(rule: Arc<Rule>, key: Key, keys: Option<Arc<[Option<Key>]>>, ask: Ask) -> Self {
        Self {
            rule,
            key,
            keys,
            ask,
            refunds_before: 0,
            lane_key: None,
        }
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// The key that is counted. Under a [joint](Rule::joint) rule it is made of those of all
    /// subjects.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Under a rule of several subjects.
    pub(crate) fn keys(&self) -> Option<&[Option<Key>]> {
        self.keys.as_deref()
    }

    /// What names the key of each subject, or its only key, in lists of keys of rules.
    pub(crate) fn named_keys(&self) -> Vec<Option<Key>> {
        let Some(keys) = self.keys() else {
            return vec![Some(self.key.clone())];
        };
        let keys = self.rule.subjects().iter().zip(keys);
        let named = keys.map(|(it, key)| key.as_ref().map(|key| key.with_subject(it.name())));
        named.collect()
    }

    pub(crate) fn into_rule(self) -> Arc<Rule> {
        self.rule
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }

    /// This take at [another cost](Ask::with_cost).
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        self.asking(|ask| ask.with_cost(cost))
    }

    /// This take, which [only looks](Ask::looking).
    #[must_use]
    pub fn looking(self) -> Self {
        self.asking(Ask::looking)
    }

    /// This take, [asked again](Ask::repeat) by a caller that was denied and has waited.
    #[must_use]
    pub fn repeat(self) -> Self {
        self.asking(Ask::repeat)
    }

    /// What asks about [one of its counts](Ask::only) alone.
    ///
    /// # Panics
    ///
    /// If there is no count at this place.
    #[must_use]
    pub fn only(&self, count: usize) -> Ask {
        self.ask.only(count)
    }

    fn asking(self, change: impl FnOnce(Ask) -> Ask) -> Self {
        let ask = change(self.ask);
        Self { ask, ..self }
    }

    /// Reduces its cost to what the rule lets it [reserve](Rule::with_reserve_max). Returns whether
    /// that is less than its request costs.
    #[inline]
    pub(crate) fn reserve_max(&mut self) -> bool {
        self.rule.reserves_max() && self.reduce()
    }

    #[cold]
    fn reduce(&mut self) -> bool {
        let limits = self.counts_owed().flat_map(|(_, it)| it.spec().limits());
        let cost = limits.fold(self.cost(), u64::min);
        let is_reduced = cost < self.cost();
        self.ask.set_cost(cost);
        is_reduced
    }

    /// Of each count, the states of its quotas in a decision.
    pub(crate) fn states<'a>(
        &'a self,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a CountAsk, impl Iterator<Item = &'a QuotaState>)> {
        self.counts().iter().map(|count| {
            let places = count.places(self.rule().counts()).iter();
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

    /// Whether clients see the quota at this place of the rule: it is not hidden, and counts this
    /// take.
    pub(crate) fn is_shown_to_clients(&self, quota: usize) -> bool {
        let of = self.rule().counts();
        let mut counts = self.counts().iter();
        let is_counted = counts.any(|count| count.places(of).contains(&quota));
        is_counted && !self.rule().policies()[quota].is_hidden()
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
        self.lane_key.clone_from(&other.lane_key);
        self.asking(|ask| ask.copy_caller(other))
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
        let take = if !rule.subjects().is_empty() {
            let subjects = rule.subjects().iter();
            let keys = subjects.map(|subject| key_named(Some(subject.name())));
            let keys = keys.collect();
            Self::joint(rule, keys).with_cost(self.cost())
        } else if let Some(key) = key_named(rule.only_subject()) {
            Self::for_key(rule, key, self.cost())
        } else {
            // The rule does not count this request.
            let (key, keys) = (self.key.clone(), Some(Arc::default()));
            let ask = Ask::new(rule.counts(), SmallVec::new(), self.cost());
            Self::from_parts(rule, key, keys, ask)
        };
        take.like(self)
    }

    /// The subject of a count, if the rule has several, and its key.
    pub(crate) fn key_of(&self, count: &CountAsk) -> (Option<String>, Key) {
        let place = self.rule().counts().list[count.place()].subject;
        let key = self.keys().and_then(|keys| keys.get(place)?.clone());
        let subject = self.rule().subjects().get(place);
        let name = subject.map(|subject| subject.name().to_owned());
        (name, key.unwrap_or_else(|| self.key().clone()))
    }

    /// Whose failures are counted: the key, or that of one subject.
    pub(crate) fn lockout_key(&self) -> Key {
        match self.lockout_count().map(|count| self.key_of(count)) {
            Some((Some(subject), key)) => key.with_subject(&subject),
            _ => self.key().clone(),
        }
    }

    /// What names the key of each subject on the page, or the only key, with the most that is known
    /// of the rule's quotas at its places; without those of which nothing is.
    pub(crate) fn keys_of_subjects<T: Ord>(
        &self,
        known: impl Fn(&[usize]) -> Option<T>,
    ) -> impl Iterator<Item = (Key, T)> {
        let (rule, keys) = (self.rule(), self.named_keys().into_iter());
        keys.enumerate().filter_map(move |(place, key)| {
            let counts = rule.counts().list.iter();
            let counts = counts.filter(|count| count.subject == place);
            let known = counts.filter_map(|count| known(&count.places)).max()?;
            Some((key?, known))
        })
    }
}
