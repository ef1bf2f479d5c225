//! Ways to connect, and what is in the way.

use kit::cluster::Plan;
use kit::load::{Load, allowed, reached, store, take, until};
use kit::process::Process;
use kit::sentinels::{NAME, Sentinels};
use tidegate::Redis;
use tidegate::redis::RedisAddress;
use tidegate::store::StoreErrorKind::{Configuration, Protocol, Refused, Timeout, Unavailable};
use tokio::io::{copy, sink};

use crate::*;

/// A port that nobody listens to.
const NOBODY: &str = "127.0.0.1:1";

#[tokio::test]
async fn a_cluster_is_found_through_any_node_that_answers() {
    let cluster = Cluster::start(&Plan::default());
    let (_mute, hangs) = mute().await;
    let stranger = Process::start(&["--save", ""]);
    let last = cluster.nodes[2].address();
    let url = format!(
        "redis-cluster://{NOBODY},{hangs},{},{last}",
        stranger.address()
    );
    let store = reached(&url).await;
    for path in ["a", "b", "c", "d", "e"] {
        assert_eq!(allowed(&store, &take(path, 3), 5).await, 3, "{path}");
    }
    assert_eq!(
        tidegate::Store::name(&store),
        format!("redis cluster at {}", &url[16..].replace(',', ", "))
    );
}

#[tokio::test]
async fn a_cluster_with_a_password() {
    let cluster = Cluster::start(&Plan::default());
    for node in &cluster.nodes {
        node.run::<()>("ACL SETUSER gate on >s3cret ~* &* +@all");
        node.run::<()>("ACL SETUSER default off");
    }
    refused(cluster.url(), Refused).await;
    let wrong = refused(cluster.url().replace("//", "//gate:wr0ng@"), Refused).await;
    assert!(!format!("{wrong} {wrong:?}").contains("wr0ng"), "{wrong:?}");
    let by_url = store(cluster.url().replace("//", "//gate:s3cret@")).await;
    let seeds = cluster.nodes.iter().map(|node| node.url());
    let by_hand = RedisAddress::cluster(seeds).expect("valid");
    let by_hand = store(by_hand.username("gate").password("s3cret")).await;
    for path in ["a", "b", "c", "d", "e"] {
        assert_eq!(allowed(&by_url, &take(path, 3), 2).await, 2, "{path}");
        assert_eq!(allowed(&by_hand, &take(path, 3), 2).await, 1, "{path}");
    }
}

/// An address names some of the nodes; what cannot be reached may be another one.
#[tokio::test]
async fn errors_name_the_node_that_is_away() {
    let mut cluster = Cluster::start(&Plan::default());
    let seed = format!("redis-cluster://{}", cluster.nodes[0].address());
    let store = store(&seed).await.timeout(SECOND);
    let take = take(&cluster.path_at(1, "p"), 3);
    assert_eq!(allowed(&store, &take, 1).await, 1);
    let away = cluster.nodes[1].address();
    cluster.nodes[1].kill();
    eventually("it names the node", async || {
        let error = store.take(&take).await.expect_err("it is away");
        error.to_string().contains(&away)
    })
    .await;
    let error = store.ready(millis(500)).await.expect_err("it is away");
    assert!(error.to_string().contains(&away), "{error}");
    assert_eq!(error.kind(), Unavailable);
}

