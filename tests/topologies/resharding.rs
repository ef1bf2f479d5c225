//! Slots that move from one master to another under load.

use kit::cluster::Plan;
use kit::load::{Load, allowed, reached, store, take};
use tidegate::Redis;

use crate::*;

const MAX: u64 = 1_000_000;

/// `MOVED`: the slot has gone, with what is in it, while nobody asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_is_followed() {
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    assert_eq!(allowed(&store, &take("p", 5), 2).await, 2);
    let fault = Instant::now();
    move_about(&cluster, "CurrentLimiter:p", 1).await;
    let load = Load::patient(&store, &take("p", 5), 4);
    load.decided().await;
    sleep(millis(300)).await;
    load.decided().await;
    let report = load.stop().await;
    let counts = format!("2 allowed before, {} after, at most 5", report.allowed());
    report.row("MOVED: a slot has gone to another master", &counts, fault);
    report.assert_no_failure();
    assert_eq!(report.allowed(), 3);
    // By now the call goes there at once.
    let old = &cluster.nodes[cluster.owner("CurrentLimiter:p")];
    let redirections = || {
        let stats: String = old.run("INFO errorstats");
        let moved = stats.lines().find(|line| line.contains("MOVED"));
        moved.expect("some were sent on").to_owned()
    };
    let before = redirections();
    assert_eq!(allowed(&store, &take("p", 5), 20).await, 0);
    assert_eq!(redirections(), before);
}

/// The slots of twenty keys go to another master and back, while each key is asked for all that it
/// has: with all that is in them at once, where the servers can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_migrate_under_load() {
    const EACH: u64 = 200;
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let key = |name: &str| format!("CurrentLimiter:{name}");
    let names = (0..).map(|at| format!("p{at}"));
    let names = names.filter(|name| cluster.owner(&key(name)) == 0);
    let names: Vec<_> = names.take(20).collect();
    let slots = names.iter().map(|name| cluster.slot(&key(name)));
    let slots: Vec<_> = BTreeSet::from_iter(slots).into_iter().collect();
    let loads: Vec<_> = names
        .iter()
        .map(|name| Load::hasty(&store, &take(name, EACH), 1))
        .collect();
    let fault = Instant::now();
    let cluster = Arc::new(cluster);
    let mut migrations = 0;
    let mut is_atomic = false;
    while migrations < 4 || !is_used_up(&store, &names, EACH).await {
        let (from, to) = [(0, 1), (1, 0)][migrations % 2];
        let (slots, at) = (slots.clone(), Arc::clone(&cluster));
        let migrates = move || at.migrate(&slots, from, to);
        is_atomic = tokio::task::spawn_blocking(migrates).await.expect("moved");
        migrations += 1;
        assert!(fault.elapsed() < 300 * SECOND, "{migrations} migrations");
    }
    let (mut allowed, mut failures) = (0, 0);
    for load in loads {
        let report = load.stop().await;
        // A take whose answer is lost may have been charged.
        let failed: usize = report.failures().values().sum();
        let got = report.allowed();
        assert!(
            got <= EACH && got + failed as u64 >= EACH,
            "{got}, {failed}"
        );
        allowed += got;
        failures += failed;
    }
    let how = if is_atomic { "at once" } else { "key by key" };
    println!(
        "| {migrations} migrations, {how}, of {} slots | {allowed} of {} | {failures} failures |",
        slots.len(),
        20 * EACH
    );
}

/// Whether all that the keys have is charged.
async fn is_used_up(store: &RedisStore, names: &[String], each: u64) -> bool {
    for name in names {
        let left = store.take(&take(name, each).looking()).await;
        if left.map_or(true, |left| left.remaining() > 0) {
            return false;
        }
    }
    true
}

