use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::memory::SharedRoom;
use super::{MemoryStore, Store};
use crate::sync::lock;
use crate::warning::Warning;

/// The memory of a fallback: a store for each path, so that a flood of keys at one path leaves room
/// at the others.
#[derive(Debug)]
pub(super) struct PathStores {
    /// The clock and the size of the others.
    like: MemoryStore,
    stores: Mutex<HashMap<Box<str>, Arc<MemoryStore>>>,
    /// How many keys all of them have.
    room: SharedRoom,
}

impl PathStores {
    /// All of them together have room for as many keys as this store, which stays empty.
    pub(super) fn new(like: MemoryStore) -> Self {
        Self {
            like,
            stores: Mutex::default(),
            room: Arc::default(),
        }
    }

    /// The store of a path, where each key is counted so many times.
    pub(super) fn of(&self, path: &str, times: usize) -> Arc<MemoryStore> {
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(path) {
            return Arc::clone(store);
        }
        let store = Arc::new(self.like.beside(&self.room, times));
        stores.insert(path.into(), Arc::clone(&store));
        store
    }

    /// Drops the keys of all paths that count no longer.
    pub(super) fn drop_forgotten(&self) {
        self.all().iter().for_each(|it| it.drop_forgotten());
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        let warned = self.all().into_iter().map(|it| it.condition().warnings);
        warned
            .into_iter()
            .find(|it| !it.is_empty())
            .unwrap_or_default()
    }

    fn all(&self) -> Vec<Arc<MemoryStore>> {
        lock(&self.stores).values().cloned().collect()
    }
}
