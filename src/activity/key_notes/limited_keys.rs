use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::decision::Verdict;
use crate::key::Key;
use crate::question::hash;
use crate::rule::Rule;
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
    shards: [Mutex<KeyShard>; SHARDS],
}

const SHARDS: usize = 16;
const PLACES: usize = 64;

/// In seconds. A key that was not limited for so long is forgotten, and its next denial is a first
/// one.
const PAUSE: u64 = 60;

/// How many whole seconds the [recent denials](LimitedKey::recent) cover.
pub(crate) const RECENT: u64 = 5;
/// Those, the second that has not ended, and room for a reader who knows of an earlier one.
const SECONDS: usize = 8;

/// A key, and the rule under which it was denied.
type RuleKey<'a> = (&'a Rule, &'a Key);

#[derive(Debug, Default)]
struct KeyShard {
    /// Where a name is in `keys`, by its hash.
    places: HashTable<u32>,
    keys: Vec<NotedKey>,
    /// Where to look for the next key that is replaced, and how many denials it has at most, unless
    /// all have more.
    cursor: usize,
    fewest: u64,
    /// The most denials of a key that was replaced, and when the last such key is over. Until then
    /// a new key may be such a one.
    replaced: u64,
    replaced_until: u64,
}

#[derive(Debug, Default)]
struct NotedKey {
    hash: u64,
    /// Without what is said as of now.
    key: LimitedKey,
    /// Since when it is denied, in seconds.
    since: u64,
    /// When it fits again, in milliseconds. `None` if it never does.
    until: Option<u64>,
    /// When it was denied last, in seconds.
    denied_at: u64,
    /// Its denials in that second and in those before it, each at its number modulo [`SECONDS`].
    by_second: [u32; SECONDS],
    is_forgotten: bool,
}

/// A key that is or was limited, as processes also tell each other. Times are in seconds.
///
/// Older processes write their fields without names, in this order.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LimitedKey {
    pub(crate) path: Arc<str>,
    /// The text of the key.
    pub(crate) key: String,
    /// How many denials are known.
    pub(crate) denials: u64,
    /// By how much that may be too many.
    pub(crate) error: u64,
    /// How long ago the first of them was.
    pub(crate) since_ago: f64,
    /// When it fits again: zero or less once it fits, `None` if it never does.
    pub(crate) until_in: Option<f64>,
    /// How many denials were in the last [`RECENT`] whole seconds.
    pub(crate) recent: u64,
    /// The plan that it was last denied under.
    pub(crate) plan: Option<Arc<str>>,
    /// Whether `until_in` is a hint: nothing but requests in progress denied it last.
    pub(crate) is_busy: bool,
    /// Whether it is held until then: what it has used did not deny it last.
    pub(crate) is_on_hold: bool,
    pub(crate) is_locked_out: bool,
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

    /// A request of this key was denied under this rule.
    pub(crate) fn add(&self, rule: &Rule, key: &Key, verdict: Verdict) {
        let now = self.now.load(Ordering::Relaxed);
        let until = match verdict {
            Verdict::Denied { retry_after }
            | Verdict::Busy { retry_after }
            | Verdict::OnHold { retry_after }
            | Verdict::LockedOut { retry_after } => Some(now * 1_000 + millis(retry_after)),
            Verdict::Allowed | Verdict::Never => None,
        };
        // A table places keys by the lowest bits of the hash and tags them by the highest ones.
        let hash = hash(rule.path().as_bytes()).rotate_left(32) ^ key.hash_in_names();
        let shard = &self.shards[(hash >> 48) as usize % SHARDS];
        lock(shard).add((rule, key), hash, now, (until, verdict));
    }

    /// Forgets a key: its next denial is a first one.
    pub(crate) fn forget(&self, path: &str, key: &str) {
        for shard in &self.shards {
            for place in &mut lock(shard).keys {
                if *place.key.path == *path && place.key.key == key {
                    // It is over: nothing is shown of it, and its place goes to the next key.
                    place.is_forgotten = true;
                }
            }
        }
    }

    /// The keys that were denied not long ago, those with most denials first, and how many denials
    /// a key may have that is not among them.
    pub(crate) fn most_denied(&self, at_most: usize) -> (Vec<LimitedKey>, u64) {
        let now = self.now.load(Ordering::Relaxed);
        let (mut all, mut untold) = (Vec::new(), 0);
        for shard in &self.shards {
            let shard = lock(shard);
            let known = shard.keys.iter().filter(|place| !place.is_over(now));
            all.extend(known.map(|place| LimitedKey {
                recent: place.recent(now),
                since_ago: now.saturating_sub(place.since) as f64,
                until_in: place.until.map(|it| it as f64 / 1_000.0 - now as f64),
                ..place.key.clone()
            }));
            untold = untold.max(shard.replaced(now));
        }
        all.sort_by_key(|key| std::cmp::Reverse(key.denials));
        untold = untold.max(all.get(at_most).map_or(0, |key| key.denials));
        all.truncate(at_most);
        (all, untold)
    }
}