/// All counts of a rule lie in one slot, which moves key by key: a take that finds some of its keys
/// here and some there is asked again, and never charged in a part of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_over_several_counts_follow_their_slot() {
    let cluster = Cluster::start(&Plan::default());
    let store = reached(cluster.url()).await;
    let user = Subject::new("user", Everyone).limit(Quota::per_hour(40));
    let all = Subject::new("everyone", Everyone).limit(Quota::per_hour(60));
    let rule = Arc::new(Rule::joint("p", [user, all]).expect("a valid rule"));
    let take = |user: &str| {
        let keys = [("user", Key::from(user)), ("everyone", Key::default())];
        Take::of_subjects(Arc::clone(&rule), keys).expect("both subjects")
    };
    for name in ["alice", "bob", "carol"] {
        assert_eq!(allowed(&store, &take(name), 2).await, 2);
    }
    let moving = move_about(&cluster, "CurrentLimiter:{p}:everyone", 2);
    let mut admitted = 6;
    let known = [StoreErrorKind::Unavailable, StoreErrorKind::Timeout];
    let mut asking = Box::pin(async {
        loop {
            for name in ["alice", "bob", "carol"] {
                match store.take(&take(name)).await {
                    Ok(decision) => admitted += u64::from(decision.is_allowed()),
                    Err(error) => assert!(known.contains(&error.kind()), "{error}"),
                }
            }
            sleep(millis(5)).await;
        }
    });
    tokio::select! {
        () = moving => {}
        () = &mut asking => {}
    }
    drop(asking);
    let mut charged = 0;
    let mut left = 0;
    for name in ["alice", "bob", "carol"] {
        let state = store.peek(&take(name)).await.expect("an answer");
        charged += 40 - state.quotas()[0].remaining();
        left = state.quotas()[1].remaining();
    }
    assert_eq!(charged, 60 - left, "in one subject as in the other");
    let is_right = charged >= admitted;
    assert!(is_right, "{charged} charged, {admitted} admitted");
}

/// Moves the slot of a key from master to master, key by key.
async fn move_about(cluster: &Cluster, key: &str, moves: usize) {
    let (slot, mut from) = (cluster.slot(key), cluster.owner(key));
    for _ in 0..moves {
        let to = cluster.begin_move_from(slot, from);
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        sleep(millis(30)).await;
        loop {
            let keys: Vec<String> = source.run(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            if keys.is_empty() {
                break;
            }
            for key in keys {
                source.run::<()>(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", target.port));
                sleep(millis(30)).await;
            }
        }
        cluster.give_slot(slot, to);
        from = to;
        sleep(millis(30)).await;
    }
}

/// Each of two masters says that the other one has the slot, as they do for a moment at the end of
/// a move: it is waited for, and who waits in vain is told that this may pass.
#[tokio::test]
async fn masters_that_contradict_each_other() {
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let key = "CurrentLimiter:p";
    let (slot, from) = (cluster.slot(key), cluster.owner(key));
    let to = (from + 1) % 3;
    let target = cluster.id(to);
    cluster.nodes[from].run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
    let begun = Instant::now();
    let error = store.take(&take("p", 3)).await.expect_err("nobody has it");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() >= millis(100), "{error}");

    cluster.give_slot(slot, to);
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);
}

/// `ASK`: keys are moved one by one. What was counted is counted once, wherever it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_exact_while_their_slot_moves() {
    const FEW: u64 = 400;
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let load = Load::patient(&store, &take("p", FEW), 4);
    load.decided().await;
    let fault = Instant::now();
    move_about(&cluster, "CurrentLimiter:p", 3).await;
    load.denied().await;
    let report = load.stop().await;
    let counts = format!(
        "{} allowed, and at most {FEW} in the hour",
        report.allowed()
    );
    report.row("ASK: moves of a slot, key by key", &counts, fault);
    assert!(report.allowed() <= FEW, "{}", report.allowed());
    report.assert_no_failure();
    assert_eq!(report.allowed(), FEW, "every unit was to be had");
    assert_eq!(allowed(&store, &take("p", FEW), 3).await, 0);
}

/// Other callers' commands stand between `ASKING` and the call, if they are not written at once.
/// Where the nodes have lost their scripts, these come behind `ASKING`, too, and with other calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn askings_do_not_get_mixed_up() {
    let cluster = Cluster::start(&Plan::default());
    let store = reached(cluster.url()).await;
    // The key is on its way, and stays so: each call is an `ASK`.
    cluster.begin_move("CurrentLimiter:p");
    let load = Load::patient(&store, &take("p", MAX), 32);
    load.decided().await;
    let fault = Instant::now();
    sleep(millis(500)).await;
    let report = load.stop().await;
    report.row("ASK for each of many calls at once", "all", fault);
    report.assert_no_failure();
    let counted = kit::charged(&store, &take("p", MAX)).await;
    assert_eq!(counted, report.allowed(), "each was counted once");

    for node in &cluster.nodes {
        node.run::<()>("SCRIPT FLUSH");
    }
    assert_eq!(allowed(&store, &take("p", MAX), 5).await, 5);
    for path in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(allowed(&store, &take(path, 3), 5).await, 3, "{path}");
    }
}

