use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::store::{LetThrough, Take};

/// The keys that an operator lets through for a while, of all rules of a service.
///
/// Requests read it, so that without such keys it costs one load.
#[derive(Debug, Default)]
pub(crate) struct KeysLetThrough(ArcSwapOption<Keys>);

/// Keys by the path of their rule, each with its end.
#[derive(Debug, Default, Clone)]
struct Keys(HashMap<Arc<str>, HashMap<Arc<str>, Until>>);

#[derive(Debug, Clone)]
struct Until {
    end: Instant,
    by: Option<Arc<str>>,
}

impl KeysLetThrough {
    /// Whether the key of this take is let through now.
    #[inline]
    pub(super) fn contain(&self, take: &Take) -> bool {
        let keys = self.0.load();
        keys.as_ref().is_some_and(|keys| {
            let until = keys.until(take.rule().path(), take.key().as_str());
            until.is_some_and(|until| Instant::now() < until.end)
        })
    }

    /// For how long the key is still let through; `None` if it is not.
    pub(crate) fn time_of(&self, path: &str, key: &str) -> Option<Duration> {
        let keys = self.0.load();
        let until = keys.as_ref()?.until(path, key)?;
        until.remaining()
    }

    /// Lets exactly these keys through.
    pub(crate) fn replace(&self, list: Vec<LetThrough>) {
        let mut keys = Keys::default();
        list.into_iter().for_each(|one| keys.set(one));
        self.store(keys);
    }

    /// Lets one more key through, or ends it. Where no other process has a list, it returns whether
    /// there was room. Changes have to be made one at a time.
    pub(crate) fn set(&self, one: LetThrough, is_shared: bool) -> bool {
        let mut keys = self.0.load().as_deref().cloned().unwrap_or_default();
        keys.forget_ended();
        let is_known = keys.until(&one.path, &one.key).is_some();
        let number: usize = keys.0.values().map(HashMap::len).sum();
        let has_room = is_shared || number < LetThrough::MAX || is_known || one.time.is_zero();
        if has_room {
            keys.set(one);
            self.store(keys);
        }
        has_room
    }

    fn store(&self, keys: Keys) {
        let is_empty = keys.0.values().all(HashMap::is_empty);
        self.0.store((!is_empty).then(|| Arc::new(keys)));
    }

    /// The keys with the time that they still have.
    pub(crate) fn list(&self) -> Vec<LetThrough> {
        let keys = self.0.load();
        let Some(keys) = keys.as_ref() else {
            return Vec::new();
        };
        let all = keys.0.iter().flat_map(|(path, keys)| {
            keys.iter().filter_map(|(key, until)| {
                Some(LetThrough {
                    path: Arc::clone(path),
                    key: Arc::clone(key),
                    by: until.by.clone(),
                    time: until.remaining()?,
                })
            })
        });
        all.collect()
    }
}

impl Keys {
    fn until(&self, path: &str, key: &str) -> Option<&Until> {
        self.0.get(path)?.get(key)
    }

    fn set(&mut self, one: LetThrough) {
        let of_path = self.0.entry(one.path).or_default();
        if one.time.is_zero() {
            of_path.remove(&one.key);
            return;
        }
        let end = Instant::now() + one.time.min(LetThrough::LONGEST);
        of_path.insert(one.key, Until { end, by: one.by });
    }

    fn forget_ended(&mut self) {
        for keys in self.0.values_mut() {
            keys.retain(|_, until| until.remaining().is_some());
        }
        self.0.retain(|_, keys| !keys.is_empty());
    }
}

impl Until {
    fn remaining(&self) -> Option<Duration> {
        let time = self.end.saturating_duration_since(Instant::now());
        (!time.is_zero()).then_some(time)
    }
}
