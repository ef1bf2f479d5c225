use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashTable;

use crate::decision::{Decision, Verdict};
use crate::key::Key;
use crate::rule::CountName;
use crate::sync::lock;

/// The keys that are denied most, of all rules: an approximation of bounded size.
///
/// Each shard is a *space-saving* sketch: A. Metwally, D. Agrawal and A. El Abbadi, *Efficient
/// Computation of Frequent and Top-k Elements in Data Streams*, 2005. It has a place for
/// [`PLACES`] keys. A new key takes the place of the one with the fewest denials, and goes on from
/// their number, which is by how much its own may be too high.
///
/// While nobody wants to know, nothing is kept.
#[derive(Debug, Default)]
pub(crate) struct LimitedKeys {
    is_on: AtomicBool,
    /// Seconds, as the owner says: a denial does not read a clock.
    now: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
}

const SHARDS: usize = 16;
const PLACES: usize = 64;

/// In seconds. A key that was not limited for so long is forgotten, and its next denial is a first
/// one.
const PAUSE: u64 = 60;

#[derive(Debug, Default)]
struct Shard {
    /// Where a name stands in `keys`, by its hash.
    places: HashTable<u32>,
    keys: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    hash: u64,
    key: LimitedKey,
    /// When it was denied last, in seconds.
    denied_at: u64,
    is_forgotten: bool,
}

/// A key that is or was limited.
#[derive(Debug, Clone)]
pub(crate) struct LimitedKey {
    pub(crate) path: Arc<str>,
    pub(crate) key: Key,
    /// Of how many denials is known.
    pub(crate) denials: u64,
    /// By how much that may be too many.
    pub(crate) error: u64,
    /// Since when it is denied, in seconds.
    pub(crate) since: u64,
    /// When it fits again, in milliseconds. `None` if it never does.
    pub(crate) until: Option<u64>,
}

impl LimitedKeys {
    /// Whether denials are to be [added](Self::add).
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Begins, or goes on at this second.
    pub(crate) fn set_now(&self, seconds: u64) {
        self.now.store(seconds, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// A request of this name was denied.
    pub(crate) fn add(&self, name: &CountName, decision: &Decision) {
        let now = self.now.load(Ordering::Relaxed);
        let until = match decision.verdict() {
            Verdict::Denied { retry_after } => Some(now * 1_000 + millis(retry_after)),
            Verdict::Allowed | Verdict::Never => None,
        };
        // Of the hash, a map's own part is the lower one.
        let hash = name.hash();
        let shard = &self.shards[(hash >> 48) as usize % SHARDS];
        lock(shard).add(name, hash, now, until);
    }

    /// Forgets a key: its next denial is a first one.
    pub(crate) fn forget(&self, path: &str, key: &Key) {
        for shard in &self.shards {
            for place in &mut lock(shard).keys {
                if *place.key.path == *path && place.key.key.as_str() == key.as_str() {
                    // It is over: nothing is shown of it, and its place goes to the next key.
                    place.is_forgotten = true;
                }
            }
        }
    }

    /// The keys that were denied not long ago, those with most denials first, and how many denials a
    /// key may have that is not among them.
    pub(crate) fn most_denied(&self, at_most: usize) -> (Vec<LimitedKey>, u64) {
        let now = self.now.load(Ordering::Relaxed);
        let (mut all, mut untold) = (Vec::new(), 0);
        for shard in &self.shards {
            let shard = lock(shard);
            let known = shard.keys.iter().filter(|place| !place.is_over(now));
            all.extend(known.map(|place| place.key.clone()));
            if shard.keys.len() == PLACES {
                let fewest = shard.keys.iter().map(|place| place.counted(now)).min();
                untold = untold.max(fewest.unwrap_or(0));
            }
        }
        all.sort_by_key(|key| std::cmp::Reverse(key.denials));
        untold = untold.max(all.get(at_most).map_or(0, |key| key.denials));
        all.truncate(at_most);
        (all, untold)
    }
}

impl Shard {
    fn add(&mut self, name: &CountName, hash: u64, now: u64, until: Option<u64>) {
        let keys = &self.keys;
        let known = self
            .places
            .find(hash, |at| keys[*at as usize].is(name, hash));
        let Some(at) = known.map(|at| *at as usize) else {
            self.add_new(name, hash, now, until);
            return;
        };
        let place = &mut self.keys[at];
        if place.is_over(now) {
            (place.key.denials, place.key.error, place.key.since) = (0, 0, now);
        }
        place.key.denials += 1;
        place.key.until = until;
        place.denied_at = now;
        place.is_forgotten = false;
    }

    #[cold]
    fn add_new(&mut self, name: &CountName, hash: u64, now: u64, until: Option<u64>) {
        let mut new = Place {
            hash,
            denied_at: now,
            is_forgotten: false,
            key: LimitedKey {
                path: Arc::clone(name.rule.shared_path()),
                key: name.key.clone(),
                denials: 1,
                error: 0,
                since: now,
                until,
            },
        };
        let at = if self.keys.len() < PLACES {
            self.keys.push(new);
            self.keys.len() - 1
        } else {
            let counted = self.keys.iter().map(|place| place.counted(now));
            let fewest = counted.enumerate().min_by_key(|(_, denials)| *denials);
            let Some((at, fewest)) = fewest else { return };
            new.key.denials += fewest;
            new.key.error = fewest;
            let old = std::mem::replace(&mut self.keys[at], new);
            let place = self.places.find_entry(old.hash, |it| *it as usize == at);
            if let Ok(place) = place {
                place.remove();
            }
            at
        };
        let keys = &self.keys;
        let hash_of = |at: &u32| keys[*at as usize].hash;
        self.places.insert_unique(hash, at as u32, hash_of);
    }
}

impl Place {
    fn is(&self, name: &CountName, hash: u64) -> bool {
        self.hash == hash && self.key.key == name.key && *self.key.path == *name.rule.path()
    }

    /// Whether its time has ended long ago.
    fn is_over(&self, now: u64) -> bool {
        let until = self.key.until.map_or(0, |until| until / 1_000);
        self.is_forgotten || now > self.denied_at.max(until) + PAUSE
    }

    /// Its denials, none if it is over.
    fn counted(&self, now: u64) -> u64 {
        match self.is_over(now) {
            true => 0,
            false => self.key.denials,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}
