use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Counters by names that rules give, as those of quotas and plans. A name keeps its counters when
/// the rule changes.
pub(super) struct NamedCounters<T>(ArcSwap<Vec<(Box<str>, Arc<T>)>>);

/// Beyond this number of names, those that are not in use any more are forgotten. A rule that is
/// changed back continues with its numbers, and ever new names take no memory.
pub(super) const MAX_NAMES: usize = 256;

impl<T: Default> NamedCounters<T> {
    /// Counts under this name. `is_in_use` says which of too many names stay.
    #[inline]
    pub(super) fn count(
        &self,
        name: &str,
        is_in_use: impl Fn(&str) -> bool,
        count: impl FnOnce(&T),
    ) {
        let known = self.0.load();
        match known.iter().find(|(known, _)| **known == *name) {
            Some((_, counters)) => count(counters),
            None => count(&self.add(name, is_in_use)),
        }
    }

    #[cold]
    fn add(&self, name: &str, is_in_use: impl Fn(&str) -> bool) -> Arc<T> {
        let new = Arc::<T>::default();
        let before = self.0.rcu(|known| {
            let mut names = Vec::clone(known);
            if names.len() >= MAX_NAMES {
                names.retain(|(name, _)| is_in_use(name));
            }
            if !names.iter().any(|(known, _)| **known == *name) {
                names.push((name.into(), Arc::clone(&new)));
            }
            names
        });
        let known = before.iter().find(|(known, _)| **known == *name);
        known.map_or(new, |(_, counters)| Arc::clone(counters))
    }

    /// What `read` makes of the counters of a name; the default if nothing was counted.
    pub(super) fn read<R: Default>(&self, name: &str, read: impl FnOnce(&T) -> R) -> R {
        let known = self.0.load();
        let known = known.iter().find(|(known, _)| **known == *name);
        known.map_or_else(R::default, |(_, counters)| read(counters))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.load().len()
    }
}

impl<T> Default for NamedCounters<T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<T> fmt::Debug for NamedCounters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedCounters").finish_non_exhaustive()
    }
}
