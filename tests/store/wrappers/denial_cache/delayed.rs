//! A store a round trip away.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::decision::Receipt;
use tidegate::store::StoreFuture;
use tidegate::{Decision, MemoryStore, Store, Take};
use tokio::time::sleep;

/// Decides after the time of the way there, and is heard after that of the way back. Clones are the
/// same store.
#[derive(Debug, Clone)]
pub(super) struct Delayed {
    pub(super) memory: Arc<MemoryStore>,
    ways: Arc<Mutex<(Duration, Duration)>>,
}

impl Delayed {
    pub(super) fn new(there: Duration, back: Duration) -> Self {
        Self {
            memory: Arc::new(MemoryStore::new().tokio_clock()),
            ways: Arc::new(Mutex::new((there, back))),
        }
    }

    /// Questions from now on take so long.
    pub(super) fn set(&self, there: Duration, back: Duration) {
        *self.ways.lock().expect("no panic") = (there, back);
    }

    fn answer<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&MemoryStore) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let (there, back) = *self.ways.lock().expect("no panic");
        let memory = Arc::clone(&self.memory);
        StoreFuture::boxed(async move {
            sleep(there).await;
            let answer = decide(&memory).await;
            sleep(back).await;
            answer
        })
    }
}

impl Store for Delayed {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        let take = take.clone();
        self.answer(move |memory| memory.take(&take))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let (take, receipt) = (take.clone(), *receipt);
        self.answer(move |memory| memory.refund(&take, &receipt))
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        let take = take.clone();
        self.answer(move |memory| memory.reset(&take))
    }

    fn name(&self) -> String {
        "delayed".to_owned()
    }
}
