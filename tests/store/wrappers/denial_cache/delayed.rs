//! A store a round trip away.

use crate::prelude::*;

/// Decides after the time of the way there, and is heard after that of the way back. Clones are the
/// same store.
#[derive(Debug, Clone)]
pub(super) struct Delayed {
    pub(super) memory: Arc<MemoryStore>,
    pub(super) store: Stub,
    ways: Arc<Mutex<(Duration, Duration)>>,
}

impl Delayed {
    pub(super) fn new(there: Duration, back: Duration) -> Self {
        let memory = Arc::new(MemoryStore::new().tokio_clock());
        let ways = Arc::new(Mutex::new((there, back)));
        let now = Arc::clone(&ways);
        let store = Stub::delayed(memory.clone(), move || *now.lock().expect("no panic"));
        Self {
            memory,
            store,
            ways,
        }
    }

    /// Questions from now on take so long.
    pub(super) fn set(&self, there: Duration, back: Duration) {
        *self.ways.lock().expect("no panic") = (there, back);
    }
}
