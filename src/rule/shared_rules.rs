use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;

use super::rule::Rule;
use super::rules::Rules;
use crate::sync::{OwnedTask, lock};
use crate::warning::{Warning, WarningKind as Kind};

/// Rules that all layers of a service share, and that can be replaced at any time.
///
/// New rules apply to every path from the next request on. Requests in progress keep the rule that
/// they began with. Counts stay, because they belong to the store. Clones share the rules.
#[derive(Debug, Clone)]
pub struct SharedRules(Arc<Shared>);

/// The rules without a claim on them: they may be gone.
#[derive(Debug, Clone)]
pub(crate) struct WeakRules(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    rules: ArcSwap<Rules>,
    /// Locked while the rules are replaced.
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    applied: Applied,
    used: UsedPaths,
    /// Those of layers that have a key, a plan or an exemption of their own.
    with_own_choice: UsedPaths,
    /// Those that `Limits::usage` shows.
    shown: UsedPaths,
    /// The task that keeps the rules up to date. It ends with them.
    updater: Option<Updater>,
}

#[derive(Debug)]
struct Updater {
    number: u64,
    _task: OwnedTask,
}

impl SharedRules {
    /// Shares these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self::with_hash(rules, None)
    }

    /// Shares rules, with the hash of the text that contains them.
    pub(crate) fn with_hash(rules: Rules, hash: Option<ContentHash>) -> Self {
        log_mistakes(&rules, None);
        Self(Arc::new(Shared {
            rules: ArcSwap::from_pointee(rules),
            changes: Mutex::new(Changes {
                applied: Applied::new(1, hash, Vec::new()),
                used: UsedPaths::default(),
                with_own_choice: UsedPaths::default(),
                shown: UsedPaths::default(),
                updater: None,
            }),
        }))
    }

    /// Replaces all rules in one step.
    pub fn replace(&self, rules: Rules) {
        let mut changes = lock(&self.0.changes);
        changes.applied = changes.applied.next(None, Vec::new());
        log_mistakes(&rules, Some(&self.0.rules.load()));
        self.0.rules.store(Arc::new(rules));
    }

    /// Replaces all rules in one step by those of a text. A rule that a layer uses and that the
    /// text lacks stays as it is.
    pub(crate) fn replace_unused(&self, mut rules: Rules, hash: ContentHash) -> Applied {
        // No layer begins to use a rule between the look at the used paths and the swap.
        let mut changes = lock(&self.0.changes);
        let old = self.0.rules.load();
        let new_counts = rules.new_counts(&old);
        let kept = rules.keep_missing(&old, |path| changes.used.contains(path));
        changes.applied = changes.applied.next(Some(hash), kept);
        changes.applied.new_counts = new_counts.into();
        log_mistakes(&rules, Some(&old));
        self.0.rules.store(Arc::new(rules));
        changes.applied.clone()
    }

    /// The current rules.
    #[must_use]
    pub fn load(&self) -> Arc<Rules> {
        self.0.rules.load_full()
    }

    /// The current rules, without the reference count that [`load`](Self::load) increments:
    /// requests of all threads read the rules.
    pub(crate) fn guard(&self) -> Guard<Arc<Rules>> {
        self.0.rules.load()
    }

    /// Describes the current rules.
    pub(crate) fn applied(&self) -> Applied {
        lock(&self.0.changes).applied.clone()
    }

    /// Notes that a layer limits this path.
    pub(crate) fn mark_used(&self, path: &str) {
        lock(&self.0.changes).used.add(path);
    }

    /// Notes that a layer of this path says itself the key or the plan of its requests, or
    /// which are exempt.
    pub(crate) fn mark_own_choice(&self, path: &str) {
        lock(&self.0.changes).with_own_choice.add(path);
    }

    /// Notes that `Limits::usage` shows this path.
    pub(crate) fn mark_shown(&self, path: &str) {
        lock(&self.0.changes).shown.add(path);
    }

    /// The paths that `Limits::usage` shows by another key or plan than a layer, in alphabetical
    /// order.
    pub(crate) fn paths_shown_otherwise(&self) -> Vec<String> {
        let changes = lock(&self.0.changes);
        let shown = changes.shown.iter();
        let otherwise = shown.filter(|path| changes.with_own_choice.contains(path));
        otherwise.map(ToOwned::to_owned).collect()
    }

    /// Whether a layer limits this path.
    pub(crate) fn uses(&self, path: &str) -> bool {
        lock(&self.0.changes).used.contains(path)
    }

    /// Whether this is the path of a rule, also while it is switched off, or of a layer.
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.guard().contains(path) || self.uses(path)
    }

    /// The paths that layers limit and that have no rule, in alphabetical order.
    pub(crate) fn paths_without_rule(&self) -> Vec<String> {
        let (changes, rules) = (lock(&self.0.changes), self.load());
        let without = changes.used.iter().filter(|path| !rules.contains(path));
        without.map(ToOwned::to_owned).collect()
    }

    /// The paths of rules that no layer uses and that are not switched off, in alphabetical order.
    pub(crate) fn paths_without_layer(&self) -> Vec<String> {
        let (changes, rules) = (lock(&self.0.changes), self.load());
        let paths = rules.iter().map(|rule| rule.path());
        let unused = paths.filter(|path| !changes.used.contains(path));
        let in_force = unused.filter(|path| rules.get(path).is_some());
        in_force.map(ToOwned::to_owned).collect()
    }

    /// Lets a task end with the last clone of these rules. Of two tasks the one with the higher
    /// number stays.
    pub(crate) fn own_updater(&self, number: u64, task: AbortHandle) {
        let _task = OwnedTask(task);
        let mut new = Updater { number, _task };
        let mut changes = lock(&self.0.changes);
        match &mut changes.updater {
            Some(newer) if newer.number > number => {}
            Some(older) => std::mem::swap(older, &mut new),
            none => *none = Some(new),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakRules {
        WeakRules(Arc::downgrade(&self.0))
    }
}

/// Logs the mistakes that the rules before did not have.
fn log_mistakes(rules: &Rules, before: Option<&Rules>) {
    let known: Vec<_> = before.into_iter().flat_map(Rules::warnings).collect();
    let new = rules.warnings().filter(|it| !known.contains(it));
    new.for_each(|it| it.log());
    let old = |new: &Rule| before?.find(new.path());
    for rule in rules.iter().filter(|it| it.ends_holds_of(old(it))) {
        Warning::new(Kind::HoldsEnded).about(rule.path()).log();
    }
}

impl WeakRules {
    /// The rules; `None` if neither a layer nor anything else has them any more.
    pub(crate) fn upgrade(&self) -> Option<SharedRules> {
        self.0.upgrade().map(SharedRules)
    }
}

impl Default for SharedRules {
    fn default() -> Self {
        Self::new(Rules::default())
    }
}

/// Describes the rules in force: their version, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    /// 1 for the rules that the service began with, and one more for each change.
    pub(crate) version: u64,
    pub(crate) at: SystemTime,
    /// The text that the rules were read from. `None` if code made them.
    pub(crate) hash: Option<ContentHash>,
    /// The paths whose rules are not in the text: they are in use, and were kept.
    pub(crate) kept: Arc<[String]>,
    /// The ids of the counts that begin anew, because the rules of before had other
    /// subjects or costs.
    pub(crate) new_counts: Arc<[String]>,
}

