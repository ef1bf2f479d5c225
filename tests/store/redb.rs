//! The example of a store of one's own passes the public suite.

#[path = "../../examples/redb_store/store.rs"]
mod store;

use std::sync::Arc;
use std::time::Duration;

use store::RedbStore;
use tempfile::TempDir;
use tidegate::decision::Source;
use tidegate::test_util::{ManualClock, conformance};
use tidegate::{Algorithm, Quota, Store};

use crate::take;

struct Context {
    store: Arc<dyn Store>,
    clock: ManualClock,
    _folder: TempDir,
}

impl Context {
    fn new() -> Self {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_777);
        let folder = TempDir::new().expect("a folder");
        let store = open(&folder, &clock);
        Self {
            store: Arc::new(store),
            clock,
            _folder: folder,
        }
    }
}

fn open(folder: &TempDir, clock: &ManualClock) -> RedbStore {
    let store = RedbStore::open(&folder.path().join("counts.redb")).expect("a database");
    let clock = clock.clone();
    store.clock(Arc::new(move || clock.now()))
}

impl conformance::Context for Context {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a short time");
        self.clock.set(self.clock.now() + micros);
    }
}

async fn keeps_the_laws(algorithm: Algorithm) {
    conformance::check(algorithm, async || Context::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sliding_log() {
    keeps_the_laws(Algorithm::SlidingLog).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sliding_window() {
    keeps_the_laws(Algorithm::SlidingWindow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcra() {
    keeps_the_laws(Algorithm::Gcra).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_window() {
    keeps_the_laws(Algorithm::FixedWindow).await;
}

#[tokio::test]
async fn counts_survive_a_restart_and_expire() {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    let folder = TempDir::new().expect("a folder");
    let take = take("p", &[Quota::per_minute(3)]);
    let receipt = {
        let store = open(&folder, &clock);
        let decision = store
            .take(&take.clone().with_cost(2))
            .await
            .expect("decided");
        assert_eq!(decision.source(), Source::Other);
        decision.receipt().expect("it was charged")
    };
    let store = open(&folder, &clock);
    let peeked = store.peek(&take).await.expect("decided");
    assert_eq!(peeked.remaining(), 1);
    assert_eq!(store.refund(&take, &receipt).await.expect("answered"), 1);
    assert_eq!(store.peek(&take).await.expect("decided").remaining(), 2);

    // Two minutes later, the takes of other keys have dropped it.
    clock.set(clock.now() + 180_000_000);
    for number in 0..3 {
        let other = crate::take(&format!("other{number}"), &[Quota::per_minute(3)]);
        assert!(store.take(&other).await.expect("decided").is_allowed());
    }
    assert_eq!(store.len(), 3);
}
