use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::joint_take::JointTake;
use crate::deadline::Deadline;
use crate::decision::{Decision, QuotaState, Receipt};
use crate::error::StoreError;
use crate::key::Key;
use crate::quota::Quota;
use crate::rule::{CountName, Rule, RuleError};

/// One question to a store: may this key spend this cost under this rule?
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
    /// Under a rule of several subjects, the rule and the keys of all of them.
    name: CountName,
    /// Under a rule of several subjects.
    joint: Option<Arc<JointTake>>,
    cost: u64,
    only_looks: bool,
    /// Whether it reserves less than its request costs.
    pub(crate) is_reduced: bool,
    is_repeat: bool,
    /// Whether its caller asks again later where the store is overloaded.
    pub(crate) is_patient: bool,
    /// Whether nobody waits for the answer: that to a refund, a release, a renewal, a hold.
    is_unawaited: bool,
    /// What [`OpenCharges::refunds`](crate::waiting::OpenCharges) said before it was asked.
    pub(crate) refunds: u32,
    /// The earliest of the time-outs around the store; `None` if only its own counts.
    deadline: Option<Deadline>,
    /// Why the store gave no decision to an outer layer of the same request.
    failure: Option<Box<StoreError>>,
}

impl Take {
    /// How long an answer is awaited that no caller waits for. However late this process is, such a
    /// question is sent.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

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
        Self::of(CountName::new(rule, key), None, cost)
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
        let name = CountName::new(Arc::clone(&rule), JointTake::key_of(&keys));
        let joint = JointTake::new(&rule, keys, cost);
        Self::of(name, Some(Arc::new(joint)), cost)
    }

    /// A first question that no caller waits for yet.
    fn of(name: CountName, joint: Option<Arc<JointTake>>, cost: u64) -> Self {
        Self {
            name,
            joint,
            cost,
            only_looks: false,
            is_reduced: false,
            is_repeat: false,
            is_patient: false,
            is_unawaited: false,
            refunds: 0,
            deadline: None,
            failure: None,
        }
    }

    /// This take at another cost, in units. At a cost of 0 a request still is a request: it fits
    /// unless more than a quota's max is used, quotas with a
    /// [cost of their own](crate::rule::Policy::with_cost) and
    /// [permits](crate::Rule::with_max_concurrent) charge it in full, and it can be settled. A quota
    /// of which the max is 0 lets no request pass. What [only looks](Self::looking) stays without a
    /// cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        if self.only_looks {
            return self;
        }
        if let Some(joint) = &self.joint {
            self.joint = Some(Arc::new(joint.with_cost(self.rule(), cost)));
        }
        self.cost = cost;
        self
    }

    /// This take at the cost that the rule lets it [reserve](Rule::with_reserve_max).
    #[inline]
    pub(crate) fn reserving(mut self) -> Self {
        if !self.rule().reserves_max() {
            return self;
        }
        let (algorithm, counts) = (self.rule().algorithm().algorithm(), self.counts_owed());
        let quotas = counts.iter().flat_map(|count| count.rule().quotas());
        let cost = quotas
            .map(|quota| algorithm.limit(quota))
            .fold(self.cost, u64::min);
        self.is_reduced = cost < self.cost;
        self.with_cost(cost)
    }

    /// This take, which only looks: it has no cost, also in counts with a cost of their own and of
    /// permits, so that a store charges nothing. [`Store::peek`](crate::Store::peek) asks with it,
    /// and allows it whatever the store says.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Key, Quota, Rule, Take};
    ///
    /// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
    /// let look = Take::new(rule, Key::from("alice")).looking();
    /// assert_eq!((look.only_looks(), look.cost()), (true, 0));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn looking(mut self) -> Self {
        if let Some(joint) = &self.joint {
            self.joint = Some(Arc::new(joint.looking()));
        }
        (self.cost, self.only_looks) = (0, true);
        self
    }

    /// Whether this [only looks](Self::looking).
    #[must_use]
    pub const fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// The takes that are decided together, each of one count and at its cost: of them all, or
    /// none, is charged. Under a rule of one subject it is this take itself.
    ///
    /// A store that can do that says so by
    /// [`Capabilities::joint`](crate::store::Capabilities::joint), and answers with what
    /// [`decision_of`](Self::decision_of) makes of the decisions about each.
    #[must_use]
    pub fn counts(&self) -> &[Self] {
        match &self.joint {
            Some(joint) => &joint.takes,
            None => std::slice::from_ref(self),
        }
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
        match &self.joint {
            Some(joint) => joint.decision(self.rule(), self.cost, decisions),
            None => {
                let [decision] = <[_; 1]>::try_from(decisions).expect("one decision");
                decision
            }
        }
    }

    /// Gives back in each count what `refund` can: it is asked for each with its part of the
    /// receipt. Returns how many units of the request's cost were given back.
    pub(crate) fn given_back(
        &self,
        receipt: &Receipt,
        mut refund: impl FnMut(&Self, &Receipt) -> u64,
    ) -> u64 {
        let Some(joint) = &self.joint else {
            return refund(self, receipt);
        };
        let counts = joint.takes.iter().zip(receipt.counts());
        // A permit goes back when its request has ended.
        let given_back = counts.map(|(take, receipt)| match take.rule().is_permits() {
            true => 0,
            false => refund(take, receipt),
        });
        self.units_given_back(receipt, &given_back.collect::<Vec<_>>())
    }

    /// Its counts that have the cost of the request: what is used beyond a reservation is charged
    /// in each of them.
    pub(crate) fn counts_owed(&self) -> Vec<Self> {
        match &self.joint {
            None => vec![self.clone()],
            Some(joint) => {
                let counts = joint.at_cost_of_request(self.rule()).takes.into_iter();
                counts.filter(|count| count.cost > 0).collect()
            }
        }
    }

    /// How many units of the request's cost were given back, if these were in each of the counts.
    pub(crate) fn units_given_back(&self, receipt: &Receipt, given_back: &[u64]) -> u64 {
        match &self.joint {
            Some(joint) => {
                let asked = self.cost.min(receipt.units());
                joint.units_given_back(self.rule(), asked, given_back)
            }
            None => given_back.iter().sum(),
        }
    }

    /// For a refund of what was not used: it gives back nothing in counts with a cost of their own.
    pub(crate) fn at_cost_of_request(mut self) -> Self {
        if let Some(joint) = &self.joint {
            self.joint = Some(Arc::new(joint.at_cost_of_request(self.rule())));
        }
        self
    }

    /// Notes how often units were given back, by the hash of each count's name.
    #[inline]
    pub(crate) fn note_refunds(&mut self, refunds: impl Fn(u64) -> u32) {
        let Some(joint) = &mut self.joint else {
            self.refunds = refunds(self.name.hash());
            return;
        };
        for take in &mut Arc::make_mut(joint).takes {
            take.refunds = refunds(take.name.hash());
        }
    }

    /// Whether each of its counts denies it by this decision. All do, if the decision names none.
    pub(crate) fn denials(&self, decision: &Decision) -> SmallVec<[bool; 1]> {
        let Some(joint) = &self.joint else {
            return smallvec![true];
        };
        let states = joint.states(self.rule(), decision);
        let denials = states.map(|(_, mut states)| states.any(QuotaState::is_exceeded));
        let denials: SmallVec<_> = denials.collect();
        match denials.contains(&true) {
            true => denials,
            false => SmallVec::from_elem(true, denials.len()),
        }
    }

    /// This take without the subjects at these places: the others decide. `None` if no other is
    /// counted.
    pub(crate) fn without(&self, skips: impl Fn(usize) -> bool) -> Option<Self> {
        let keys = self.joint.as_ref()?.without(skips)?;
        let mut take = self.clone();
        take.name = CountName::new(Arc::clone(self.rule()), JointTake::key_of(&keys));
        let joint = self.joint_of(self.rule(), keys);
        // A plan may have quotas of the other subjects alone.
        let is_counted = !joint.takes.is_empty();
        take.joint = Some(joint);
        is_counted.then_some(take)
    }

    /// Under a rule of several subjects, what names the count of each on the page, with the most
    /// that is known of the rule's quotas at its places; without those of which nothing is.
    pub(crate) fn names_of_subjects<T: Ord>(
        &self,
        known: impl Fn(&[usize]) -> Option<T>,
    ) -> impl Iterator<Item = (CountName, T)> {
        let (rule, joint) = (self.rule(), self.joint.iter());
        let subjects =
            joint.flat_map(move |joint| rule.counted_subjects().iter().zip(joint.keys()));
        subjects
            .enumerate()
            .filter_map(move |(place, (subject, key))| {
                let counts = rule.counts().iter().filter(|count| count.subject == place);
                let known = counts.filter_map(|count| known(&count.places)).max()?;
                let key = key.as_ref()?.of_subject(subject.name());
                Some((CountName::new(Arc::clone(rule), key), known))
            })
    }

    /// Whether clients are told of the quota at this place of the rule: it is not hidden, and
    /// counts this take.
    pub(crate) fn is_told(&self, quota: usize) -> bool {
        let rule = self.rule();
        let counts = |joint: &Arc<JointTake>| {
            let mut counts = joint.counts(rule);
            counts.any(|count| count.places.contains(&quota))
        };
        !rule.policies()[quota].is_hidden() && self.joint.as_ref().is_none_or(counts)
    }

    /// Under a rule of several subjects.
    pub(crate) const fn as_joint(&self) -> Option<&Arc<JointTake>> {
        self.joint.as_ref()
    }

    /// This take, asked again by a caller that was denied and has waited.
    ///
    /// Stores may answer repeats about one key together, and a [bound](crate::Resilient::in_flight)
    /// does not count them.
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.is_repeat = true;
        self.failure = None;
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
        &self.name.rule
    }

    /// The key that is counted. Under a [joint](Rule::joint) rule it is made of those of all
    /// subjects.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.name.key
    }

    /// The cost, in units.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The quotas that have to have room and are charged, if there is one count: those of the rule.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.rule().quotas()
    }

    /// The name under which a store keeps the count of the rule and key: the prefix, the rule's
    /// [id](Rule::id), and the key's parts, joined by `:`. `default_prefix` is for rules that have
    /// no [prefix](Rule::prefix) of their own.
    ///
    /// Neither ids nor parts of keys hold a bare `:`, so two different counts never share a name.
    ///
    /// ```
    /// use tidegate::{Algorithm, Key, Quota, Rule, Take};
    ///
    /// let rule = Rule::new("login", [Quota::per_minute(5)])?.with_algorithm(Algorithm::Gcra);
    /// let take = Take::new(rule.into(), Key::from("alice"));
    /// assert_eq!(take.name("CurrentLimiter:"), "CurrentLimiter:login~gcra:alice");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn name(&self, default_prefix: &str) -> String {
        self.name.text("", default_prefix)
    }

    pub(crate) const fn count_name(&self) -> &CountName {
        &self.name
    }

    /// This take for a caller that waits no longer than this.
    pub(crate) fn within(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline.or_earlier(self.deadline));
        self
    }

    pub(crate) const fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Says that the store has just failed for the same request, so that the server is not asked;
    /// or that this is over.
    pub(crate) fn set_failure(&mut self, error: Option<StoreError>) {
        self.failure = error.map(Box::new);
    }

    pub(crate) fn failure(&self) -> Option<&StoreError> {
        self.failure.as_deref()
    }

    /// A first question about the same count at this cost, which no caller waits for.
    pub(crate) fn first_question(&self, cost: u64) -> Self {
        let joint = self.joint.as_ref();
        let joint = joint.map(|joint| Arc::new(joint.with_cost(self.rule(), cost)));
        Self::of(self.name.clone(), joint, cost)
    }

    /// This take for a refund of so many units, for which nobody waits.
    pub(crate) fn for_refund(&self, units: u64) -> Self {
        self.first_question(units).unawaited(Self::PATIENCE)
    }

    /// This take, whose answer no caller waits for: no time-out of a store ends it, but this bound.
    pub(crate) fn unawaited(mut self, bound: Duration) -> Self {
        (self.is_unawaited, self.deadline) = (true, Some(Deadline::after(bound)));
        self
    }

    /// This take of one count, whose answer is awaited as long as that to the whole.
    #[cfg(feature = "redis")]
    pub(crate) fn part_of(mut self, whole: &Self) -> Self {
        (self.is_unawaited, self.deadline) = (whole.is_unawaited, whole.deadline);
        self
    }

    pub(crate) const fn is_unawaited(&self) -> bool {
        self.is_unawaited
    }

    /// This take under another rule: each of its subjects has the key that the subject of
    /// this name has here.
    pub(crate) fn under(&self, rule: Arc<Rule>) -> Self {
        let mut take = self.clone();
        if rule.is_joint() {
            let keys = JointTake::keys_under(&rule, self);
            take.joint = Some(self.joint_of(&rule, keys));
        }
        take.name.rule = rule;
        take
    }

    /// What the same asks of the counts of these keys.
    fn joint_of(&self, rule: &Rule, keys: Box<[Option<Key>]>) -> Arc<JointTake> {
        let joint = JointTake::new(rule, keys, self.cost);
        Arc::new(match self.only_looks {
            true => joint.looking(),
            false => joint,
        })
    }

    pub(crate) fn into_rule(self) -> Arc<Rule> {
        self.name.rule
    }

    pub(crate) fn into_key(self) -> Key {
        self.name.key
    }
}
