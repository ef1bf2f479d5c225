use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

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
    /// Whether the key of this take is let through now.
    #[inline]
    pub(super) fn contains(&self, take: &Take) -> bool {
        let (path, key) = (take.rule().path(), take.key().as_str());
        self.time_of(path, key).is_some()
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
