use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Counters by names that rules give, as those of quotas and plans. A name keeps its counters when
/// the rule changes.
pub(super) struct NamedCounters<T>(ArcSwap<Names<T>>);

/// In alphabetical order.
type Names<T> = Vec<(Arc<str>, Arc<T>)>;

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
        match place_of(&known, name) {
            Ok(at) => count(&known[at].1),
            Err(_) => count(&self.add(name, is_in_use)),
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
            if let Err(at) = place_of(&names, name) {
                names.insert(at, (name.into(), Arc::clone(&new)));
            }
            names
        });
        let known = place_of(&before, name);
        known.map_or(new, |at| Arc::clone(&before[at].1))
    }

    /// What `read` makes of the counters of a name; the default if nothing was counted.
    pub(super) fn read<R: Default>(&self, name: &str, read: impl FnOnce(&T) -> R) -> R {
        let known = self.0.load();
        let at = place_of(&known, name);
        at.map_or_else(|_| R::default(), |at| read(&known[at].1))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.load().len()
    }
}

/// Where the name stands, or would stand.
fn place_of<T>(names: &Names<T>, name: &str) -> Result<usize, usize> {
    names.binary_search_by(|(known, _)| (**known).cmp(name))
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
