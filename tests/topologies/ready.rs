//! A server waits for its store before it listens.

use axum::Extension;
use kit::cluster::Plan;
use kit::load::take;
use kit::process::Process;
use kit::sentinels::Sentinels;
use tidegate::store::StoreErrorKind::{Configuration, OutOfMemory, ReadOnly, Refused, Unavailable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::*;

/// Long enough for an attempt to connect to fail.
const SHORT: Duration = millis(300);

/// A port that nobody listens to.
const NOBODY: &str = "redis://127.0.0.1:1";

fn resilient(url: &str) -> Resilient<RedisStore> {
    let store = Resilient::redis(url, "shop").expect("an address");
    store.timeout(PATIENT)
}

fn limits(url: &str) -> Limits {
    kit::limits([per_hour("p", 100)], resilient(url))
}

/// The statuses of the first requests, and who decided them.
async fn first_requests(limits: &Limits) -> Vec<(StatusCode, Option<Source>)> {
    let handler = get(async |decision: Option<Decision>| Extension(decision));
    let app = Router::new().route("/", handler.layer(limits.layer("p")));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let response = app.clone().oneshot(request).await.expect("an answer");
        let decision = Decision::from_extensions(response.extensions());
        seen.push((response.status(), decision.map(Decision::source)));
    }
    seen
}

fn message(answer: Result<(), StoreError>) -> String {
    answer.expect_err("it is not ready").to_string()
}

/// The first attempts to connect are refused, as where Redis starts after its clients. Without the
/// wait, the first requests are answered with a 503.
#[tokio::test]
async fn the_first_requests_get_decisions_of_a_redis_that_starts_late() {
    let server = kit::Redis::start();
    let mut proxy = Proxy::start(&server.url).await;
    proxy.refuse().await;
    let limits = limits(&proxy.url);
    let error = limits.ready(SHORT).await.expect_err("nobody listens");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let (text, address) = (error.to_string(), &proxy.url["redis://".len()..]);
    assert!(text.contains(address) && text.contains("refused"), "{text}");
    let unready = first_requests(&limits).await;
    assert_eq!(unready, [(StatusCode::SERVICE_UNAVAILABLE, None); 3]);

    proxy.delay(millis(20), millis(20));
    let wait = limits.ready(PATIENT);
    let start = async {
        sleep(SHORT).await;
        proxy.accept_again().await;
    };
    let (ready, ()) = tokio::join!(wait, start);
    ready.expect("it is there by now");
    let decided = first_requests(&limits).await;
    assert_eq!(decided, [(StatusCode::OK, Some(Source::Redis)); 3]);
    limits.ready(Duration::ZERO).await.expect("it still is");
}

#[tokio::test]
async fn bounds() {
    let server = kit::Redis::start();
    let store = resilient(&server.url);
    // Nothing is connected before the first await.
    let error = message(store.ready(Duration::ZERO).await);
    assert!(error.contains("did not answer in time"), "{error}");
    let clone = store.clone();
    drop(store.ready(Duration::MAX));
    let _ = tokio::time::timeout(Duration::ZERO, store.ready(Duration::MAX)).await;
    store.ready(Duration::MAX).await.expect("a running Redis");
    clone.ready(Duration::ZERO).await.expect("the same store");
    drop(store);
    let waits = clone.processes(2).ready(Duration::ZERO).await;
    waits.expect("a setter leaves the connection as it is");
}

