use std::sync::Arc;

use arc_swap::ArcSwap;

use super::rule_counters::AtomicCounter;

/// Counters by names that rules give, as those of quotas and plans. A name keeps its counter when
/// the rule changes.
#[derive(Debug, Default)]
pub(super) struct NamedCounters(ArcSwap<CounterNames>);

/// In alphabetical order.
type CounterNames = Vec<(Arc<str>, Arc<AtomicCounter>)>;

/// Beyond this number of names, those that are not in use any more are forgotten. A rule that is
/// changed back continues with its numbers, and ever new names take no memory.
pub(super) const MAX_NAMES: usize = 256;

impl NamedCounters {
    /// Counts under this name. `is_in_use` says which of too many names stay.
    #[inline]
    pub(super) fn count(&self, name: &str, is_in_use: impl Fn(&str) -> bool) {
        let known = self.0.load();
        match place_of(&known, name) {
            Ok(at) => known[at].1.add(1),
            Err(_) => self.add(name, is_in_use).add(1),
        }
    }

    #[cold]
    fn add(&self, name: &str, is_in_use: impl Fn(&str) -> bool) -> Arc<AtomicCounter> {
        let new = Arc::<AtomicCounter>::default();
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

    /// What was counted under this name.
    pub(super) fn get(&self, name: &str) -> u64 {
        let known = self.0.load();
        place_of(&known, name).map_or(0, |at| known[at].1.get())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.load().len()
    }
}

/// Where the name stands, or would stand.
fn place_of(names: &CounterNames, name: &str) -> Result<usize, usize> {
    names.binary_search_by(|(known, _)| (**known).cmp(name))
}
