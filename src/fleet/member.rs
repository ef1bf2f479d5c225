//! Keeps what is known of this process and its fleet, for pages.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::{env, fs};

use sha2::{Digest, Sha256};

use super::process::{LastSecond, Process, short_name};
use crate::key::{Key, KeyExtractor};
use crate::limits::Limits;
use crate::metrics::rates::RateHistory;
use crate::rule::{CountName, Rule, Subject};
use crate::store::OperatorKey;
use crate::sync::lock;

/// Knows this process and its fleet, for pages. Clones of [`Limits`] share it.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// This process: 16 hexadecimal digits.
    pub(crate) process: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Whether a task watches this process.
    pub(crate) has_started: bool,
    /// Whether the last runtime that could have watched it has no timer.
    pub(crate) lacks_timer: bool,
    /// Whether a page is there: without one, no rates are kept.
    pub(crate) has_page: bool,
    /// Rises with all that a view shows beside the seconds.
    pub(crate) changes: u64,
    pub(crate) rates: RateHistory,
    pub(crate) second: LastSecond,
    /// What pages call this process; empty for no name.
    pub(crate) name: String,
    /// Pages hash keys with it. It is that of the service once the fleet has one.
    pub(crate) secret: [u8; 16],
    /// The version of the keys that operators let through, block or raise.
    pub(crate) version: u64,
    /// How often this process has changed that list by itself.
    pub(crate) own_changes: u64,
    /// Whether the store accepted the last report. `None` before the first one and without a
    /// fleet.
    pub(crate) is_accepted: Option<bool>,
    /// Before this second the other processes are asked for; 0 before somebody looks.
    pub(crate) fleet_wanted_until: u64,
    /// The processes of the fleet, as of the last second. `None` until they are
    /// [wanted](Monitor::want_fleet).
    pub(crate) processes: Option<Arc<Vec<Process>>>,
}

/// A view of the fleet is kept up to date for so many seconds after somebody looked.
const FLEET_WANTED_FOR: u64 = 11;

impl Default for Monitor {
    fn default() -> Self {
        Self {
            process: hex(&random()[..8]).into(),
            state: Mutex::new(State {
                secret: random(),
                name: short_name(&host_name()),
                ..State::default()
            }),
        }
    }
}

/// What views and their operations ask.
impl Limits {
    /// What is known of this process and its fleet. All clones share it.
    pub(crate) fn monitor(&self) -> &Monitor {
        let state = self.page_state.get_or_init(|| Box::new(Monitor::default()));
        state
            .downcast_ref()
            .expect("nobody else keeps a state there")
    }

    /// Lets a key through, blocks it or raises it in this process, or ends that, without a wait for
    /// the next list. Returns whether there was room, if no other process has a list.
    pub(crate) fn set_key(&self, one: OperatorKey, is_shared: bool) -> bool {
        let mut state = self.monitor().state();
        state.own_changes += 1;
        // No list has it, so the next report brings the whole list.
        state.version = u64::MAX;
        state.changes += 1;
        self.operator_keys.set(one, is_shared)
    }

    /// What makes the keys of a path, or of a subject of its rule: in layers with a key of their
    /// own, or else in all.
    pub(crate) fn extractors(
        &self,
        path: &str,
        rule: Option<&Rule>,
        subject: Option<&Subject>,
    ) -> Vec<Arc<dyn KeyExtractor>> {
        if let Some(own) = subject.and_then(Subject::key) {
            return vec![Arc::clone(own)];
        }
        let of_layers = lock(&self.paths.counters)
            .get(path)
            .map(|it| it.notes.extractors());
        let mut extractors = of_layers.unwrap_or_default();
        if extractors.is_empty() {
            let of_rule = rule.and_then(Rule::extractor);
            extractors.extend(of_rule.or(self.defaults.default_key.as_ref()).cloned());
        }
        extractors
    }

    /// The rule with the quotas by which this process has decided about a key, or that of a
    /// subject, last, if a request has chosen them.
    pub(crate) fn last_chosen(&self, rule: &Arc<Rule>, key: &Key) -> Option<Arc<Rule>> {
        let name = CountName::new(Arc::clone(rule), key.clone());
        let last = lock(&self.paths.counters)
            .get(rule.path())
            .and_then(|it| it.notes.last_rule(&name))?;
        rule.chosen_as(&last)
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
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Somebody looks at the fleet: the other processes are asked for, for some seconds.
    pub(crate) fn want_fleet(&self) {
        let mut state = self.state();
        state.fleet_wanted_until = state.second.tick + FLEET_WANTED_FOR;
    }

    pub(crate) fn is_fleet_wanted(&self) -> bool {
        let state = self.state();
        state.second.tick < state.fleet_wanted_until
    }

    /// What pages call a key of a rule: 32 hexadecimal digits, the same in all processes. Without
    /// the secret they tell nothing of the key.
    pub(crate) fn row(&self, path: &str, key: &str) -> String {
        let secret = self.state().secret;
        let mut hash = Sha256::new();
        hash.update(secret);
        hash.update(path.len().to_be_bytes());
        hash.update(path);
        hash.update(key);
        hex(&hash.finalize()[..16])
    }
}

/// The name of this host; empty where it is not found.
fn host_name() -> String {
    let variable = env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let name = variable.or_else(|| fs::read_to_string("/etc/hostname").ok());
    name.unwrap_or_default()
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