/// Time does not help there.
#[tokio::test]
async fn mistakes_are_told_at_once() {
    let server = Process::start(&["--save", ""]);
    server.run::<()>("CONFIG SET requirepass s3cret");
    let wrong = server.url().replace("//", "//:wr0ng@");
    let error = told_at_once(&wrong, Refused, "").await;
    assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error:?}");
    let no_cluster = server.url().replace("redis://", "redis-cluster://:s3cret@");
    told_at_once(&no_cluster, Configuration, "").await;
    let redis = Sentinels::start();
    let others = redis.url().replace("/limits", "/others");
    told_at_once(&others, Configuration, "").await;
    let behind = limits(&redis.url());
    behind.ready(PATIENT).await.expect("a master");
    let decided = first_requests(&behind).await;
    assert_eq!(decided, [(StatusCode::OK, Some(Source::Redis)); 3]);
    let right = server.url().replace("//", "//:s3cret@");
    let ready = limits(&right).ready(PATIENT).await;
    ready.expect("the right password");
}

/// A master that is not connected yet would answer the requests of its slots late.
#[tokio::test]
async fn a_cluster_is_ready_with_all_its_masters() {
    let cluster = Cluster::start(&Plan::default());
    cluster.nodes[0].signal("STOP");
    let seeds = cluster.nodes[1..].iter().map(Process::address);
    let url = format!("redis-cluster://{}", seeds.collect::<Vec<_>>().join(","));
    let store = resilient(&url);
    let error = store.ready(SHORT * 2).await.expect_err("one is mute");
    assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
    let connected = store.clone().connect().await;
    connected.expect("one master is enough for that");
    cluster.nodes[0].signal("CONT");
    store.ready(PATIENT).await.expect("all answer");
    for path in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let decision = store.take(&take(path, 3)).await.expect(path);
        assert_eq!(decision.source(), Source::Redis);
    }

    // A slot without a master, which gets one.
    let slot = cluster.slot("p");
    for node in &cluster.nodes {
        node.run::<()>(&format!("CLUSTER DELSLOTS {slot}"));
    }
    let store = resilient(&url);
    let error = message(store.ready(SHORT * 2).await);
    assert!(error.contains("some slots have no master"), "{error}");
    let (ready, ()) = tokio::join!(store.ready(PATIENT), async {
        sleep(SHORT).await;
        let owner = &cluster.nodes[cluster.owner("p")];
        owner.run::<()>(&format!("CLUSTER ADDSLOTS {slot}"));
    });
    ready.expect("every slot has a master");
}

fn wrapped(store: Arc<dyn Store>) -> impl Store {
    let store = Resilient::bare(Resilient::bare(store).in_flight(10)).timeout(PATIENT);
    let store = Resilient::bare(Resilient::bare(store).failures(10)).denial_cache(millis(100));
    Resilient::new(Resilient::bare(store).fallback(Share::of_processes(2)))
}

/// What answers in place of the store does not make it ready.
#[tokio::test]
async fn wrappers_pass_the_question_on() {
    let store = RedisStore::connect_lazy(NOBODY).expect("an address");
    let away = wrapped(Arc::new(store));
    let error = message(away.ready(SHORT).await);
    assert!(error.contains("127.0.0.1:1"), "{error}");
    let decision = away.take(&take("p", 10)).await.expect("a fallback");
    assert_eq!(decision.source(), Source::Fallback);
    let server = kit::Redis::start();
    let store = RedisStore::connect_lazy(&*server.url).expect("an address");
    let there = Arc::new(wrapped(Arc::new(store)));
    there.ready(PATIENT).await.expect("a running Redis");
}

/// It needs no runtime, and is there at the first look.
#[test]
fn a_memory_store_is_ready_at_once() {
    let given = wrapped(Arc::new(MemoryStore::new()));
    let default = Limits::new([per_hour("p", 100)]);
    for limits in [default, kit::limits([per_hour("p", 100)], given)] {
        let ready = limits.ready(Duration::ZERO).poll_now();
        ready.expect("at once").expect("ready");
    }
}

/// The tasks that would connect are gone.
#[test]
fn a_runtime_that_has_ended() {
    let server = kit::Redis::start();
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let first = runtime();
    let limits = first.block_on(async { limits(&server.url) });
    first.block_on(limits.ready(PATIENT)).expect("it is there");
    drop(first);
    let began = Instant::now();
    let ready = runtime().block_on(limits.ready(SHORT));
    assert!(message(ready).contains("redis at"));
    assert!(began.elapsed() < PATIENT);
}

