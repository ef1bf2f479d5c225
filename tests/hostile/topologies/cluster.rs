//! Law 13 in a cluster: a slot that moves costs no key anything.

use crate::prelude::*;

async fn connect(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::connect(&*cluster.url()).await.expect("runs");
    store.timeout(PATIENT)
}

/// A slot moves key by key under load: calls of many keys are refused as a whole then, and yet
/// each take is decided, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_key_by_key() {
    const KEYS: u64 = 90;
    let cluster = Cluster::start(&Plan::default());
    let store = connect(&cluster).await.prefix("{eu}:");
    let rule = rule("moves", 1_000_000, HOUR);
    let takes: Vec<_> = (0..KEYS).map(|key| take(&rule, key)).collect();
    let mut asked = 0;
    let mut ask = async || {
        let twice = takes.iter().flat_map(|take| [take, take]);
        let singles = twice.map(|take| store.take(take));
        let (singles, slice) = tokio::join!(join_all(singles), kit::ask_all(&store, &takes));
        for answer in &singles {
            assert!(is_allowed(answer), "{answer:?}");
        }
        assert_eq!(slice.expect("decisions").len() as u64, KEYS);
        asked += 3;
    };
    ask().await;
    let (slot, from, to) = cluster.begin_move("{eu}:moves:0");
    ask().await;
    let port = cluster.nodes[to].port;
    for key in 0..KEYS {
        let name = format!("{{eu}}:moves:{key}");
        let migrate = format!("MIGRATE 127.0.0.1 {port} {name} 0 5000");
        cluster.nodes[from].run::<()>(&migrate);
        if key % 9 == 0 {
            ask().await;
        }
    }
    ask().await;
    cluster.give_slot(slot, to);
    ask().await;
    for take in &takes {
        assert_eq!(charged(&store, take).await, asked, "{take:?}");
    }
}