impl Applied {
    fn new(version: u64, hash: Option<ContentHash>, kept: Vec<String>) -> Self {
        Self {
            version,
            at: SystemTime::now(),
            hash,
            kept: kept.into(),
            new_counts: Arc::default(),
        }
    }

    /// The rules that replace these.
    fn next(&self, hash: Option<ContentHash>, kept: Vec<String>) -> Self {
        Self::new(self.version + 1, hash, kept)
    }
}

/// More paths than an application has routes; paths beyond it are not remembered one by one.
const MAX_PATHS: usize = 10_000;

/// The paths that layers limit.
#[derive(Debug, Default)]
pub(super) struct UsedPaths {
    paths: BTreeSet<Box<str>>,
    /// Whether there were more paths than are remembered.
    is_exceeded: bool,
}

impl UsedPaths {
    pub(super) fn add(&mut self, path: &str) {
        if self.paths.contains(path) {
            return;
        }
        match self.paths.len() < MAX_PATHS {
            true => _ = self.paths.insert(path.into()),
            false => self.is_exceeded = true,
        }
    }

    /// Whether a layer limits this path. Beyond the bound any path may be such a one.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.is_exceeded || self.paths.contains(path)
    }

    /// Those that are remembered, in alphabetical order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| &**path)
    }
}

/// The SHA-256 of a configuration's text, to tell whether two texts are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentHash([u8; 32]);

impl ContentHash {
    pub(crate) fn new(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

/// The first 16 of the digits that `sha256sum` prints.
impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn its_digits_are_those_of_sha256sum() {
        assert_eq!(ContentHash::new("abc").to_string(), "ba7816bf8f01cfea");
    }

    #[tokio::test]
    async fn of_two_tasks_the_one_with_the_higher_number_stays() {
        for numbers in [[1, 2], [2, 1]] {
            let rules = SharedRules::default();
            let tasks = numbers.map(|number| {
                let task = tokio::spawn(pending::<()>()).abort_handle();
                rules.own_updater(number, task.clone());
                (number, task)
            });
            tokio::task::yield_now().await;
            for (number, task) in &tasks {
                assert_eq!(task.is_finished(), *number == 1);
            }
            let clone = rules.clone();
            drop(rules);
            tokio::task::yield_now().await;
            assert!(tasks.iter().any(|(_, task)| !task.is_finished()));
            drop(clone);
            tokio::task::yield_now().await;
            assert!(tasks.iter().all(|(_, task)| task.is_finished()));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "10,000 paths take an interpreter minutes")]
    fn beyond_the_bound_every_path_counts_as_used() {
        let mut used = UsedPaths::default();
        let add = |used: &mut UsedPaths, number: usize| used.add(&number.to_string());
        (0..MAX_PATHS).for_each(|number| add(&mut used, number));
        add(&mut used, 0);
        assert!(used.contains("0") && !used.contains("other"));
        add(&mut used, MAX_PATHS);
        assert!(used.contains("other"));
        assert_eq!(used.paths.len(), MAX_PATHS);
    }
}
