//! Stores for tests of the layer.

use std::sync::Arc;
use std::time::Duration;

use tidegate::decision::{Source, Verdict};
use tidegate::store::{Capabilities, ServerId, StoreFuture};
use tidegate::{Decision, MemoryStore, Store};

use crate::helpers::stub::{Stub, travel};

/// A memory store on tokio's clock, a round trip away. It remembers its takes.
pub(crate) fn far(round_trip: Duration) -> Stub {
    const NAME: &str = "redis at far";
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
    let (one_way, inner) = (round_trip / 2, Arc::clone(&memory));
    Stub::listening(memory)
        .named(NAME)
        .capabilities_fn(|_| {
            let mut capabilities = Capabilities::default();
            capabilities.server = Some(ServerId::of(NAME));
            capabilities
        })
        .take_fn(move |_, take| {
            let take = take.clone();
            travel(&inner, (one_way, one_way), move |memory| memory.take(&take))
        })
}

/// Gives this verdict to all takes, and says nothing about the quotas.
pub(crate) fn always(verdict: Verdict) -> Stub {
    Stub::in_memory().take_fn(move |_, _| {
        let decision = Decision::new(verdict, Source::Local, 1, std::iter::empty());
        StoreFuture::ready(Ok(decision))
    })
}
