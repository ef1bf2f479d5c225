//! The same in a cluster and behind sentinels: there are more questions there that can be lost.

use super::callers::{Kind, World};
use super::*;

/// Those that ask the other process as well, or want a lock of a name of its own each time.
const OTHERS: [Kind; 4] = [Kind::Refund, Kind::Reset, Kind::Exists, Kind::FreeLock];

/// For questions where the servers are.
const LAYOUTS: [FlightFault; 3] = [
    FlightFault::Lose(Part::All),
    FlightFault::Add(Extra::Integer, Spot::Before),
    FlightFault::Add(Extra::EarlierReply, Spot::Before),
];

fn addresses(proxies: &[Proxy]) -> Vec<String> {
    let urls = proxies.iter().map(|proxy| &proxy.url);
    urls.map(|url| url.replace("redis://", "")).collect()
}

fn break_all(proxies: &[Proxy], fault: FlightFault, contains: &str) {
    for proxy in proxies {
        proxy.break_flight(fault, contains, 0);
    }
}

/// Allows this take in the end, and tells how many of the proxies have hit something meanwhile.
async fn decides(store: &RedisStore, take: &Take, proxies: &[Proxy], case: &str) {
    let began = Instant::now();
    eventually(case, async || is_allowed(&store.take(take).await)).await;
    let hit = proxies.iter().filter(|it| it.fault_trace().hit.is_some());
    println!("{case} hit {}: {:?}", hit.count(), began.elapsed());
}

/// Proxies before all nodes, and the URL that leads through them. The nodes name the proxies'
/// ports as their own.
async fn proxied(cluster: &Cluster) -> (Vec<Proxy>, String) {
    let mut proxies = Vec::new();
    for node in &cluster.nodes {
        let proxy = Proxy::start_with_flights(&node.url()).await;
        let (_, port) = proxy.url.rsplit_once(':').expect("a port");
        node.run::<()>(&format!("CONFIG SET cluster-announce-port {port}"));
        proxies.push(proxy);
    }
    let addresses = addresses(&proxies);
    let is_known = async || {
        let mut nodes = cluster.nodes.iter();
        nodes.all(|node| {
            let known: String = node.run("CLUSTER NODES");
            addresses.iter().all(|address| known.contains(address))
        })
    };
    within(MINUTE, "all know all", is_known).await;
    let url = format!("redis-cluster://{}", addresses.join(","));
    (proxies, url)
}

#[tokio::test]
async fn a_flight_of_a_node() {
    let cluster = Cluster::start(&Plan::default());
    let url = cluster.nodes[0].url();
    let (proxies, proxied) = proxied(&cluster).await;
    let world = World::over(proxies, &proxied, &proxied, "world").await;
    let world = Arc::new(world);
    let stalls = Stalls::watch(&[&url], millis(60)).await;
    let mut kinds = Kind::all();
    kinds.retain(|kind| !OTHERS.contains(kind));
    let mut reports = Vec::new();
    for fault in [LOSSES[0], LOSSES[1], LOSSES[4], ADDITIONS[0], ADDITIONS[2]] {
        let load = Load::of_many(&world, &kinds, 2);
        reports.push(attack(&world, load, fault, &stalls).await);
    }
    check(reports);
}

/// The question for the layout of the cluster is lost, or answered by something else.
#[tokio::test]
async fn a_layout_of_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let (proxies, proxied) = proxied(&cluster).await;
    let rule = rule("spread", 1_000_000, HOUR);
    for fault in LAYOUTS {
        break_all(&proxies, fault, "CLUSTER");
        let store = RedisStore::connect_lazy(&*proxied).expect("a valid address");
        let store = store.timeout(TIMEOUT);
        let began = Instant::now();
        for key in 0..30 {
            let take = take(&rule, key);
            while !is_allowed(&store.take(&take).await) {
                let after = began.elapsed();
                assert!(after < Duration::from_secs(10), "{fault:?}: {after:?}");
                sleep(millis(5)).await;
            }
        }
        let hit = proxies
            .iter()
            .filter(|proxy| proxy.fault_trace().hit.is_some());
        println!("{fault:?} hit {} nodes: {:?}", hit.count(), began.elapsed());
    }
}

/// The question for the master is lost, or answered by something else, at first and during a
/// failover: decisions come from the master nevertheless.
#[tokio::test]
async fn a_question_to_sentinels() {
    let sentinels = Sentinels::start();
    let mut proxies = Vec::new();
    for sentinel in &sentinels.sentinels {
        proxies.push(Proxy::start_with_flights(&sentinel.url()).await);
    }
    let url = format!("redis-sentinel://{}/{NAME}", addresses(&proxies).join(","));
    let take = take(&rule("master", 1_000_000, HOUR), "a");
    let decides = async |store: &RedisStore, case: &str| {
        decides(store, &take, &proxies, case).await;
    };
    for fault in LAYOUTS {
        for contains in ["", "SENTINEL", "SUBSCRIBE"] {
            break_all(&proxies, fault, contains);
            let store = RedisStore::connect_lazy(&*url).expect("a valid address");
            let store = store.timeout(TIMEOUT);
            let case = format!("{fault:?} of {contains:?}");
            decides(&store, &case).await;
            // Some questions come later.
            sleep(millis(300)).await;
            decides(&store, &case).await;
        }
    }
    let store = RedisStore::connect(&*url).await.expect("they run");
    let store = store.timeout(TIMEOUT);
    for fault in [LAYOUTS[0], LAYOUTS[2]] {
        let old = sentinels.master();
        break_all(&proxies, fault, "SENTINEL");
        sentinels.fail_over();
        let is_new = async || sentinels.master() != old && sentinels.is_settled();
        within(MINUTE, "a new master", is_new).await;
        decides(&store, &format!("{fault:?} and a failover")).await;
    }
}