/// Callers who wait a second at most lose no decision while slots move and a replica takes over on
/// command, and none is charged twice. A busy machine may take longer to connect to the replica than
/// questions wait for that: then it is done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_moves_and_a_failover_cost_no_decision() {
    for _ in 0..3 {
        let cluster = Cluster::start(&Plan {
            replicas: 1,
            ..Plan::default()
        });
        let store = store(cluster.url()).await.timeout(SECOND);
        let paths: Vec<_> = (0..6).map(|at| format!("path{at}")).collect();
        let load = |path: &String| Load::start(store.clone(), &take(path, MAX), 4);
        let loads: Vec<_> = paths.iter().map(load).collect();
        for load in &loads {
            load.decided().await;
        }
        let (mut lost, fault) = (Vec::new(), Instant::now());
        move_about(&cluster, "CurrentLimiter:path0", 6).await;
        // What the master has not sent to its replica yet is sent before that one takes over.
        cluster.promote(3).await;
        for load in &loads {
            load.decided().await;
        }
        for (path, load) in paths.iter().zip(loads) {
            let report = load.stop().await;
            let counted = kit::charged(&store, &take(path, MAX)).await;
            let counts = format!("{} allowed, {counted} counted", report.allowed());
            let row = format!("moves of a slot and CLUSTER FAILOVER: {path}");
            report.row(&row, &counts, fault);
            lost.extend(report.failures().into_keys());
            assert_eq!(report.allowed(), counted, "{path}");
        }
        if lost.is_empty() {
            return;
        }
        assert!(lost.iter().all(|it| it == "Unavailable"), "{lost:?}");
    }
    panic!("three times decisions were lost");
}

/// What has several keys in the slot cannot be done while some of them are here and some there: it
/// is told, in time, and goes on when all are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_of_a_moving_slot() {
    let cluster = Cluster::start(&Plan::default());
    let redis = Redis::connect(cluster.url()).await;
    let redis = redis.expect("a running cluster");
    let store = RedisStore::of(&redis);
    let limiter = RateLimiter::new(&redis, "limiter");
    // Connecting to the node may take a busy machine longer than questions wait for it.
    let is_set = async || limiter.try_set_rate(overall(100, HOUR)).await.is_ok();
    eventually("the rate is set", is_set).await;
    assert!(limiter.takes(40).await);
    let asked = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            let (mut granted, mut failed, mut slowest) = (40, 0, Duration::ZERO);
            for _ in 0..300 {
                let begun = Instant::now();
                match limiter.try_acquire(1).await {
                    Ok(is_granted) => granted += u64::from(is_granted),
                    Err(error) => {
                        let known = ["TRYAGAIN", "not answer", "no connection"];
                        let error = error.to_string();
                        assert!(known.iter().any(|known| error.contains(known)), "{error}");
                        failed += 1;
                    }
                }
                slowest = slowest.max(begun.elapsed());
                sleep(millis(2)).await;
            }
            (granted, failed, slowest)
        }
    });
    move_about(&cluster, "limiter", 3).await;
    let (granted, failed, slowest) = asked.await.expect("no panic");
    println!("TRYAGAIN: {failed} of 300 failed, the slowest {slowest:?}, {granted} granted");
    assert!(granted <= 100, "{granted}");
    let bound = Redis::DEFAULT_TIMEOUT + kit::load::HICCUP;
    assert!(slowest < bound, "{slowest:?}");
    let left = limiter.free().await;
    assert!(left + granted <= 100, "{left} left, {granted} granted");
    assert_eq!(allowed(&store.timeout(PATIENT), &take("q", 3), 5).await, 3);
}

/// A slot moves key by key under load: calls of many keys are refused as a whole then, and yet
/// each take is decided, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_key_by_key() {
    const KEYS: u64 = 90;
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await.prefix("{eu}:");
    let rule = rule("moves", 1_000_000, HOUR);
    let takes: Vec<_> = (0..KEYS).map(|key| kit::take(&rule, key)).collect();
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
        assert_eq!(kit::charged(&store, take).await, asked, "{take:?}");
    }
}