/// A server that will not decide, which is told at once, in such words.
async fn told_at_once(url: &str, kind: StoreErrorKind, says: &str) -> StoreError {
    let begun = Instant::now();
    let error = limits(url).ready(PATIENT).await.expect_err(url);
    let took = begun.elapsed();
    assert!(took < 5 * SECOND, "{url}: {took:?}: {error}");
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(error.to_string().contains(says), "{url}: {error}");
    error
}

/// A server that may decide later, which is told at the bound, in such words.
async fn told_at_the_bound(store: &impl Store, kind: StoreErrorKind, says: &str) {
    let begun = Instant::now();
    let error = store.ready(SHORT).await.expect_err("it cannot decide");
    let took = begun.elapsed();
    assert!((SHORT / 2..PATIENT).contains(&took), "{took:?}: {error}");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

/// A server that says so, until it is told this while somebody waits for it.
async fn decides_after(server: &Process, kind: StoreErrorKind, says: &str, command: &str) {
    let store = resilient(&server.url()).timeout(SHORT);
    told_at_the_bound(&store, kind, says).await;
    let (ready, ()) = tokio::join!(store.ready(PATIENT), async {
        sleep(SHORT).await;
        server.run::<()>(command);
    });
    ready.expect(command);
}

/// Each node would decide a third of the requests.
#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = Cluster::start(&Plan::default());
    let store = resilient(&cluster.url());
    store.ready(PATIENT).await.expect("each master decides");
    for node in &cluster.nodes {
        let names: Vec<String> = node.run("KEYS *");
        let [name] = &names[..] else {
            panic!("one name for each master: {names:?}")
        };
        assert!(name.starts_with("shop:~ready"), "{name}");
        let life: i64 = node.run(&format!("PTTL {name}"));
        assert!((1..=2_000).contains(&life), "{life}");
    }
    for node in &cluster.nodes {
        told_at_once(&node.url(), Configuration, "redis-cluster://").await;
    }
    let names = |prefix: &str| {
        let store = RedisStore::connect_lazy(cluster.url()).expect("an address");
        let (store, prefix) = (store.timeout(PATIENT).prefix(prefix), prefix.to_owned());
        let nodes = &cluster.nodes;
        async move {
            store.ready(PATIENT).await.expect("it decides");
            let find = format!("KEYS {}~ready*", prefix.replace('{', "\\{"));
            let names = nodes.iter().flat_map(|it| it.run::<Vec<String>>(&find));
            names.count()
        }
    };
    assert_eq!(names("{eu}:").await, 1, "the slot is that of its tag");
    assert_eq!(names("eu:").await, 3);

    // Alone it serves all slots, and still no call with several keys.
    let alone = Cluster::start(&Plan {
        masters: 1,
        ..Plan::default()
    });
    told_at_once(&alone.nodes[0].url(), Configuration, "redis-cluster://").await;
    let store = resilient(&alone.url());
    store.ready(PATIENT).await.expect("it decides");

    // A server that may be a node is asked about the first, the middle and the last slot.
    let server = Process::start(&["--save", ""]);
    let single = resilient(&server.url());
    single.ready(PATIENT).await.expect("it decides");
    let names: Vec<String> = server.run("KEYS *");
    let slots: BTreeSet<_> = names.iter().map(|name| cluster.slot(name)).collect();
    assert_eq!(slots, BTreeSet::from([0, 8_192, 16_383]), "{names:?}");
}

/// A server that decides gets one flight more, however many names are asked about.
#[tokio::test]
async fn a_decision_is_one_round_trip() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = resilient(&proxy.url);
    store.ready(PATIENT).await.expect("it decides");
    let way = millis(500);
    proxy.delay(way, way);
    let begun = Instant::now();
    store.ready(PATIENT).await.expect("it decides");
    let took = begun.elapsed();
    assert!((2 * way..4 * way).contains(&took), "{took:?}");
}

