//! Keeps what is known of this process and its fleet, for pages.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::fleet::{LastSecond, Process};
use super::limits::Limits;
use super::rates::RateHistory;
use crate::key::{Key, KeyExtractor};
use crate::layer::KeysLetThrough;
use crate::metrics::{LimitedKey, RuleSnapshot};
use crate::rule::Rule;
use crate::store::LetThrough;
use crate::sync::lock;

/// Knows this process and its fleet, for pages. Clones of [`Limits`] share it.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// This process: 16 hexadecimal digits.
    pub(crate) process: Arc<str>,
    pub(super) has_started: AtomicBool,
    /// Whether a page is there: without one, no rates are kept.
    pub(super) has_page: AtomicBool,
    pub(super) state: Mutex<State>,
    /// Rises with whatever a view shows beside the seconds.
    pub(crate) changes: AtomicU64,
    /// When a page asked for the fleet last, in seconds.
    fleet_wanted_at: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) rates: RateHistory,
    pub(super) second: LastSecond,
    /// Pages hash keys with it. It is that of the service once the fleet has one.
    pub(super) secret: [u8; 16],
    /// The version of the list of keys that are let through.
    pub(super) version: u64,
    /// How often this process has changed that list by itself.
    pub(super) own_changes: u64,
    /// Whether the last report was kept. `None` before the first one, and without a fleet.
    pub(super) is_kept: Option<bool>,
    /// `None` while nobody has asked for them.
    pub(super) processes: Option<Arc<Vec<Process>>>,
}

/// A view of the fleet is kept up to date for so many seconds after somebody looked.
const FLEET_WANTED_FOR: u64 = 10;

impl Default for Monitor {
    fn default() -> Self {
        Self {
            process: hex(&random()[..8]).into(),
            has_started: AtomicBool::new(false),
            has_page: AtomicBool::new(false),
            state: Mutex::new(State {
                secret: random(),
                ..State::default()
            }),
            changes: AtomicU64::new(0),
            fleet_wanted_at: AtomicU64::new(u64::MAX / 2),
        }
    }
}

/// What views and their operations ask.
impl Limits {
    /// How this process fares, for the fleet and for its own page.
    pub(crate) fn own_process(&self) -> Process {
        let second = lock(&self.monitor.state).second.clone();
        Process::own(self, &self.monitor.process, &second)
    }

    /// The keys that an operator lets through.
    pub(crate) fn let_through(&self) -> &KeysLetThrough {
        &self.defaults.let_through
    }

    /// Lets a key through in this process, or ends that, without a wait for the next list. Returns
    /// whether there was room, if no other process has a list.
    pub(crate) fn let_key_through(&self, one: LetThrough, is_shared: bool) -> bool {
        let mut state = lock(&self.monitor.state);
        state.own_changes += 1;
        // No list has it, so the next report brings the whole list.
        state.version = u64::MAX;
        let is_added = self.let_through().set(one, is_shared);
        drop(state);
        self.monitor.changed();
        is_added
    }

    /// What the layers of a path have counted under its rule.
    pub(crate) fn snapshot_of(&self, rule: &Rule) -> Option<RuleSnapshot> {
        self.paths.snapshot_of(rule)
    }

    /// All keys of this process that were denied not long ago.
    pub(crate) fn denied_keys(&self) -> Vec<LimitedKey> {
        self.paths.limited.most_denied(usize::MAX).0
    }

    /// What makes the keys of a rule, for layers without a key of their own.
    pub(crate) fn extractor<'a>(&'a self, rule: &'a Rule) -> Option<&'a dyn KeyExtractor> {
        rule.extractor().or(self.defaults.key.as_deref())
    }

    /// Forgets who was denied, of one key.
    pub(crate) fn forget_denials(&self, path: &str, key: &Key) {
        self.paths.limited.forget(path, key);
    }

    /// Whether the newest rules were refused.
    pub(crate) fn is_reload_failing(&self) -> bool {
        #[cfg(feature = "config")]
        let is_failing = self.status().error.is_some();
        #[cfg(not(feature = "config"))]
        let is_failing = false;
        is_failing
    }
}

impl Monitor {
    /// The seconds since this process began to watch.
    pub(crate) fn tick(&self) -> u64 {
        lock(&self.state).second.tick
    }

    /// Something that a view shows has changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the store kept the last report; `None` without a fleet.
    pub(crate) fn is_kept(&self) -> Option<bool> {
        lock(&self.state).is_kept
    }

    pub(crate) fn with_rates<R>(&self, read: impl FnOnce(&RateHistory) -> R) -> R {
        read(&lock(&self.state).rates)
    }

    /// The processes of the fleet, as of the last second. `None` at first: they are asked for while
    /// somebody looks.
    pub(crate) fn processes(&self) -> Option<Arc<Vec<Process>>> {
        let state = lock(&self.state);
        self.fleet_wanted_at
            .store(state.second.tick, Ordering::Relaxed);
        state.processes.clone()
    }

    pub(super) fn is_fleet_wanted(&self) -> bool {
        let wanted_at = self.fleet_wanted_at.load(Ordering::Relaxed);
        let now = self.tick();
        (wanted_at..=wanted_at.saturating_add(FLEET_WANTED_FOR)).contains(&now)
    }

    /// What pages call a key of a rule: 32 hexadecimal digits, the same in all processes. Without
    /// the secret they tell nothing of the key.
    pub(crate) fn row(&self, path: &str, key: &str) -> String {
        let secret = lock(&self.state).secret;
        let mut hash = Sha256::new();
        hash.update(secret);
        hash.update(path.len().to_be_bytes());
        hash.update(path);
        hash.update(key);
        hex(&hash.finalize()[..16])
    }
}

/// Random bits of the operating system, which seeds the maps of the standard library.
fn random() -> [u8; 16] {
    let (one, other) = (RandomState::new(), RandomState::new());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.hash_one(0_u8).to_be_bytes());
    bytes[8..].copy_from_slice(&other.hash_one(1_u8).to_be_bytes());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
