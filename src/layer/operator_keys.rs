use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::decide::Limited;
use crate::decision::{Decision, QuotaState};
use crate::rule::{Factor, Factors};
use crate::store::{OperatorKey, OperatorKind, Take};

/// The keys that an operator lets through, blocks or raises for a while, of all rules of a service.
///
/// Requests read it, so that without such keys it costs one load.
#[derive(Debug, Default)]
pub(crate) struct OperatorKeys(ArcSwapOption<Vec<OperatorEntry>>);

/// A key with its end: the time counts from when it was set. The list is in the order of path and
/// key, and of each key the raise comes first.
#[derive(Debug, Clone)]
struct OperatorEntry {
    one: OperatorKey,
    end: Instant,
}

/// What holds for the key of each subject of a take, or for its only key.
type Said = SmallVec<[Option<(OperatorKind, Duration)>; 8]>;

impl OperatorKeys {
    /// What of this take is limited now. A blocked key of any subject denies it, unless the rule is
    /// a shadow rule. Without the keys of subjects that are let through, the others decide. The
    /// quotas of those that are raised are multiplied.
    #[inline]
    pub(super) fn limited(&self, take: &Take) -> Limited {
        match self.0.load().as_ref() {
            None => Limited::Whole,
            Some(entries) => limited(&said(entries, take), take),
        }
    }

    /// Whether a key of a take that waits is let through or blocked now.
    pub(super) fn ends_wait(&self, take: &Take) -> bool {
        let entries = self.0.load();
        let ends = |entries: &Arc<Vec<OperatorEntry>>| {
            let said = said(entries, take);
            said.iter().flatten().any(|it| !it.0.is_raise())
        };
        entries.as_ref().is_some_and(ends)
    }

    /// This take under the quotas of its raises.
    pub(crate) fn raised(&self, take: Take) -> Take {
        let entries = self.0.load();
        let said = entries.as_ref().map(|entries| said(entries, &take));
        raised(take, factors(&said.unwrap_or_default()))
    }

    /// What an operator does with the key, and for how long still: the raise first.
    pub(crate) fn find(&self, path: &str, key: &str) -> SmallVec<[(OperatorKind, Duration); 2]> {
        let entries = self.0.load();
        let found = entries.iter();
        let found = found.flat_map(|entries| &entries[places_of(entries, path, key)]);
        found.filter_map(OperatorEntry::now).collect()
    }

    /// Lets exactly these keys through, blocks exactly these and raises exactly these.
    pub(crate) fn replace(&self, mut list: Vec<OperatorKey>) {
        // What is blocked is blocked, whatever else the list says of it.
        list.sort_by_key(|one| one.kind);
        let mut entries = Vec::new();
        list.into_iter().for_each(|one| set(&mut entries, one));
        self.store(entries);
    }

    /// Lets one more key through, blocks or raises it, or ends that. Where no other process has a
    /// list, it returns whether there was room. Changes have to be made one at a time.
    pub(crate) fn set(&self, one: OperatorKey, is_shared: bool) -> bool {
        let mut entries = self.0.load().as_deref().cloned().unwrap_or_default();
        entries.retain(|entry| entry.now().is_some());
        let is_other = |it: &OperatorKey| (&it.path, &it.key) != (&one.path, &one.key);
        let others = entries.iter().map(|entry| &entry.one);
        let others = others.filter(|it| is_same_kind(it.kind, one.kind) && is_other(it));
        let has_room = is_shared || one.time.is_zero() || others.count() < OperatorKey::MAX;
        if has_room {
            set(&mut entries, one);
            self.store(entries);
        }
        has_room
    }

    fn store(&self, entries: Vec<OperatorEntry>) {
        self.0
            .store((!entries.is_empty()).then(|| Arc::new(entries)));
    }

    /// The keys with the time that they still have, in the order of path and key.
    pub(crate) fn list(&self) -> Vec<OperatorKey> {
        let entries = self.0.load();
        let entries = entries.iter().flat_map(|entries| entries.iter());
        let list = entries.filter_map(|entry| {
            Some(OperatorKey {
                time: entry.now()?.1,
                ..entry.one.clone()
            })
        });
        list.collect()
    }
}

impl OperatorEntry {
    /// Says what is done, and for how long still.
    fn now(&self) -> Option<(OperatorKind, Duration)> {
        let time = self.end.saturating_duration_since(Instant::now());
        (!time.is_zero()).then_some((self.one.kind, time))
    }
}

