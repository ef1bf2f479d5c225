use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};

/// A map that from time to time drops the entries that are not needed any more.
#[derive(Debug)]
pub struct SweptMap<K, V> {
    map: HashMap<K, V>,
    /// The number of entries from which on the map is swept.
    sweep_at: usize,
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
}

impl<K, V> Default for SweptMap<K, V> {
    fn default() -> Self {
        Self {
            map: HashMap::new(),
            sweep_at: 0,
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
