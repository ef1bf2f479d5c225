use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::rule::{Factor, Factors};
use crate::store::{OperatorKey, OperatorKind};
use crate::take::Take;

/// The keys that an operator lets through, blocks or raises for a while, of all rules of a service.
///
/// Requests read it: without such keys that costs the load of a flag.
#[derive(Debug, Default)]
pub(crate) struct OperatorKeys {
    has_some: AtomicBool,
    entries: ArcSwap<Vec<OperatorEntry>>,
}

/// What operators decide about a take by its keys.
pub(crate) enum OperatorVerdict {
    /// The store decides about the take as it is.
    Nothing,
    /// The store decides about this take instead: without the subjects that are let through, and
    /// under the quotas of a raise.
    Replace(Box<Take>),
    LetThrough,
    Blocked(Box<Decision>),
}

/// A key with its end: the time counts from when it was set. The list is in the order of path and
/// key, and of each key the raise comes first.
#[derive(Debug, Clone)]
struct OperatorEntry {
    one: OperatorKey,
    end: Instant,
}

/// The order of an operator about the key of each subject of a take, or about its only key: the
/// kind, the time that is left, and the names of the quotas if it is about some alone.
type Orders = SmallVec<[Option<(OperatorKind, Duration, Arc<[Box<str>]>)>; 8]>;

impl OperatorKeys {
    /// What becomes of this take now. A blocked key of any subject denies it, unless the rule is
    /// a shadow rule. Without the keys of subjects that are let through, the others decide. The
    /// quotas of those that are raised are multiplied.
    #[inline]
    pub(crate) fn verdict(&self, take: &Take) -> OperatorVerdict {
        if self.has_some.load(Ordering::Relaxed) {
            verdict_of(&self.orders(take), take)
        } else {
            OperatorVerdict::Nothing
        }
    }

    /// Whether a key of a take that waits is let through or blocked now.
    pub(crate) fn ends_wait(&self, take: &Take) -> bool {
        let orders = self.orders(take);
        orders.iter().flatten().any(|it| !it.0.is_raise())
    }

    /// This take under the quotas of its raises.
    pub(crate) fn raised(&self, take: Take) -> Take {
        let orders = self.orders(&take);
        raised(take, &orders)
    }

    /// What an operator does with the key, and for how long still: the raise first.
    pub(crate) fn find(&self, path: &str, key: &str) -> SmallVec<[(OperatorKind, Duration); 2]> {
        let entries = self.entries.load();
        let found = entries[places_of(&entries, path, key)].iter();
        found.filter_map(OperatorEntry::now).collect()
    }

    /// The raise from which this one would take something.
    pub(crate) fn stands_against(&self, one: &OperatorKey) -> Option<OperatorKey> {
        let is_own = |it: &OperatorKey| (&it.path, &it.key) == (&one.path, &one.key);
        let mut list = self.list().into_iter();
        list.find(|it| is_own(it) && one.takes_from(it))
    }

    /// Lets exactly these keys through, blocks exactly these and raises exactly these.
    pub(crate) fn replace(&self, mut list: Vec<OperatorKey>) {
        // A key that is blocked stays blocked, whatever else the list has for it.
        list.sort_by_key(|one| one.kind);
        let mut entries = Vec::new();
        list.into_iter().for_each(|one| set(&mut entries, one));
        self.store(entries);
    }

    /// Lets one more key through, blocks or raises it, or ends that. Where no other process has a
    /// list, it returns whether there was room. Changes have to be made one at a time.
    pub(crate) fn set(&self, one: OperatorKey, is_shared: bool) -> bool {
        let mut entries = Vec::clone(&self.entries.load());
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
        let has_some = !entries.is_empty();
        self.entries.store(Arc::new(entries));
        self.has_some.store(has_some, Ordering::Relaxed);
    }

    /// The keys with the time that they still have, in the order of path and key.
    pub(crate) fn list(&self) -> Vec<OperatorKey> {
        let entries = self.entries.load();
        let list = entries.iter().filter_map(|entry| {
            Some(OperatorKey {
                time: entry.now()?.1,
                ..entry.one.clone()
            })
        });
        list.collect()
    }

    /// Finds the orders about each key of a take. A shadow rule denies nothing.
    fn orders(&self, take: &Take) -> Orders {
        let (rule, entries) = (take.rule(), self.entries.load());
        let applies = |kind| match kind {
            OperatorKind::LetThrough | OperatorKind::Raised(_) => true,
            OperatorKind::Blocked => !rule.is_shadow(),
        };
        let find = |key: &str| {
            let found = entries[places_of(&entries, rule.path(), key)].iter();
            let found = found.filter_map(|entry| {
                let (kind, time) = entry.now().filter(|(kind, _)| applies(*kind))?;
                Some((kind, time, Arc::clone(&entry.one.only)))
            });
            found.max()
        };
        let keys = take.named_keys().into_iter();
        keys.map(|key| find(key?.as_str())).collect()
    }
}

impl OperatorEntry {
    /// The kind, and the time that is left.
    fn now(&self) -> Option<(OperatorKind, Duration)> {
        let time = self.end.saturating_duration_since(Instant::now());
        (!time.is_zero()).then_some((self.one.kind, time))
    }
}

fn verdict_of(orders: &Orders, take: &Take) -> OperatorVerdict {
    match orders.iter().flatten().max() {
        None => OperatorVerdict::Nothing,
        Some((OperatorKind::Blocked, time, _)) => OperatorVerdict::Blocked(blocked(take, *time)),
        Some((OperatorKind::Raised(_), ..)) => {
            OperatorVerdict::Replace(raised(take.clone(), orders).into())
        }
        Some((OperatorKind::LetThrough, ..)) => {
            let is_through = |at: usize| orders[at].as_ref().is_some_and(|it| !it.0.is_raise());
            match take.without(is_through) {
                None => OperatorVerdict::LetThrough,
                Some(others) => OperatorVerdict::Replace(raised(others, orders).into()),
            }
        }
    }
}

/// This take under the factors of its quotas.
fn raised(take: Take, orders: &Orders) -> Take {
    let rule = take.rule();
    let factors = rule.policies().iter().map(|policy| {
        let subject = policy.subject().and_then(|it| rule.place_of_subject(it));
        let is_meant =
            |only: &[Box<str>]| only.is_empty() || only.iter().any(|name| **name == *policy.name());
        match orders.get(subject.unwrap_or(0)) {
            Some(Some((OperatorKind::Raised(factor), _, only))) if is_meant(only) => *factor,
            _ => Factor::ONE,
        }
    });
    let factors: Factors = factors.collect();
    if factors.iter().all(|it| *it == Factor::ONE) {
        return take;
    }
    let rule = take.rule().raised(factors);
    take.under(rule)
}

/// The places of the entries of a key, or where one would be inserted.
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
    let is_replaced = |it: &OperatorEntry| {
        if is_end {
            is_same_kind(it.one.kind, one.kind)
        } else {
            it.one.kind.is_raise() == is_raise
        }
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
    let policies = take.rule().policies().iter();
    let states =
        policies.map(|policy| QuotaState::new(0, time).with_max(algorithm.limit(&policy.quota())));
    let verdict = Verdict::Denied { retry_after: time };
    let mut decision = Decision::of_states(verdict, Source::Operator, states.collect());
    decision.set_hidden(|place| !take.is_shown_to_clients(place));
    decision.into()
}
