//! The example of a store of one's own passes the public suite.

#[path = "../../examples/redb_store/store.rs"]
mod store;

use kit::clocked::Clocked;
use redb::Database;
use redb::backends::InMemoryBackend;
use tidegate::test_util::conformance;

use crate::prelude::*;
use crate::take;
use store::RedbStore;

const START: u64 = 1_800_000_000_000_777;

/// A database in memory: what the suite is about does not depend on the file.
fn in_memory() -> Clocked {
    let database = Database::builder().create_with_backend(InMemoryBackend::new());
    let store = RedbStore::over(database.expect("a database"), "redb in memory");
    Clocked::new("redb", |clock| Arc::new(by(store, &clock)))
}

fn by(store: RedbStore, clock: &ManualClock) -> RedbStore {
    let clock = clock.clone();
    store.clock(Arc::new(move || clock.now()))
}

fn open(folder: &TempDir, clock: &ManualClock) -> RedbStore {
    let store = RedbStore::open(&folder.path().join("counts.redb"));
    by(store.expect("a database"), clock)
}

macro_rules! keeps_the_laws {
    ($($name:ident $algorithm:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            conformance::check(Algorithm::$algorithm, async || in_memory()).await;
        })+
    };
}

keeps_the_laws!(
    sliding_log SlidingLog,
    sliding_window SlidingWindow,
    gcra Gcra,
    fixed_window FixedWindow,
);

#[tokio::test]
async fn counts_survive_a_restart_and_expire() {
    let (clock, folder) = (clock_at(START), TempDir::new().expect("a folder"));
    let take = take("p", &[Quota::per_minute(3)]);
    let receipt = {
        let store = open(&folder, &clock);
        let decision = crate::ask(&store, &take.clone().with_cost(2)).await;
        assert_eq!(decision.source(), Source::Other);
        decision.receipt().expect("it was charged")
    };
    let store = open(&folder, &clock);
    let left = async || remaining(&store, &take).await;
    assert_eq!(left().await, 1);
    assert_eq!(store.refund(&take, &receipt).await.expect("answered"), 1);
    assert_eq!(left().await, 2);

    // Two minutes later, the takes of other keys have dropped it.
    clock.set(clock.now() + 180_000_000);
    for number in 0..3 {
        let other = crate::take(&format!("other{number}"), &[Quota::per_minute(3)]);
        assert!(crate::ask(&store, &other).await.is_allowed());
    }
    assert_eq!(store.len(), 3);
}