/// With the default time-out of 50 ms, a server at this distance decides nothing for good.
#[tokio::test]
async fn a_server_that_is_too_far_away() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(&server.url).await;
    proxy.delay(millis(40), millis(40));
    let store = || Resilient::redis(&*proxy.url, "shop").expect("an address");
    let error = store().processes(2).ready(SECOND).await;
    let error = error.expect_err("each decision is late");
    assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
    let text = error.to_string();
    let took = text.split_once("an answer took ").expect(&text).1;
    let took = took
        .split_once(" ms, the time-out is 50 ms: ")
        .expect(&text);
    assert!(took.1.contains(".timeout(..)"), "{text}");
    let took: u64 = took.0.parse().expect(&text);
    assert!((80..SECOND.as_millis() as u64).contains(&took), "{text}");

    let bare = RedisStore::connect_lazy(&*proxy.url).expect("an address");
    let error = bare.clone().ready(SECOND).await.expect_err("the same");
    assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
    bare.timeout(PATIENT).ready(PATIENT).await.expect("its own");
    let longer: Arc<dyn Store> = Arc::new(store().timeout(PATIENT));
    let longer = wrapped(longer).ready(PATIENT).await;
    longer.expect("that around it");
}

#[tokio::test]
async fn a_replica_until_it_is_promoted() {
    let master = Process::start(&["--save", ""]);
    let replica = Process::start(&["--save", ""]);
    replica.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    replica.becomes("slave").await;
    decides_after(&replica, ReadOnly, "read only replica", "REPLICAOF NO ONE").await;
}

#[tokio::test]
async fn a_server_without_memory_until_it_has_some() {
    let server = Process::start(&["--save", "", "--maxmemory", "1mb"]);
    decides_after(&server, OutOfMemory, "", "CONFIG SET maxmemory 0").await;
}

/// What servers and proxies without RESP3 answer.
#[tokio::test]
async fn peers_without_resp3() {
    for said in [
        "NOPROTO unsupported protocol version",
        "NOPROTO Resp3 not supported by JedisMock",
        "ERR unknown command `HELLO`, with args beginning with: `3`, ",
        "ERR unknown command 'HELLO', with args beginning with: '3' ",
    ] {
        let url = peer(format!("-{said}\r\n")).await;
        for url in [url.clone(), url.replace("redis://", "redis-cluster://")] {
            told_at_once(&url, Configuration, "RESP3").await;
        }
    }
    // A server that starts behind a proxy may do that, too.
    let url = peer(String::new()).await;
    for url in [url.clone(), url.replace("redis://", "redis-cluster://")] {
        told_at_the_bound(&resilient(&url), Unavailable, "HELLO 3").await;
    }
}

/// A server in protected mode says it unasked, and hangs up.
#[tokio::test]
async fn a_server_in_protected_mode() {
    // Nothing is sent: the kernel only looks for the way.
    let way = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let Ok(()) = way.connect("192.0.2.1:1") else {
        return eprintln!("NOT TESTED: this machine has no address beside 127.0.0.1");
    };
    let own = way.local_addr().expect("an address").ip().to_string();
    let settings = ["--bind", "127.0.0.1", &own, "--protected-mode", "yes"];
    let server = kit::Redis::start_with(&settings);
    let url = server.url.replace("127.0.0.1", &own);
    for url in [url.clone(), url.replace("redis://", "redis-cluster://")] {
        let stopwatch = server.stopwatch();
        let error = told_at_once(&url, Refused, "protected mode").await;
        let waited = stopwatch.waited();
        println!("| protected mode | {waited:?} | {error} |");
        assert!(waited < SHORT, "{waited:?}");
    }
}