impl KeyShard {
    /// With when the key fits again, and why not before.
    fn add(&mut self, name: RuleKey<'_>, hash: u64, now: u64, denial: (Option<u64>, Verdict)) {
        let keys = &self.keys;
        let is_it = |at: &u32| keys[*at as usize].is(name, hash);
        let known = self.places.find(hash, is_it);
        let at = match known {
            Some(at) => *at as usize,
            None => self.add_new(name, hash, now),
        };
        let place = &mut self.keys[at];
        // Another thread may have read a later second.
        let now = now.max(place.denied_at);
        if place.is_over(now) {
            (place.key.denials, place.key.error, place.since) = (0, 0, now);
            place.by_second = [0; SECONDS];
        }
        for ago in 0..(now - place.denied_at).min(SECONDS as u64) {
            *place.in_second(now - ago) = 0;
        }
        *place.in_second(now) += 1;
        place.key.denials += 1;
        let (until, verdict) = denial;
        place.until = until;
        place.key.is_busy = matches!(verdict, Verdict::Busy { .. });
        place.key.is_on_hold = matches!(verdict, Verdict::OnHold { .. });
        place.key.is_locked_out = matches!(verdict, Verdict::LockedOut { .. });
        place.denied_at = now;
        place.is_forgotten = false;
        if place.key.plan.as_deref() != name.0.plan() {
            place.key.plan = name.0.plan().map(Arc::from);
        }
    }

    /// A place for a name that has none; its denials are those that it may have had before.
    #[cold]
    fn add_new(&mut self, (rule, key): RuleKey<'_>, hash: u64, now: u64) -> usize {
        let path = rule.shared_path();
        let (at, fewest) = if self.keys.len() < PLACES {
            self.keys.push(NotedKey::default());
            (self.keys.len() - 1, 0)
        } else {
            let (at, fewest) = self.fewest(now);
            if fewest > 0 {
                self.replaced = self.replaced(now).max(fewest);
                self.replaced_until = self.replaced_until.max(self.keys[at].over_after());
            }
            let old = self.keys[at].hash;
            let place = self.places.find_entry(old, |it| *it as usize == at);
            if let Ok(place) = place {
                place.remove();
            }
            (at, self.replaced(now))
        };
        let place = &mut self.keys[at];
        (place.hash, place.denied_at, place.is_forgotten) = (hash, now, false);
        (place.by_second, place.since) = ([0; SECONDS], now);
        // The memory of the key that was there is used again.
        key.as_str().clone_into(&mut place.key.key);
        if !Arc::ptr_eq(&place.key.path, path) {
            place.key.path = Arc::clone(path);
        }
        (place.key.denials, place.key.error) = (fewest, fewest);
        let keys = &self.keys;
        let hash_of = |at: &u32| keys[*at as usize].hash;
        self.places.insert_unique(hash, at as u32, hash_of);
        at
    }
}

impl KeyShard {
    /// The most denials that a key may have which has no place.
    fn replaced(&self, now: u64) -> u64 {
        if now > self.replaced_until {
            0
        } else {
            self.replaced
        }
    }

    /// The place with the fewest denials, and their number. Numbers grow, and in a flood of new
    /// keys many places have the same, so it is one of the next few.
    fn fewest(&mut self, now: u64) -> (usize, u64) {
        for _ in 0..self.keys.len() {
            let at = self.cursor;
            self.cursor = (at + 1) % self.keys.len();
            let counted = self.keys[at].counted(now);
            if counted <= self.fewest {
                return (at, counted);
            }
        }
        let counted = self.keys.iter().map(|place| place.counted(now));
        let fewest = counted.enumerate().min_by_key(|(_, it)| *it);
        let (at, fewest) = fewest.unwrap_or_default();
        (self.cursor, self.fewest) = ((at + 1) % self.keys.len(), fewest);
        (at, fewest)
    }
}