/// Nodes and sentinels name hosts that only they reach, as in another network.
#[tokio::test]
async fn announced_hosts_that_are_elsewhere() {
    let cluster = Cluster::start(&Plan::default());
    for (at, node) in cluster.nodes.iter().enumerate() {
        node.run::<()>("CONFIG SET cluster-preferred-endpoint-type hostname");
        node.run::<()>(&format!(
            "CONFIG SET cluster-announce-hostname n{at}.invalid"
        ));
    }
    let names = [0, 1, 2].map(|at| cluster.path_at(at, "p"));
    let address = RedisAddress::from_url(cluster.url()).expect("a valid address");
    let unresolved = RedisStore::connect_lazy(&address).expect("a valid address");
    let decision = unresolved.timeout(SECOND).take(&take(&names[1], 3)).await;
    decision.expect_err("nobody knows that name");

    let panics = address.clone().resolve(|_, _| panic!("a mistake"));
    let panics = RedisStore::connect_lazy(panics).expect("a valid address");
    let decision = panics.timeout(SECOND).take(&take(&names[1], 3)).await;
    decision.expect_err("nobody knows that name");

    let announced = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&announced);
    let address = address.resolve(move |host, port| {
        seen.lock().expect("no panic").insert(host.to_owned());
        ("127.0.0.1".to_owned(), port)
    });
    let store = RedisStore::connect_lazy(address).expect("a valid address");
    let store = store.timeout(SECOND);
    // `MOVED` names a host, too.
    let slot = cluster.slot(&format!("CurrentLimiter:{}", names[0]));
    for name in &names {
        eventually("it decides", async || {
            store.take(&take(name, 9)).await.is_ok()
        })
        .await;
    }
    cluster.move_slot(slot, 0, 1);
    assert_eq!(allowed(&store, &take(&names[0], 9), 3).await, 3);
    let hosts = announced.lock().expect("no panic").clone();
    let expected = [0, 1, 2].map(|at| format!("n{at}.invalid"));
    assert_eq!(hosts, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_single_server_is_no_cluster() {
    let server = Process::start(&["--save", ""]);
    let cluster = format!("redis-cluster://{}", server.address());
    refused(cluster, Configuration).await;
    refused(format!("redis-cluster://{NOBODY}"), Unavailable).await;
    // One that is a cluster, but serves nothing: as a node is that was never added.
    let port = redis_test::utils::get_random_available_port().to_string();
    let arguments = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let node = Process::start(&arguments);
    let cluster = format!("redis-cluster://{}", node.address());
    refused(cluster, Unavailable).await;
}

/// A server that takes the connection and says nothing.
#[tokio::test]
async fn connecting_is_bounded() {
    let (_mute, hangs) = mute().await;
    let started = Instant::now();
    refused(format!("redis://{hangs}"), Timeout).await;
    assert!(started.elapsed() < RedisStore::CONNECT_TIMEOUT + 2 * SECOND);
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = Cluster::start(&Plan::default());
    let node = (cluster.owner("CurrentLimiter:p") + 1) % 3;
    let store = store(cluster.nodes[node].url()).await;
    let answer = store.take(&take("p", 3)).await;
    let error = answer.expect_err("another node has it");
    assert_eq!(error.kind(), Configuration, "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

/// One master that answers is enough: those that hang are not waited for.
#[tokio::test]
async fn a_mute_master_does_not_hold_up_the_connection() {
    let cluster = Cluster::start(&Plan::default());
    cluster.nodes[0].signal("STOP");
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let seeds = cluster.nodes[1..].iter().map(Process::url);
        store(RedisAddress::cluster(seeds).expect("valid")).await;
        best = best.min(begun.elapsed());
        if best < millis(1_500) {
            break;
        }
    }
    cluster.nodes[0].signal("CONT");
    assert!(best < millis(1_500), "{best:?}");
}

#[tokio::test]
async fn sentinels_that_are_dead_or_mute_do_not_matter() {
    let redis = Sentinels::start();
    let (_mute, hangs) = mute().await;
    let last = redis.sentinels[2].address();
    let url = format!("redis-sentinel://{NOBODY},{hangs},{last}/{NAME}");
    let store = store(&url).await;
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);

    let error = refused(redis.url().replace(NAME, "others"), Configuration).await;
    assert!(
        error
            .to_string()
            .contains("no sentinel knows a master called \"others\""),
        "{error}"
    );
    refused(format!("redis-sentinel://{NOBODY}/{NAME}"), Unavailable).await;
    // A plain server is no sentinel.
    let plain = format!("redis-sentinel://{}/{NAME}", redis.servers[0].address());
    refused(plain, Protocol).await;
}

#[tokio::test]
async fn the_password_of_the_data_is_not_that_of_the_sentinels() {
    let redis = Sentinels::start_with(&["s3cret"]);
    refused(redis.url(), Refused).await;
    let url = redis.url().replace("//", "//:s3cret@") + "/2";
    let by_url = store(&url).await;
    assert_eq!(allowed(&by_url, &take("p", 3), 5).await, 3);
    assert!(!format!("{by_url:?}").contains("s3cret"));

    let sentinels = redis.sentinels.iter().map(Process::url);
    let address = RedisAddress::sentinel(sentinels, NAME).expect("valid");
    let by_hand = store(address.password("s3cret").db(2)).await;
    let seen = allowed(&by_hand, &take("p", 3), 5).await;
    assert_eq!(seen, 0, "the same database");

    // Sentinels with a password of their own.
    let sentinel = &redis.sentinels[0];
    sentinel.run::<()>("ACL SETUSER default resetpass >gu4rd");
    let only = |query: &str| {
        format!(
            "redis-sentinel://:s3cret@{}/{NAME}{query}",
            sentinel.address()
        )
    };
    let with = store(only("?sentinel_password=gu4rd")).await;
    assert_eq!(allowed(&with, &take("q", 3), 5).await, 3);
    refused(only(""), Refused).await;
}

/// A sentinel that names the second port as soon as it is listened to, and never tells anybody of a
/// failover.
async fn silent_sentinel(first: u16, then: u16) -> String {
    let is_heard = Arc::new(AtomicBool::new(false));
    let answer = move |command: &str| {
        let (port, epoch) = match is_heard.load(Ordering::SeqCst) {
            true => (then, u32::from(then != first)),
            false => (first, 0),
        };
        match command {
            _ if command.contains("SUBSCRIBE") => {
                is_heard.store(true, Ordering::SeqCst);
                let channels = ["+switch-master", "+promoted-slave"];
                channels
                    .map(|name| {
                        format!(
                            "*3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n",
                            name.len()
                        )
                    })
                    .concat()
            }
            _ if command.contains("GET-MASTER") => format!("*2\r\n+127.0.0.1\r\n+{port}\r\n"),
            _ if command.contains("MASTER") => format!("*2\r\n+config-epoch\r\n+{epoch}\r\n"),
            _ => "+OK\r\n".to_owned(),
        }
    };
    answering(answer).await
}

/// A failover between the answer of the sentinels and the beginning of being listened to.
#[tokio::test]
async fn a_failover_that_nobody_heard_of_is_followed() {
    let [old, new] = [(); 2].map(|()| Process::start(&["--save", ""]));
    let sentinel = silent_sentinel(old.port, new.port).await;
    let store = store(format!("redis-sentinel://{sentinel}/{NAME}")).await;
    until("the new master is asked", || {
        let clients: String = new.run("CLIENT LIST TYPE normal");
        clients.lines().count() > 1
    })
    .await;
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);
    assert_eq!(new.run::<usize>("DBSIZE"), 1);
}