/// Finds what holds for each key of a take. A shadow rule denies nothing.
fn said(entries: &[OperatorEntry], take: &Take) -> Said {
    let rule = take.rule();
    let applies = |kind| match kind {
        OperatorKind::LetThrough | OperatorKind::Raised(_) => true,
        OperatorKind::Blocked => !rule.is_shadow(),
    };
    let find = |key: &str| {
        let found = entries[places_of(entries, rule.path(), key)].iter();
        let found = found.filter_map(OperatorEntry::now);
        found.filter(|(kind, _)| applies(*kind)).max()
    };
    let Some(joint) = take.as_joint() else {
        return Said::from_iter([find(take.key().as_str())]);
    };
    let subjects = rule.counted_subjects().iter().zip(joint.keys());
    let subjects = subjects.map(|(subject, key)| {
        let key = key.as_ref().map(|key| key.of_subject(subject.name()))?;
        find(key.as_str())
    });
    subjects.collect()
}

fn limited(said: &Said, take: &Take) -> Limited {
    match said.iter().flatten().max() {
        None => Limited::Whole,
        Some((OperatorKind::Blocked, time)) => Limited::Blocked(blocked(take, *time)),
        Some((OperatorKind::Raised(_), _)) => Limited::of(raised(take.clone(), factors(said))),
        Some((OperatorKind::LetThrough, _)) => {
            let is_through = |at: usize| said[at].is_some_and(|it| !it.0.is_raise());
            let others = take.without(is_through);
            others.map_or(Limited::LetThrough, |others| {
                Limited::of(raised(others, factors(said)))
            })
        }
    }
}

/// The factor of each subject; none if all are one.
fn factors(said: &Said) -> Factors {
    let factors = said.iter().map(|it| match it {
        Some((OperatorKind::Raised(factor), _)) => *factor,
        _ => Factor::ONE,
    });
    let factors: Factors = factors.collect();
    match factors.iter().all(|it| *it == Factor::ONE) {
        true => Factors::new(),
        false => factors,
    }
}

fn raised(take: Take, factors: Factors) -> Take {
    match factors.is_empty() {
        true => take,
        false => {
            let rule = take.rule().raised(factors);
            take.under(rule)
        }
    }
}

/// Where the list says something of a key, or would.
fn places_of(entries: &[OperatorEntry], path: &str, key: &str) -> Range<usize> {
    let name = |entry: &OperatorEntry| (&*entry.one.path, &*entry.one.key).cmp(&(path, key));
    let first = entries.partition_point(|entry| name(entry).is_lt());
    let number = entries[first..].partition_point(|entry| name(entry).is_eq());
    first..first + number
}

/// Whether both are raises, or both the same of the others.
fn is_same_kind(one: OperatorKind, other: OperatorKind) -> bool {
    one == other || one.is_raise() && other.is_raise()
}

/// A raise stays beside a block and beside letting through. An end of one kind leaves the others.
fn set(entries: &mut Vec<OperatorEntry>, one: OperatorKey) {
    let places = places_of(entries, &one.path, &one.key);
    let (is_end, is_raise) = (one.time.is_zero(), one.kind.is_raise());
    let is_replaced = |it: &OperatorEntry| match is_end {
        true => is_same_kind(it.one.kind, one.kind),
        false => it.one.kind.is_raise() == is_raise,
    };
    let replaced = entries[places.clone()].iter().position(is_replaced);
    if let Some(at) = replaced {
        entries.remove(places.start + at);
    }
    if !is_end {
        let end = Instant::now() + one.time.min(one.kind.max_time());
        let others = places.len() - usize::from(replaced.is_some());
        let at = places.start + if is_raise { 0 } else { others };
        entries.insert(at, OperatorEntry { one, end });
    }
}

/// The denial of a take whose key is blocked for this time. What the store has left is not known.
#[cold]
fn blocked(take: &Take, time: Duration) -> Box<Decision> {
    let algorithm = take.rule().algorithm().algorithm();
    let states = take
        .rule()
        .policies()
        .iter()
        .enumerate()
        .map(|(place, policy)| {
            let state = QuotaState::new(0, time).with_max(algorithm.limit(&policy.quota()));
            match take.is_told(place) {
                true => state,
                false => state.hidden(),
            }
        });
    Decision::blocked(time, states.collect()).into()
}