impl NotedKey {
    fn is(&self, (rule, key): RuleKey<'_>, hash: u64) -> bool {
        let path = rule.shared_path();
        let is_path = || Arc::ptr_eq(&self.key.path, path) || self.key.path == *path;
        self.hash == hash && self.key.key == key.as_str() && is_path()
    }

    /// How often it was denied in this second, one of the last [`SECONDS`].
    fn in_second(&mut self, second: u64) -> &mut u32 {
        &mut self.by_second[second as usize % SECONDS]
    }

    /// Its denials in the whole seconds before this one.
    fn recent(&self, now: u64) -> u64 {
        let seconds = now.saturating_sub(RECENT)..now;
        let seconds = seconds.filter(|second| *second <= self.denied_at);
        let denials = seconds.map(|second| self.by_second[second as usize % SECONDS]);
        denials.map(u64::from).sum()
    }

    /// Whether its time has ended long ago.
    fn is_over(&self, now: u64) -> bool {
        self.is_forgotten || now > self.over_after()
    }

    /// The last second of its time, and some more.
    fn over_after(&self) -> u64 {
        let until = self.until.map_or(0, |until| until / 1_000);
        self.denied_at.max(until) + PAUSE
    }

    /// Its denials, none if it is over.
    fn counted(&self, now: u64) -> u64 {
        let denials = self.key.denials;
        if self.is_over(now) { 0 } else { denials }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    /// The number of a key is never too low, and by at most `error` too high, also where the heavy
    /// keys come first and a long tail of others behind.
    #[test]
    fn numbers_are_right_within_their_error() {
        let rule = Arc::new(Rule::new("search", [Quota::per_minute(1)]).expect("a rule"));
        let keys = LimitedKeys::default();
        keys.set_now(1);
        let mut exact = std::collections::HashMap::new();
        for round in 0..4_u64 {
            for number in 0..20_000_u64 {
                let times = if number < 50 {
                    500 - number
                } else {
                    1 + round % 2
                };
                let key = Key::from(number);
                for _ in 0..times {
                    keys.add(&rule, &key, Verdict::Never);
                }
                *exact.entry(key.as_str().to_owned()).or_insert(0) += times;
            }
        }
        let (known, untold) = keys.most_denied(usize::MAX);
        assert_eq!(known.len(), SHARDS * PLACES);
        for one in &known {
            let exact = exact[&one.key];
            assert!(
                exact <= one.denials && one.denials <= exact + one.error,
                "{one:?} {exact}"
            );
        }
        for (key, exact) in exact {
            let is_known = known.iter().any(|one| one.key == key);
            assert!(is_known || exact <= untold, "{key}: {exact} {untold}");
        }
    }

    /// A key that lost its place to another one comes back to a place that is free.
    #[test]
    fn what_was_forgotten_for_room_is_within_the_error() {
        let rule = Arc::new(Rule::new("search", [Quota::per_minute(1)]).expect("a rule"));
        let mut shard = KeyShard::default();
        let mut deny = |number: u64, now: u64, times: u64| {
            let key = Key::from(number);
            let (name, hash) = ((&*rule, &key), key.hash_in_names());
            let denial = (Some(now * 1_000), Verdict::Never);
            (0..times).for_each(|_| shard.add(name, hash, now, denial));
            let place = shard.keys.iter().find(|place| place.is(name, hash));
            place.map(|place| (place.key.denials, place.key.error))
        };
        let (victim, other) = (1_000, 1_001);
        for number in 1..PLACES as u64 {
            assert_eq!(deny(number, 1, 20), Some((20, 0)));
        }
        assert_eq!(deny(0, 1, 1), Some((1, 0)));
        assert_eq!(deny(victim, 30, 3), Some((4, 1)));
        assert_eq!(
            deny(other, 31, 1),
            Some((5, 4)),
            "it takes the victim's place"
        );
        // All that was denied in the first second is over by now.
        assert_eq!(
            deny(victim, 62, 1),
            Some((5, 4)),
            "of which four were its own"
        );
        assert_eq!(deny(2_000, 200, 1), Some((1, 0)), "all of it is over");
    }
}
