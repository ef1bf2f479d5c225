use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::decide::Limited;
use crate::decision::{Decision, QuotaState};
use crate::store::{OperatorKey, OperatorKind, Take};

/// The keys that an operator lets through or blocks for a while, of all rules of a service.
///
/// Requests read it, so that without such keys it costs one load.
#[derive(Debug, Default)]
pub(crate) struct OperatorKeys(ArcSwapOption<Vec<OperatorEntry>>);

/// A key with its end: the time counts from when it was set. The list is in the order of path and key.
#[derive(Debug, Clone)]
struct OperatorEntry {
    one: OperatorKey,
    end: Instant,
}

impl OperatorKeys {
    /// What of this take is limited now. A blocked key of any subject denies it, unless the rule is
    /// a shadow rule. Without the keys of subjects that are let through, the others decide.
    #[inline]
    pub(super) fn limited(&self, take: &Take) -> Limited {
        let entries = self.0.load();
        let Some(entries) = entries.as_ref() else {
            return Limited::Whole;
        };
        let rule = take.rule();
        let find = |key: &str| {
            let found = find(entries, rule.path(), key);
            found.filter(|(kind, _)| *kind == OperatorKind::LetThrough || !rule.is_shadow())
        };
        let Some(joint) = take.as_joint() else {
            return match find(take.key().as_str()) {
                None => Limited::Whole,
                Some((OperatorKind::LetThrough, _)) => Limited::LetThrough,
                Some((OperatorKind::Blocked, time)) => Limited::Blocked(blocked(take, time)),
            };
        };
        let subjects = rule.counted_subjects().iter().zip(joint.keys());
        let found = subjects.map(|(subject, key)| {
            let key = key.as_ref().map(|key| key.of_subject(subject.name()))?;
            find(key.as_str())
        });
        let found: SmallVec<[Option<_>; 8]> = found.collect();
        match found.iter().flatten().max() {
            None => Limited::Whole,
            Some((OperatorKind::Blocked, time)) => Limited::Blocked(blocked(take, *time)),
            Some((OperatorKind::LetThrough, _)) => {
                let others = take.without(|place| found[place].is_some());
                others.map_or(Limited::LetThrough, |others| {
                    Limited::Part(Box::new(others))
                })
            }
        }
    }

    /// What an operator does with the key, and for how long still.
    pub(crate) fn find(&self, path: &str, key: &str) -> Option<(OperatorKind, Duration)> {
        find(self.0.load().as_ref()?, path, key)
    }

    /// Lets exactly these keys through, and blocks exactly these.
    pub(crate) fn replace(&self, mut list: Vec<OperatorKey>) {
        // What is blocked is blocked, whatever else the list says of it.
        list.sort_by_key(|one| one.kind);
        let mut entries = Vec::new();
        list.into_iter().for_each(|one| set(&mut entries, one));
        self.store(entries);
    }

    /// Lets one more key through or blocks it, or ends that. Where no other process has a list, it
    /// returns whether there was room. Changes have to be made one at a time.
    pub(crate) fn set(&self, one: OperatorKey, is_shared: bool) -> bool {
        let mut entries = self.0.load().as_deref().cloned().unwrap_or_default();
        entries.retain(|entry| entry.remaining().is_some());
        let is_other = |it: &OperatorKey| (&it.path, &it.key) != (&one.path, &one.key);
        let others = entries.iter().map(|entry| &entry.one);
        let others = others.filter(|it| it.kind == one.kind && is_other(it));
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
                time: entry.remaining()?,
                ..entry.one.clone()
            })
        });
        list.collect()
    }
}

impl OperatorEntry {
    fn remaining(&self) -> Option<Duration> {
        let time = self.end.saturating_duration_since(Instant::now());
        (!time.is_zero()).then_some(time)
    }
}

/// Where a key stands, or would stand.
fn place_of(entries: &[OperatorEntry], path: &str, key: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (&*entry.one.path, &*entry.one.key).cmp(&(path, key)))
}

fn find(entries: &[OperatorEntry], path: &str, key: &str) -> Option<(OperatorKind, Duration)> {
    let entry = &entries[place_of(entries, path, key).ok()?];
    Some((entry.one.kind, entry.remaining()?))
}

/// What is of another kind stays where this one ends.
fn set(entries: &mut Vec<OperatorEntry>, one: OperatorKey) {
    let place = place_of(entries, &one.path, &one.key);
    let is_end = one.time.is_zero();
    if let Ok(at) = place
        && !(is_end && entries[at].one.kind != one.kind)
    {
        entries.remove(at);
    }
    if !is_end {
        let end = Instant::now() + one.time.min(OperatorKey::MAX_TIME);
        entries.insert(place.unwrap_or_else(|at| at), OperatorEntry { one, end });
    }
}

/// The denial of a take whose key is blocked for this time. What the store has left is not known.
#[cold]
fn blocked(take: &Take, time: Duration) -> Box<Decision> {
    let states = take.rule().policies().iter().map(|policy| {
        let state = QuotaState::new(0, time);
        match policy.is_hidden() {
            true => state.hidden(),
            false => state,
        }
    });
    Decision::blocked(time, states.collect()).into()
}