/// A sentinel that has not heard of a failover names a server that is a replica by now.
#[tokio::test]
async fn a_replica_is_no_master_whatever_a_sentinel_says() {
    let master = Process::start(&["--save", ""]);
    let port = master.port.to_string();
    let replica = Process::start(&["--save", "", "--replicaof", "127.0.0.1", &port]);
    let right = silent_sentinel(master.port, master.port).await;
    let right = store(format!("redis-sentinel://{right}/{NAME}")).await;
    assert_eq!(allowed(&right, &take("p", 3), 5).await, 3);
    let wrong = silent_sentinel(replica.port, replica.port).await;
    let error = refused(format!("redis-sentinel://{wrong}/{NAME}"), Unavailable).await;
    assert!(error.to_string().contains("is no master"), "{error}");
}

/// Loading scripts saves a round trip, and is not worth failing for.
#[tokio::test]
async fn a_user_that_may_not_load_scripts_can_call_them() {
    let server = Process::start(&["--save", ""]);
    let called = "+zcard +zrange +zadd +get +set +pexpire +time +zremrangebyrank";
    let keys = "~CurrentLimiter:* ~{CurrentLimiter:*";
    let user = format!("ACL SETUSER gate on >s3cret {keys} +eval +evalsha {called}");
    server.run::<()>(&user);
    let url = server.url().replace("//", "//gate:s3cret@");
    let store = store(&url).await;
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);
    // A server whose administrator has taken the command away.
    let other = Process::start(&["--save", "", "--rename-command", "SCRIPT", ""]);
    let without = kit::load::store(other.url()).await;
    assert_eq!(allowed(&without, &take("p", 3), 5).await, 3);

    // What the user may not do is told without its name.
    server.run::<()>("ACL SETUSER gate -eval -evalsha");
    let error = store.take(&take("p", 3)).await.expect_err("not allowed");
    assert_eq!(error.kind(), Refused, "{error}");
    let all = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
    assert!(!all.contains("gate ") && !all.contains("s3cret"), "{all}");
}

