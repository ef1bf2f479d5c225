use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::backend::{Backend, Id, Wanted};
use super::batcher::Batcher;

/// A client of limiters: its identity, and the questions of its callers by the limiter's name.
#[derive(Debug)]
pub(super) struct Client {
    /// The first half of the identities of its grants.
    id: [u8; 8],
    number: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    batchers: HashMap<Arc<str>, Vec<Weak<Batcher>>>,
    /// At so many names, those are dropped that nobody asks for any more.
    limit: usize,
}

impl Client {
    const MIN_LIMIT: usize = 64;

    pub(super) fn new(id: [u8; 8]) -> Self {
        Self {
            id,
            number: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) const fn id(&self) -> [u8; 8] {
        self.id
    }

    pub(super) fn next_id(&self) -> Id {
        let number = self.number.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id);
        id[8..].copy_from_slice(&number);
        id
    }

    pub(super) fn batcher(&self, what: &Wanted, backend: &Arc<dyn Backend>) -> Arc<Batcher> {
        let mut known = self.known();
        if known.batchers.len() >= known.limit {
            known.batchers.retain(|_, of_name| is_asked_for(of_name));
            known.limit = Self::MIN_LIMIT.max(2 * known.batchers.len());
            let limit = known.limit;
            known.batchers.shrink_to(limit);
        }
        let of_name = known.batchers.entry(Arc::clone(&what.name)).or_default();
        let mut living = of_name.iter().filter_map(Weak::upgrade);
        if let Some(batcher) = living.find(|batcher| batcher.what == *what) {
            return batcher;
        }
        of_name.retain(|batcher| batcher.strong_count() > 0);
        let batcher = Arc::new(Batcher::new(what, backend));
        of_name.push(Arc::downgrade(&batcher));
        batcher
    }

    /// The rate is another one, or permits came back: whoever waits asks again.
    pub(super) fn changed(&self, name: &str) {
        let of_name = self.known().batchers.get(name).cloned().unwrap_or_default();
        for batcher in of_name.iter().filter_map(Weak::upgrade) {
            batcher.changed();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_asked_for(of_name: &[Weak<Batcher>]) -> bool {
    of_name.iter().any(|batcher| batcher.strong_count() > 0)
}
