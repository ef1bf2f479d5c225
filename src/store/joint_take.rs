use std::sync::Arc;

use super::Take;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::key::Key;
use crate::rule::{Rule, SubjectCount};

/// What a take is under a rule of several subjects: a take of each of its counts, which are decided
/// together.
#[derive(Debug, Clone)]
pub(crate) struct JointTake {
    /// Of each subject of the rule. Those without one are not counted.
    keys: Box<[Option<Key>]>,
    /// In the order of the rule's counts, without those that are not counted.
    pub(crate) takes: Box<[Take]>,
}

impl JointTake {
    pub(super) fn new(rule: &Rule, keys: Box<[Option<Key>]>, cost: u64) -> Self {
        let counts = rule.counts().iter().filter_map(|count| {
            let key = keys.get(count.subject)?.clone()?;
            let take = Take::new(Arc::clone(&count.rule), key);
            Some(take.with_cost(count.cost.unwrap_or(cost)))
        });
        let takes = counts.collect();
        Self { keys, takes }
    }

    /// A key that differs wherever one of the keys does.
    pub(super) fn key_of(keys: &[Option<Key>]) -> Key {
        let parts = keys.iter().map(|key| match key {
            Some(key) => key.clone().in_one_part(),
            None => Key::none_in_one_part(),
        });
        parts.fold(Key::default(), |all, part| all.join(&part))
    }

    /// The keys of a take for the subjects of another joint rule, by their names. A subject that
    /// the take does not have is not counted. Under a rule whose only subject has no name, each has
    /// the take's key.
    pub(super) fn keys_under(rule: &Rule, take: &Take) -> Box<[Option<Key>]> {
        let keys = rule
            .counted_subjects()
            .iter()
            .map(|subject| match take.as_joint() {
                Some(joint) => {
                    let place = take.rule().place_of_subject(subject.name())?;
                    joint.keys.get(place)?.clone()
                }
                None => match take.rule().only_subject() {
                    Some(name) if name != subject.name() => None,
                    _ => Some(take.key().clone()),
                },
            });
        keys.collect()
    }

    /// Of each count, the states of its quotas in a decision.
    pub(crate) fn states<'a>(
        &'a self,
        rule: &'a Rule,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a Take, impl Iterator<Item = &'a QuotaState>)> {
        let counts = self.counts(rule).zip(&self.takes);
        counts.map(|(count, take)| {
            let states = count.places.iter();
            (take, states.filter_map(|at| decision.quotas().get(*at)))
        })
    }

    /// This take, with a cost of 0 in counts with a cost of their own.
    pub(super) fn at_cost_of_request(&self, rule: &Rule) -> Self {
        let counts = self.counts(rule).zip(&self.takes);
        let takes = counts.map(|(count, take)| match count.cost {
            Some(_) => take.clone().with_cost(0),
            None => take.clone(),
        });
        let (keys, takes) = (self.keys.clone(), takes.collect());
        Self { keys, takes }
    }

    /// This take at another cost.
    pub(super) fn with_cost(&self, rule: &Rule, cost: u64) -> Self {
        Self::new(rule, self.keys.clone(), cost)
    }

    /// This take, which only looks.
    pub(super) fn looking(&self) -> Self {
        let takes = self.takes.iter().cloned().map(Take::looking);
        let (keys, takes) = (self.keys.clone(), takes.collect());
        Self { keys, takes }
    }

    /// Its keys without those of the subjects at these places. `None` if no other is counted.
    pub(super) fn without(&self, skips: impl Fn(usize) -> bool) -> Option<Box<[Option<Key>]>> {
        let mut keys = self.keys.clone();
        for (place, key) in keys.iter_mut().enumerate() {
            if skips(place) {
                *key = None;
            }
        }
        keys.iter().any(Option::is_some).then_some(keys)
    }

    pub(crate) fn keys(&self) -> &[Option<Key>] {
        &self.keys
    }

    /// What is decided about a take, if this was decided about each of its counts.
    pub(in crate::store) fn decision(
        &self,
        rule: &Rule,
        cost: u64,
        decisions: Vec<Decision>,
    ) -> Decision {
        assert_eq!(decisions.len(), self.takes.len(), "one about each count");
        let algorithm = rule.algorithm().algorithm();
        // What is not counted limits nothing, and nobody is told of it.
        let full = |quota| QuotaState::from_micros(algorithm.limit(quota), 0).hidden();
        let mut states: Vec<_> = rule.quotas().iter().map(full).collect();
        let (mut verdict, mut source) = (Verdict::Allowed, Source::Local);
        for (count, decision) in self.counts(rule).zip(&decisions) {
            verdict = strictest(verdict, decision.verdict());
            source = decision.source();
            for (place, state) in count.places.iter().zip(decision.quotas()) {
                states[*place] = *state;
            }
        }
        let receipt = match verdict {
            Verdict::Allowed => self.receipt(cost, &decisions),
            _ => None,
        };
        Decision::of_states(verdict, source, states.into()).with_receipt(receipt)
    }

    /// How many units of `asked` ones were given back, if these were in each count: the most of
    /// counts without a cost of their own. Where there is no such count, all, or none.
    pub(super) fn units_given_back(&self, rule: &Rule, asked: u64, given_back: &[u64]) -> u64 {
        let of_cost = self.counts(rule).zip(given_back);
        let of_cost = of_cost.filter_map(|(count, units)| count.cost.is_none().then_some(*units));
        let is_any = given_back.iter().any(|units| *units > 0);
        of_cost.max().unwrap_or(if is_any { asked } else { 0 })
    }

    /// The counts of the rule that are counted.
    pub(crate) fn counts<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a SubjectCount> {
        let is_counted = |count: &&SubjectCount| self.keys[count.subject].is_some();
        rule.counts().iter().filter(is_counted)
    }

    /// One receipt of all counts. What was charged in counts with a cost of their own is no part of
    /// its units.
    fn receipt(&self, cost: u64, decisions: &[Decision]) -> Option<Receipt> {
        let first = decisions.iter().find_map(Decision::receipt)?;
        let receipts = decisions.iter().map(Decision::receipt_or_none).collect();
        let first = Receipt::new(first.stamp(), first.serial(), cost);
        Some(first.of_counts(receipts))
    }
}

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