/// Valkey 9.1 has Lua in a module, which can be missing. On another server the commands are.
#[tokio::test]
async fn a_server_without_scripts() {
    let is_module = |server: &Process| {
        let info: String = server.run("INFO scriptingengines");
        info.contains("module=lua")
    };
    let without = |commands: &[&str]| {
        let renamed = commands.iter().flat_map(|it| ["--rename-command", it, ""]);
        Process::start(
            &["--save", ""]
                .into_iter()
                .chain(renamed)
                .collect::<Vec<_>>(),
        )
    };
    let servers = match is_module(&Process::start(&["--save", ""])) {
        true => {
            let server = Process::start(&["--save", "", "--enable-module-command", "yes"]);
            server.run::<()>("MODULE UNLOAD lua");
            vec![server]
        }
        false => vec![
            without(&["EVALSHA"]),
            without(&["EVAL", "EVALSHA", "SCRIPT"]),
        ],
    };
    for server in servers {
        let store = RedisStore::connect_lazy(server.url()).expect("a valid address");
        let error = store.timeout(PATIENT).take(&take("p", 3)).await;
        let error = error.expect_err("it cannot decide");
        assert_eq!(error.kind(), Configuration, "{error}");
        for remedy in ["valkey-lua", "or the command was renamed"] {
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}

/// A store over the connection of a handle has the name of its address.
#[tokio::test]
async fn a_store_of_a_handle() {
    let server = Process::start(&["--save", ""]);
    let redis = Redis::connect(server.url())
        .await
        .expect("a running server");
    let store = RedisStore::of(&redis).timeout(PATIENT);
    assert_eq!(
        tidegate::Store::name(&store),
        format!("redis at {}", server.address())
    );
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);
    let clients: String = server.run("CLIENT LIST TYPE normal");
    let seen = clients.lines().count();
    assert_eq!(seen, 2, "one, and the one that asks: {clients}");
}

/// A store that has decided once.
async fn behind_a_proxy() -> (kit::Redis, Proxy, RedisStore) {
    let server = kit::Redis::start();
    let proxy = kit::proxy::Proxy::start(&server.url).await;
    let store = store(&proxy.url).await;
    assert_eq!(allowed(&store, &take("p", 1_000), 1).await, 1);
    (server, proxy, store)
}

/// While an attempt hangs, here after connections that were fast, others begin beside it: they do
/// not wait until it is given up. On a busy machine in one of several rounds.
#[tokio::test]
async fn a_stuck_attempt_does_not_delay_the_next() {
    let (server, proxy, store) = behind_a_proxy().await;
    for _ in 0..8 {
        if others_begin_beside_a_stuck_attempt(&server, &proxy, &store).await {
            return;
        }
    }
    panic!("later attempts wait for the one that hangs");
}

async fn others_begin_beside_a_stuck_attempt(
    server: &kit::Redis,
    proxy: &Proxy,
    store: &RedisStore,
) -> bool {
    assert_eq!(allowed(store, &take("p", 1_000), 1).await, 1);
    let (mute, hangs) = mute().await;
    proxy.lead_to(&format!("redis://{hangs}"));
    proxy.fall_silent();
    let short = store.clone().timeout(millis(50));
    for _ in 0..3 {
        let late = short.take(&take("p", 3)).await.expect_err("nobody answers");
        assert_eq!(late.kind(), Timeout);
    }
    let (mut first, _) = mute.accept().await.expect("an attempt");
    let (mut second, _) = mute.accept().await.expect("another one");
    // The second one is given up for the third, and the first one when its time is over.
    let hangs_still = tokio::select! {
        biased;
        _ = async { copy(&mut first, &mut sink()).await } => false,
        _ = async { copy(&mut second, &mut sink()).await } => true,
    };
    proxy.lead_to(&server.url);
    decides(&short).await;
    hangs_still
}

async fn decides(store: &RedisStore) {
    let is_decided = async || store.take(&take("p", 1_000)).await.is_ok();
    eventually("it decides", is_decided).await;
}

/// A server to which connections took a millisecond, and take most of a second by now: as over
/// another network, or when a thousand clients come back at once.
#[tokio::test]
async fn a_server_that_has_become_slow_is_reached() {
    let (server, proxy, store) = behind_a_proxy().await;
    proxy.delay(millis(200), millis(200));
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]);
    kill.exec(&mut server.connection()).expect("kills");
    sleep(millis(500)).await;
    decides(&store).await;
}

