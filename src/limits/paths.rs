use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More paths than an application has routes; paths beyond it are not remembered.
const MAX_PATHS: usize = 10_000;

/// The paths that layers were made for, each with whether a warning was given that it has no rule.
#[derive(Debug, Default)]
pub(super) struct Paths(Mutex<BTreeMap<Box<str>, bool>>);

impl Paths {
    /// Remembers a path that has a rule.
    pub(super) fn add(&self, path: &str) {
        let mut paths = self.lock();
        if paths.len() < MAX_PATHS && !paths.contains_key(path) {
            paths.insert(path.into(), false);
        }
    }

    /// Remembers a path that has no rule. Whether to warn of it: once for each path.
    pub(super) fn add_without_rule(&self, path: &str) -> bool {
        self.add(path);
        let mut paths = self.lock();
        let warned = paths.get_mut(path);
        warned.is_some_and(|warned| !std::mem::replace(warned, true))
    }

    /// The paths that this is true of, in alphabetical order.
    pub(super) fn filter(&self, mut is_wanted: impl FnMut(&str) -> bool) -> Vec<String> {
        let paths = self.lock();
        let wanted = paths.keys().filter(|path| is_wanted(path));
        wanted.map(ToString::to_string).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, bool>> {
        // A map is whole after every panic in here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_for_each_path() {
        let paths = Paths::default();
        assert!(paths.add_without_rule("a"));
        assert!(!paths.add_without_rule("a"));
        paths.add("b");
        assert!(paths.add_without_rule("b"), "its rule is gone");
        paths.add("b");
        assert!(!paths.add_without_rule("b"));
        assert_eq!(paths.filter(|_| true), ["a", "b"]);
        assert_eq!(paths.filter(|path| path == "b"), ["b"]);
    }

    #[test]
    fn paths_are_bounded() {
        let paths = Paths::default();
        let warnings = (0..2 * MAX_PATHS).filter(|number| {
            let path = number.to_string();
            paths.add_without_rule(&path)
        });
        assert_eq!(warnings.count(), MAX_PATHS);
        assert_eq!(paths.filter(|_| true).len(), MAX_PATHS);
    }
}
