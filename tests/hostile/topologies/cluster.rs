//! Law 13 in a cluster: one node that hangs, or a slot that moves, costs no other key anything.

use crate::prelude::*;

async fn connect(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::connect(&*cluster.url()).await.expect("runs");
    store.timeout(PATIENT)
}

/// Keys of one rule that live on this node.
fn keys_of(cluster: &Cluster, node: usize, number: usize) -> Vec<Take> {
    let rule = rule("spread", 1_000_000, HOUR);
    let keys = (0..).map(|key| take(&rule, key));
    let keys = keys.filter(|take| {
        let name = format!("CurrentLimiter:spread:{}", take.key().as_str());
        cluster.owner(&name) == node
    });
    keys.take(number).collect()
}

/// One node of three hangs, and callers of all kinds want its keys: the others' are decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_hangs() {
    let cluster = Cluster::start(&Plan::default());
    let store = connect(&cluster).await;
    let dead = keys_of(&cluster, 1, 20);
    let alive: Vec<_> = [0, 2].map(|node| keys_of(&cluster, node, 5)).concat();
    for answer in join_all(dead.iter().chain(&alive).map(|take| store.take(take))).await {
        assert!(is_allowed(&answer));
    }
    cluster.nodes[1].signal("STOP");
    let hammer = (0..30_u64).map(|at| {
        let store = store
            .clone()
            .timeout(millis([1, 50, 5_000][at as usize % 3]));
        let one = dead[at as usize % 20].clone();
        let mixed = [&dead[..], &alive[..]].concat();
        tokio::spawn(async move {
            loop {
                let answer = match at % 2 {
                    0 => store.take(&one).await.map(|_| ()),
                    _ => kit::ask_all(&store, &mixed).await.map(|_| ()),
                };
                assert!(answer.is_err(), "it hangs");
            }
        })
    });
    let hammer: Vec<_> = hammer.collect();
    let hasty = store.clone().timeout(millis(200));
    let urls = [0, 2].map(|node| cluster.nodes[node].url());
    let stalls = Stalls::watch(&[&urls[0], &urls[1]], millis(60)).await;
    let began = Instant::now();
    let (mut decisions, mut worst) = (0, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let answers = join_all(alive.iter().map(|take| hasty.take(take))).await;
        for (key, answer) in answers.into_iter().enumerate() {
            if let Err(error) = answer {
                let lost = Lost::since(asked, error);
                let (after, longest) = (began.elapsed(), stalls.longest());
                println!("key {key} lost {after:?} after the node, stalls {longest:?}: {lost:?}");
                assert!(stalls.excuse(&lost, millis(100)), "law 13: {lost:?}");
            }
            decisions += 1;
        }
        worst = worst.max(asked.elapsed());
        sleep(millis(1)).await;
    }
    println!("{decisions} decisions, at most {worst:?}");
    for task in &hammer {
        assert!(!task.is_finished());
        task.abort();
    }
    cluster.nodes[1].signal("CONT");
    let began = Instant::now();
    while !is_allowed(&hasty.take(&dead[0]).await) {
        assert!(began.elapsed() < PATIENT / 2, "it does not come back");
    }
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