fn asked(store: &RedisStore) -> JoinHandle<Result<Decision, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.take(&take("p", 1_000)).await })
}

/// A connection that is silent for longer than is tolerated gets another one beside it, and is kept
/// if it answers first.
#[tokio::test]
async fn a_connection_that_answers_late_is_kept() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (_mute, hangs) = mute().await;
    proxy.lead_to(&format!("redis://{hangs}"));
    proxy.present(Mode::Hold);
    let answer = asked(&store);
    until("another connection", || proxy.accepted() > 1).await;
    let accepted = proxy.accepted();
    proxy.all(Mode::Pass);
    let answer = answer.await.expect("no panic").expect("a decision");
    assert_eq!(answer.remaining(), 998);
    sleep(millis(500)).await;
    assert_eq!(allowed(&store, &take("p", 1_000), 3).await, 3);
    assert_eq!(proxy.accepted(), accepted, "no attempt to connect any more");
}

/// Twice the shortest timeout, a second at most.
#[tokio::test]
async fn a_short_silence_is_tolerated() {
    let (_server, proxy, store) = behind_a_proxy().await;
    for (silence, connections) in [(400, 1), (1_600, 2)] {
        proxy.all(Mode::Hold);
        let answer = asked(&store);
        sleep(millis(silence)).await;
        let accepted = proxy.accepted();
        proxy.all(Mode::Pass);
        let _ = answer.await.expect("no panic");
        match connections {
            1 => assert_eq!(accepted, 1),
            _ => assert!(accepted > 1, "no other connection"),
        }
    }
}

