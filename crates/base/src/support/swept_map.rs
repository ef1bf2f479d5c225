use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};

/// A map that from time to time drops the entries that are not needed any more.
#[derive(Debug)]
pub struct SweptMap<K, V> {
    map: HashMap<K, V>,
    /// The number of entries from which on the map is swept.
    sweep_at: usize,
    /// When it was swept last because it was full, in microseconds.
    swept_full_at: Option<u64>,
}

impl<K: Eq + Hash, V> SweptMap<K, V> {
    /// The map is not swept below this number of entries.
    pub const MIN_SWEEP: usize = 64;

    /// Drops entries that are not needed, whenever their number has doubled: looking at all of them
    /// for each new one would take too long.
    pub fn sweep(&mut self, is_needed: impl Fn(&V) -> bool) {
        if self.map.len() >= self.sweep_at {
            self.map.retain(|_, value| is_needed(value));
            self.sweep_at = Self::MIN_SWEEP.max(2 * self.map.len());
            self.map.shrink_to(self.sweep_at);
        }
    }

    /// Whether there is room for so many more entries, of at most `max`. A map that is full is swept
    /// for that, ten times in a second at most: a flood does not make each caller look at all
    /// entries. `now` is in microseconds, of any clock.
    pub fn has_room(
        &mut self,
        new: usize,
        max: usize,
        now: u64,
        is_needed: impl Fn(&V) -> bool,
    ) -> bool {
        const PAUSE: u64 = 100_000;
        let is_full = |map: &HashMap<K, V>| map.len().saturating_add(new) > max;
        let is_due = self
            .swept_full_at
            .is_none_or(|at| now.abs_diff(at) >= PAUSE);
        if is_full(&self.map) && is_due {
            self.swept_full_at = Some(now);
            self.map.retain(|_, value| is_needed(value));
        }
        !is_full(&self.map)
    }
}

impl<K, V> Default for SweptMap<K, V> {
    fn default() -> Self {
        Self {
            map: HashMap::new(),
            sweep_at: 0,
            swept_full_at: None,
        }
    }
}

impl<K, V> Deref for SweptMap<K, V> {
    type Target = HashMap<K, V>;

    fn deref(&self) -> &HashMap<K, V> {
        &self.map
    }
}

impl<K, V> DerefMut for SweptMap<K, V> {
    fn deref_mut(&mut self) -> &mut HashMap<K, V> {
        &mut self.map
    }
}
