use std::sync::{Arc, Mutex, Weak};

use arc_swap::{ArcSwap, Guard};
use tokio::task::AbortHandle;

use super::applied::Applied;
use super::content_hash::ContentHash;
use super::rules::Rules;
use super::used_paths::UsedPaths;
use crate::sync::lock;

/// Rules that all layers of a service share, and that can be replaced at any time.
///
/// New rules apply to every path from the next request on. Requests in progress keep the rule that
/// they began with. Counts stay, because they belong to the store. Clones share the rules.
#[derive(Debug, Clone, Default)]
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
    /// The task that keeps the rules up to date. It ends with them.
    updater: Option<Updater>,
}

/// Owns a task: it is aborted when this is dropped.
#[derive(Debug)]
struct Updater {
    number: u64,
    task: AbortHandle,
}

impl SharedRules {
    /// Shares these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(Shared::new(rules, None)))
    }

    /// Shares the rules that a text contains.
    pub(crate) fn from_text(rules: Rules, hash: ContentHash) -> Self {
        Self(Arc::new(Shared::new(rules, Some(hash))))
    }

    /// Replaces all rules at once.
    pub fn replace(&self, rules: Rules) {
        let mut changes = lock(&self.0.changes);
        changes.applied = changes.applied.next(None, Vec::new());
        self.0.rules.store(Arc::new(rules));
    }

    /// Replaces all rules at once by those of a text. A rule that a layer uses and that the text
    /// lacks stays as it is.
    pub(crate) fn replace_unused(&self, mut rules: Rules, hash: ContentHash) -> Applied {
        // No layer begins to use a rule between the look at the used paths and the swap.
        let mut changes = lock(&self.0.changes);
        let kept = rules.keep_missing(&self.0.rules.load(), |path| changes.used.contains(path));
        changes.applied = changes.applied.next(Some(hash), kept);
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
    pub(crate) fn peek(&self) -> Guard<Arc<Rules>> {
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

    /// Whether a layer limits this path.
    pub(crate) fn uses(&self, path: &str) -> bool {
        lock(&self.0.changes).used.contains(path)
    }

    /// The paths that layers limit and that have no rule, in alphabetical order.
    pub(crate) fn paths_without_rule(&self) -> Vec<String> {
        let (changes, rules) = (lock(&self.0.changes), self.load());
        let without = changes.used.iter().filter(|path| !rules.contains(path));
        without.map(ToOwned::to_owned).collect()
    }

    /// Lets a task end with the last clone of these rules. Of two tasks the one with the higher
    /// number stays.
    pub(crate) fn own_updater(&self, number: u64, task: AbortHandle) {
        let mut new = Updater { number, task };
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

impl WeakRules {
    /// The rules; `None` if neither a layer nor anything else has them any more.
    pub(crate) fn upgrade(&self) -> Option<SharedRules> {
        self.0.upgrade().map(SharedRules)
    }
}

impl Shared {
    fn new(rules: Rules, hash: Option<ContentHash>) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules),
            changes: Mutex::new(Changes {
                applied: Applied::first(hash),
                used: UsedPaths::default(),
                updater: None,
            }),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(Rules::default(), None)
    }
}

impl Drop for Updater {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

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
}