/// A server that pauses for longer than a hasty caller's silence is tolerated, and goes on: those
/// who have more time get their decisions.
#[tokio::test]
async fn a_hasty_caller_costs_patient_ones_no_decision() {
    let server = Process::start(&["--save", "", "--enable-debug-command", "yes"]);
    let store = store(server.url()).await;
    let hasty = store.clone().timeout(millis(30));
    let path = take("p", 1_000_000);
    assert!(hasty.take(&path).await.is_ok());
    let mut asked = 1;
    for pause in [
        "CLIENT PAUSE 600 WRITE",
        "CLIENT PAUSE 600 ALL",
        "DEBUG SLEEP 0.6",
    ] {
        let mut connection = server.connection();
        let pausing = tokio::task::spawn_blocking(move || {
            let mut words = pause.split(' ');
            let mut command = redis::cmd(words.next().expect("a command"));
            for word in words {
                command.arg(word);
            }
            command.exec(&mut connection)
        });
        sleep(millis(50)).await;
        let mut answers = Vec::new();
        for _ in 0..40 {
            let (patient, of_it) = (store.clone(), path.clone());
            answers.push(tokio::spawn(async move { patient.take(&of_it).await }));
            let _ = hasty.take(&path.clone().looking()).await;
            asked += 1;
            if answers.len() % 8 == 0 {
                sleep(millis(20)).await;
            }
        }
        for answer in answers {
            let answer = answer.await.expect("no panic");
            assert!(answer.expect("a decision").is_allowed(), "{pause}");
        }
        pausing.await.expect("no panic").expect("pauses");
    }
    let left = store.peek(&path).await.expect("a decision").remaining();
    assert_eq!(1_000_000 - left, asked);
}

/// A master without a replica dies, and comes back. By Redis's default no slot is served meanwhile,
/// and all are told in time; with `cluster-require-full-coverage no` its slots alone fail, typed and
/// at once, and the other masters go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_takes_all_slots_with_it_by_default() {
    join_all([true, false].map(a_dead_master)).await;
}

async fn a_dead_master(full_coverage: bool) {
    let mut cluster = Cluster::start(&Plan {
        full_coverage,
        node_timeout: 2_000,
        ..Plan::default()
    });
    let store = reached(cluster.url()).await;
    let [other, its] = [0, 1].map(|at| take(&cluster.path_at(at, "path"), 1_000_000));
    let (hurt, unhurt) = (
        Load::hasty(&store, &its, 4),
        Load::patient(&store, &other, 4),
    );
    hurt.decided().await;
    unhurt.decided().await;
    let fault = Instant::now();
    cluster.nodes[1].kill();
    hurt.failed().await;
    let info = |at: usize| cluster.nodes[at].run::<String>("CLUSTER INFO");
    let is_known = |at: usize| info(at).contains("cluster_slots_fail:5461");
    until("the death is known", || is_known(0) && is_known(2)).await;
    let after = Load::hasty(&store, &other, 2);
    sleep(SECOND).await;
    let after = after.stop().await;
    let row = format!("a dead master, full coverage: {full_coverage}");
    after.row(&row, "all", fault);
    after.assert_in_time();
    if full_coverage {
        let kinds: Vec<_> = after.failures().into_keys().collect();
        let seen = (after.allowed(), &*kinds);
        assert_eq!(seen, (0, &["Unavailable".to_owned()][..]));
    } else {
        assert!(after.allowed() > 20, "{}", after.allowed());
        after.assert_no_failure();
    }

    cluster.nodes[1].restart();
    let info = |at: usize| cluster.nodes[at].run::<String>("CLUSTER INFO");
    let is_well = || (0..3).all(|at| info(at).contains("cluster_state:ok"));
    until("the cluster is well", is_well).await;
    hurt.decided().await;
    unhurt.decided().await;
    let hurt = hurt.end(&row, "its data is lost", fault).await;
    assert!(hurt.failures().contains_key("Unavailable"), "{row}");
    let unhurt = unhurt.end(&row, "all of the other slots", fault).await;
    match full_coverage {
        true => assert!(unhurt.failures().contains_key("Unavailable"), "{row}"),
        false => unhurt.assert_no_failure(),
    }
}