/// So does one whose connections are used up, and that may pass.
#[tokio::test]
async fn a_server_with_too_many_clients() {
    let server = kit::Redis::start_with(&["--maxclients", "4"]);
    let others: Vec<_> = (0..4).map(|_| server.connection()).collect();
    let stopwatch = server.stopwatch();
    let error = RedisStore::connect(&server.url).await;
    let (error, waited) = (error.expect_err("no place"), stopwatch.waited());
    println!("| max number of clients | {waited:?} | {error} |");
    assert!(waited < SHORT, "{waited:?}");
    let (store, says) = (resilient(&server.url), "max number of clients reached");
    assert_eq!(error.kind(), Unavailable, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    told_at_the_bound(&store, Unavailable, says).await;
    drop(others);
    store.ready(PATIENT).await.expect("there are places");
}

/// It is asked for by one connection in each outage.
#[tokio::test]
async fn what_a_server_says_as_it_hangs_up() {
    let heard = Arc::new(AtomicUsize::new(0));
    let long = "x".repeat(1_000);
    let said = format!("-DENIED a\u{1b}[31m\u{202e}b\u{7}c{long}\r\n");
    let (server, url) = speaker("127.0.0.1:0", said.clone(), &heard).await;
    let store = resilient(&url);
    let error = store.ready(PATIENT).await.expect_err("it hangs up");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    let text = error.to_string();
    assert!(text.contains("a[31mbc"), "{text:?}");
    assert!((400..512).contains(&text.matches('x').count()), "{text:?}");
    sleep(SECOND).await;
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    assert_eq!(
        store.ready(PATIENT).await.expect_err("it").to_string(),
        text
    );

    server.abort();
    while store.ready(SHORT).await.expect_err("it").kind() == StoreErrorKind::Refused {
        sleep(SHORT).await;
    }
    let (_server, url) = speaker(&url["redis://".len()..], said.clone(), &heard).await;
    let error = store.ready(PATIENT).await.expect_err("another outage");
    assert_eq!(
        (error.kind(), heard.load(Ordering::Relaxed)),
        (StoreErrorKind::Refused, 2)
    );

    let sentinel = format!("{}/limits", url.replace("redis://", "redis-sentinel://"));
    told_at_once(&sentinel, Refused, "a[31mbc").await;
}

/// Says this to each client that says nothing, counts these, and hangs up on all.
async fn speaker(
    at: &str,
    said: String,
    heard: &Arc<AtomicUsize>,
) -> (tokio::task::JoinHandle<()>, String) {
    let listener = tokio::net::TcpListener::bind(at).await;
    let listener = listener.expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let heard = Arc::clone(heard);
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (said, heard) = (said.clone(), Arc::clone(&heard));
            tokio::spawn(async move {
                let asks = client.read_u8();
                if tokio::time::timeout(millis(50), asks).await.is_err() {
                    heard.fetch_add(1, Ordering::Relaxed);
                    let _ = client.write_all(said.as_bytes()).await;
                }
            });
        }
    });
    (server, url)
}

#[tokio::test]
async fn a_database_that_is_not_there_or_not_permitted() {
    let server = Process::start(&["--save", ""]);
    let no_such = format!("{}/99", server.url());
    told_at_once(&no_such, Configuration, "index is out of range").await;
    server.run::<()>("ACL SETUSER takes on >s3cret ~* &* +@all -select");
    let url = server.url().replace("//", "//takes:s3cret@");
    told_at_once(&format!("{url}/1"), Refused, "'select'").await;
    // Valkey since 9.1 by `db=`, which no pattern of keys mends.
    let url = peer("-NOPERM No permissions to access database\r\n".to_owned()).await;
    let error = told_at_once(&url, Refused, "").await;
    assert!(!error.to_string().contains("security.md"), "{error}");
}

/// A server that answers each command so, or without an answer hangs up.
async fn peer(answer: String) -> String {
    format!("redis://{}", answering(move |_| answer.clone()).await)
}
