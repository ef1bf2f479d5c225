//! Stores for tests of the layer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::decision::{Receipt, Source, Verdict};
use tidegate::store::StoreFuture;
use tidegate::{Decision, MemoryStore, Store, Take};

/// A memory store on tokio's clock, a round trip away. It keeps what it was asked.
#[derive(Debug, Clone)]
pub(crate) struct Far {
    memory: Arc<MemoryStore>,
    round_trip: Duration,
    asked: Arc<Mutex<Vec<Take>>>,
}

impl Far {
    pub(crate) fn new(round_trip: Duration) -> Self {
        Self {
            memory: Arc::new(MemoryStore::new().tokio_clock()),
            round_trip,
            asked: Arc::default(),
        }
    }

    pub(crate) fn asked(&self) -> Vec<Take> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Store for Far {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.asked.lock().expect("no panic").push(take.clone());
        let (memory, take) = (Arc::clone(&self.memory), take.clone());
        let one_way = self.round_trip / 2;
        StoreFuture::boxed(async move {
            tokio::time::sleep(one_way).await;
            let decision = memory.take(&take).await;
            tokio::time::sleep(one_way).await;
            decision
        })
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.memory.refund(take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        self.memory.reset(take)
    }

    fn name(&self) -> String {
        "redis at far".to_owned()
    }
}

/// Gives this verdict to all takes, and says nothing about the quotas.
#[derive(Debug)]
pub(crate) struct Always(pub(crate) Verdict);

impl Store for Always {
    fn take(&self, _: &Take) -> StoreFuture<Decision> {
        let decision = Decision::new(self.0, Source::Local, 1, std::iter::empty());
        StoreFuture::ready(Ok(decision))
    }

    fn refund(&self, _: &Take, _: &Receipt) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(0))
    }

    fn reset(&self, _: &Take) -> StoreFuture<bool> {
        StoreFuture::ready(Ok(false))
    }

    fn name(&self) -> String {
        "always".to_owned()
    }
}
