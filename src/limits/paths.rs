use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::activity::key_notes::{KeyNotes, LimitedKeys};
use crate::charge::PathState;
use crate::metrics::{NearLimit, RuleCounters, Snapshot};
use crate::question::{Ask, CountAsk};
use crate::rule::{Rule, Rules};
use crate::sync::lock;
use crate::trace;
use crate::unawaited::UnawaitedCalls;

/// More paths than an application has routes; paths beyond it are not remembered.
pub(super) const MAX_PATHS: usize = 10_000;

/// What layers share, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) states: Mutex<BTreeMap<Box<str>, Arc<PathState>>>,
    /// Questions about paths that have no counters.
    pub(super) unmatched: AtomicU64,
    /// Whether nobody may wait any more.
    is_stopping: AtomicBool,
    /// Threads and tasks that own the paths and end with the last layer.
    watchers: AtomicUsize,
    pub(crate) limited: Arc<LimitedKeys>,
    /// Callbacks of crossings and lock-outs, also of paths that are not remembered.
    pub(super) tellings: UnawaitedCalls,
    /// Resets of a path by nobody who is named: when the log told of them last, and how many it has
    /// not told.
    resets: Mutex<HashMap<Arc<str>, Resets>>,
}

type Resets = (Option<Instant>, u64);

impl Paths {
    /// Whether neither a layer nor a check has asked for counters yet.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.states).is_empty()
    }

    /// What all layers of a path share; a path too many has counters that nobody reads.
    pub(super) fn add(&self, path: &str, near_limit: NearLimit) -> Arc<PathState> {
        let mut paths = lock(&self.states);
        if let Some(known) = paths.get(path) {
            return Arc::clone(known);
        }
        let state = Arc::new(PathState {
            counters: RuleCounters::new(near_limit),
            notes: KeyNotes::new(&self.limited),
            all_tellings: self.tellings.clone(),
            ..PathState::default()
        });
        if self.is_stopping.load(Ordering::Acquire) {
            state.open.queues().close();
        }
        if paths.len() < MAX_PATHS {
            paths.insert(path.into(), Arc::clone(&state));
        }
        state
    }

    /// Whether layers of this rule's path, or the rule, are fair to those that wait, and no layer lets
    /// requests wait.
    pub(super) fn lacks_turns(&self, rule: &Rule) -> bool {
        let states = lock(&self.states);
        let turns = states.get(rule.path()).map(|it| &it.turns);
        turns.is_some_and(|it| {
            let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            let is_fair = rule.fair_by().is_some() || is(&it.has_fair_layer);
            is(&it.has_layer) && is_fair && !is(&it.may_wait)
        })
    }

    /// Denies those that wait, whatever their path, and lets nobody wait from now on.
    pub(super) fn stop_waiting(&self) {
        let states = lock(&self.states);
        self.is_stopping.store(true, Ordering::Release);
        states.values().for_each(|it| it.open.queues().close());
    }

    /// These counts were reset: all requests that wait for their units ask.
    pub(super) fn was_reset(&self, path: &str, counts: &[Ask]) {
        if let Some(state) = lock(&self.states).get(path) {
            let hashes = counts.iter().flat_map(Ask::counts).map(CountAsk::hash);
            hashes.for_each(|hash| state.open.was_reset(hash));
        }
    }

    /// Logs what was denied since the last time.
    pub(super) fn log_denials(&self) {
        #[cfg(feature = "tracing")]
        {
            // Not while they are locked: a subscriber may ask for a snapshot.
            let states = lock(&self.states).clone();
            for (path, state) in states {
                state.counters.log_denials(&path);
            }
        }
    }

    /// Counts a reset by nobody who is named; at most once in a while the log has their number.
    pub(super) fn count_reset(&self, path: &Arc<str>) {
        let mut all = lock(&self.resets);
        let (told, untold) = all.entry(Arc::clone(path)).or_default();
        *untold += 1;
        // A line for each login would flood the log.
        if told.is_none_or(|it| it.elapsed().as_secs() >= 10) {
            let (path, resets) = (&**path, std::mem::take(untold));
            *told = Some(Instant::now());
            drop(all);
            trace::event!(info: path, resets, "counts of keys were reset by code");
        }
    }

    /// What the layers have counted under these rules.
    pub(super) fn snapshot(&self, rules: &Rules) -> Snapshot {
        let paths = lock(&self.states);
        let counted = paths.iter().filter_map(|(path, state)| {
            let rule = rules.find(path)?;
            Some(state.snapshot(rule))
        });
        let unmatched = paths.values().map(|it| it.counters.unmatched.get());
        Snapshot {
            rules: counted.collect(),
            unmatched: unmatched.sum::<u64>() + self.unmatched.load(Ordering::Relaxed),
        }
    }

    /// One more thread or task owns the paths from now on, until they are unused.
    pub(crate) fn add_watcher(&self) {
        self.watchers.fetch_add(1, Ordering::Relaxed);
    }

    /// A watcher ends.
    pub(crate) fn remove_watcher(&self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether only watchers own the paths, and no layer of them is left.
    pub(crate) fn are_unused(self: &Arc<Self>) -> bool {
        // Without another owner, no layer can be made any more.
        let is_only_watched = Arc::strong_count(self) <= self.watchers.load(Ordering::Relaxed);
        is_only_watched
            && lock(&self.states)
                .values()
                .all(|it| Arc::strong_count(it) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "20,000 paths take an interpreter an hour")]
    fn paths_are_bounded() {
        let paths = Paths::default();
        let add = |number: usize| paths.add(&number.to_string(), NearLimit::default());
        (0..2 * MAX_PATHS).for_each(|number| drop(add(number)));
        assert_eq!(lock(&paths.states).len(), MAX_PATHS);
        assert!(Arc::ptr_eq(&add(0), &add(0)), "layers of a path share them");
    }
}
