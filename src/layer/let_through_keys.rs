use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::decide::Limited;
use crate::store::{LetThrough, Take};

/// The keys that an operator lets through for a while, of all rules of a service.
///
/// Requests read it, so that without such keys it costs one load.
#[derive(Debug, Default)]
pub(crate) struct LetThroughKeys(ArcSwapOption<Vec<Entry>>);

/// A key with its end. The list is in the order of path and key.
#[derive(Debug, Clone)]
struct Entry {
    path: Arc<str>,
    key: Arc<str>,
    by: Option<Arc<str>>,
    end: Instant,
}

impl LetThroughKeys {
    /// What of this take is limited now. Without the keys of subjects that are let through, the
    /// others decide.
    #[inline]
    pub(super) fn limited(&self, take: &Take) -> Limited {
        let entries = self.0.load();
        let Some(entries) = entries.as_ref() else {
            return Limited::Whole;
        };
        let path = take.rule().path();
        let is_let_through = |key: &str| {
            let place = place_of(entries, path, key);
            place.is_ok_and(|at| entries[at].remaining().is_some())
        };
        let Some(joint) = take.as_joint() else {
            return match is_let_through(take.key().as_str()) {
                true => Limited::Nothing,
                false => Limited::Whole,
            };
        };
        let subjects = take.rule().counted_subjects().iter().zip(joint.keys());
        let skips = subjects.map(|(subject, key)| {
            let key = key.as_ref().map(|key| key.of_subject(subject.name()));
            key.is_some_and(|key| is_let_through(key.as_str()))
        });
        let skips: SmallVec<[bool; 8]> = skips.collect();
        if !skips.contains(&true) {
            return Limited::Whole;
        }
        let others = take.without(|place| skips[place]);
        others.map_or(Limited::Nothing, |others| Limited::Part(Box::new(others)))
    }

    /// For how long the key is still let through; `None` if it is not.
    pub(crate) fn time_of(&self, path: &str, key: &str) -> Option<Duration> {
        let entries = self.0.load();
        let entries = entries.as_ref()?;
        entries[place_of(entries, path, key).ok()?].remaining()
    }

    /// Lets exactly these keys through.
    pub(crate) fn replace(&self, list: Vec<LetThrough>) {
        let mut entries = Vec::new();
        list.into_iter().for_each(|one| set(&mut entries, one));
        self.store(entries);
    }

    /// Lets one more key through, or ends it. Where no other process has a list, it returns whether
    /// there was room. Changes have to be made one at a time.
    pub(crate) fn set(&self, one: LetThrough, is_shared: bool) -> bool {
        let mut entries = self.0.load().as_deref().cloned().unwrap_or_default();
        entries.retain(|entry| entry.remaining().is_some());
        let is_known = place_of(&entries, &one.path, &one.key).is_ok();
        let has_room =
            is_shared || entries.len() < LetThrough::MAX || is_known || one.time.is_zero();
        if has_room {
            set(&mut entries, one);
            self.store(entries);
        }
        has_room
    }

    fn store(&self, entries: Vec<Entry>) {
        self.0
            .store((!entries.is_empty()).then(|| Arc::new(entries)));
    }

    /// The keys with the time that they still have, in the order of path and key.
    pub(crate) fn list(&self) -> Vec<LetThrough> {
        let entries = self.0.load();
        let entries = entries.iter().flat_map(|entries| entries.iter());
        let list = entries.filter_map(|entry| {
            Some(LetThrough {
                path: Arc::clone(&entry.path),
                key: Arc::clone(&entry.key),
                by: entry.by.clone(),
                time: entry.remaining()?,
            })
        });
        list.collect()
    }
}

impl Entry {
    fn remaining(&self) -> Option<Duration> {
        let time = self.end.saturating_duration_since(Instant::now());
        (!time.is_zero()).then_some(time)
    }
}

/// Where a key stands, or would stand.
fn place_of(entries: &[Entry], path: &str, key: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (&*entry.path, &*entry.key).cmp(&(path, key)))
}

fn set(entries: &mut Vec<Entry>, one: LetThrough) {
    let place = place_of(entries, &one.path, &one.key);
    if let Ok(at) = place {
        entries.remove(at);
    }
    if !one.time.is_zero() {
        let end = Instant::now() + one.time.min(LetThrough::MAX_TIME);
        let LetThrough { path, key, by, .. } = one;
        let entry = Entry { path, key, by, end };
        entries.insert(place.unwrap_or_else(|at| at), entry);
    }
}
