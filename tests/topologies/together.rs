//! Everything that asks Redis, on a cluster and behind sentinels: no call has keys of two slots.

use futures_util::future::try_join_all;
use kit::cluster::Plan;
use kit::load::{allowed, reached, store, take, until};
use kit::lock_oracle::Ledger;
use kit::log::Log;
use kit::process::Process;
use kit::sentinels::Sentinels;
use tidegate::Redis;

use crate::*;

/// Many keys, in batches, and what is given back.
async fn takes_and_refunds(store: &RedisStore) {
    for algorithm in Algorithm::ALL {
        let rule = kit::clocked::by(algorithm, algorithm.name(), 3, HOUR);
        let user = |user: u32| kit::take(&rule, user);
        let batch: Vec<_> = (0..200).flat_map(|at| vec![user(at); 5]).collect();
        let decisions = ask_all(store, &batch).await.expect("decisions");
        let allowed = decisions.iter().filter(|decision| decision.is_allowed());
        assert_eq!(allowed.count(), 600, "{algorithm:?}");
        // The last of three that were allowed.
        for (take, decision) in batch.iter().zip(&decisions).skip(2).step_by(5) {
            let receipt = decision.receipt().expect("it was charged");
            let back = store.refund(take, &receipt).await.expect("an answer");
            assert_eq!(back, 1, "{algorithm:?}");
        }
        let again = ask_all(store, &batch[..5]).await.expect("decisions");
        let again = again.iter().filter(|decision| decision.is_allowed());
        assert_eq!(again.count(), 1, "{algorithm:?}");
    }
}

/// A limiter and a lock, and who waits for the lock in another process hears of its release.
async fn limiter_and_lock(url: &str, name: &str) {
    let (here, there) = (handle(url).await, handle(url).await);
    let limiter = RateLimiter::new(&here, name);
    assert!(limiter.sets_first(overall(5, HOUR)).await);
    let granted = join_all((0..8).map(|_| limiter.takes(1))).await;
    assert_eq!(granted.iter().filter(|is_granted| **is_granted).count(), 5);
    assert_eq!(limiter.free().await, 0);
    assert!(limiter.delete().await.expect("an answer"));

    hand_overs(url, &here, &there, &format!("{name}-lock")).await;
}

/// Who waits for a lock hears of its release. Without that it would look again after a second; one
/// of ten times this is well before, however busy the machine is.
async fn hand_overs(url: &str, here: &Redis, there: &Redis, name: &str) {
    let mut best = Duration::MAX;
    for _ in 0..10 {
        best = best.min(hand_over(here, there, name).await);
        if best < millis(200) {
            break;
        }
    }
    println!("{url}: {name} handed over after {} us", best.as_micros());
    assert!(best < millis(200), "{best:?}");
}

/// The lock, and when it was got.
async fn gets(lock: Lock) -> (LockGuard, Instant) {
    (lock.lock().await.expect("a lock"), Instant::now())
}

async fn hand_over(here: &Redis, there: &Redis, name: &str) -> Duration {
    let guard = Lock::new(here, name).holds().await;
    let waiting = tokio::spawn(gets(Lock::new(there, name)));
    sleep(millis(150)).await;
    let released = Instant::now();
    frees(guard).await;
    let (guard, taken) = waiting.await.expect("no panic");
    frees(guard).await;
    taken - released
}

/// Never two at once, though they hear of releases over any node of the cluster.
async fn one_at_a_time(url: &str) {
    let ledger = Ledger::default();
    let handles = [handle(url).await, handle(url).await, handle(url).await];
    kit::crowd(12, |at| {
        let (lock, ledger) = (Lock::new(&handles[at as usize % 3], "one"), ledger.clone());
        async move {
            for _ in 0..10 {
                let guard = lock.holds().await;
                ledger.pass(&guard).await;
                frees(guard).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let url = cluster.url();
    takes_and_refunds(&reached(&url).await).await;
    let names = ["a", "b", "c", "{eu}:d", "e}f{g}"];
    join_all(names.map(|name| limiter_and_lock(&url, name))).await;
    one_at_a_time(&url).await;
    for node in &cluster.nodes {
        let keys: u64 = node.run("DBSIZE");
        let is_right = keys > 100;
        assert!(is_right, "{keys} of more than 800 keys: no master has none");
    }
}

/// All counts of a rule of several subjects lie in one slot, and the log says so once.
#[tokio::test]
async fn joint_takes_on_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let store = reached(&cluster.url()).await;
    let log = Log::start();
    let told = || {
        let lines = log.lines().into_iter();
        let told = lines.filter(|line| line.contains("lie in one slot"));
        told.collect::<Vec<_>>()
    };
    store.take(&take("plain", 1)).await.expect("a decision");
    assert_eq!(told().len(), 0);
    for (at, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let user = Subject::new("user", Everyone).limit(quota(2, HOUR));
        let all = Subject::new("a}{b", Everyone).limit(quota(3, HOUR));
        let all = all.limit(Policy::from(quota(9, HOUR)).with_cost(2));
        let rule = Rule::joint("p{q", [user, all]).expect("a valid rule");
        let rule = Arc::new(rule.with_algorithm(algorithm).with_prefix("{eu}:"));
        let take = |user: &str| {
            let keys = [("user", Key::from(user)), ("a}{b", Key::default())];
            Take::of_subjects(Arc::clone(&rule), keys).expect("its subjects")
        };
        assert_eq!(allowed(&store, &take("a"), 3).await, 2, "{algorithm:?}");
        let charged = store.take(&take("b")).await.expect("a decision");
        assert_eq!(allowed(&store, &take("c"), 1).await, 0, "{algorithm:?}");
        let receipt = charged.receipt().expect("it was charged");
        let back = store.refund(&take("b"), &receipt).await;
        assert_eq!(back.expect("an answer"), 1, "{algorithm:?}");
        assert_eq!(allowed(&store, &take("c"), 2).await, 1, "{algorithm:?}");
        assert!(store.reset(&take("c")).await.expect("an answer"));
        assert_eq!(allowed(&store, &take("c"), 3).await, 2, "{algorithm:?}");
        let told = told();
        assert_eq!(told.len(), usize::from(at == 0), "{told:?}");
    }
}

/// A hold lies in its count's slot: takes of many keys in a batch obey theirs, also of another
/// process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_on_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let (here, there) = (reached(&cluster.url()).await, reached(&cluster.url()).await);
    for (algorithm, prefix) in Algorithm::ALL
        .into_iter()
        .zip(["a:", "{a}:", "x{a}:", "{a:"])
    {
        let rule = per_hour("partner", 3).with_algorithm(algorithm);
        let rule = rule.with_prefix(prefix).with_outgoing();
        let rule = Arc::new(rule.expect("one subject"));
        let tenants: Vec<_> = (0..100).map(|at| kit::take(&rule, at)).collect();
        let held = tenants.iter().step_by(2).map(|take| here.hold(take, HOUR));
        let held = try_join_all(held).await.expect("an answer");
        assert_eq!(held, [HOUR; 50], "{algorithm:?}");
        let decisions = try_join_all(tenants.iter().map(|take| there.take(take))).await;
        for (at, decision) in decisions.expect("decisions").iter().enumerate() {
            assert_eq!(decision.is_on_hold(), at % 2 == 0, "{algorithm:?}: {at}");
            assert_eq!(decision.is_allowed(), at % 2 == 1, "{algorithm:?}: {at}");
        }
        let resets = try_join_all(tenants.iter().map(|take| there.reset(take))).await;
        assert_eq!(resets.expect("an answer"), [true; 100], "{algorithm:?}");
        let decisions = try_join_all(tenants.iter().map(|take| here.take(take))).await;
        let decisions = decisions.expect("decisions");
        assert!(decisions.iter().all(|it| it.is_allowed()), "{algorithm:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    let redis = Sentinels::start();
    let url = redis.url();
    takes_and_refunds(&reached(&url).await).await;
    limiter_and_lock(&url, "a").await;
    one_at_a_time(&url).await;
    redis.fail_over();
    until("another master", || redis.master() != redis.servers[0].port).await;
    limiter_and_lock(&url, "b").await;
}

/// Who waits for a lock, and has listened to a server that is gone, hears of the release from the
/// one that is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_moves_with_its_master() {
    let redis = Sentinels::start();
    let url = redis.url();
    let (here, there) = (handle(&url).await, handle(&url).await);
    let guard = Lock::new(&here, "l").lock().await.expect("a lock");
    let waiting = tokio::spawn(gets(Lock::new(&there, "l")));
    sleep(millis(300)).await;
    redis.fail_over();
    until("another master", || redis.master() != redis.servers[0].port).await;
    // The old one hangs up when it is made a replica, some ten seconds later.
    let named = Instant::now();
    until("it is listened to at the new master", || {
        let question = "PUBSUB NUMSUB redisson_lock__channel:{l}";
        let (_, listeners): (String, u64) = redis.servers[1].run(question);
        listeners == 1
    })
    .await;
    let took = named.elapsed();
    assert!(took < 6 * SECOND, "{took:?}");
    // What is released at the old master is lost with it.
    while !is_asked(&redis.servers[1], &here).await {
        sleep(millis(10)).await;
    }
    let released = Instant::now();
    frees(guard).await;
    let (guard, taken) = waiting.await.expect("no panic");
    println!(
        "| SENTINEL FAILOVER while somebody waits for a lock | the lock, {} ms after its release | - | - | - |",
        (taken - released).as_millis()
    );
    frees(guard).await;
    hand_overs(&url, &here, &there, "l").await;
}

/// Whether the handle asks this server: a lock that it takes is there.
async fn is_asked(server: &Process, redis: &Redis) -> bool {
    let Ok(Some(guard)) = Lock::new(redis, "probe").try_lock().await else {
        return false;
    };
    let is_there: bool = server.run("EXISTS probe");
    // Its server may be another one by now.
    let _ = guard.release().await;
    is_there
}

/// Names with braces choose their slot by them; those that cannot are told clearly, and nothing is
/// counted.
#[tokio::test]
async fn braces_in_names() {
    let cluster = Cluster::start(&Plan::default());
    let redis = handle(&cluster.url()).await;
    let store = RedisStore::of(&redis).timeout(PATIENT);
    let refund = async |prefix: &str| {
        let store = store.clone().prefix(prefix);
        let take = take("p", 3);
        let decision = store.take(&take).await.expect("a decision");
        let receipt = decision.receipt().expect("it was charged");
        let back = store.refund(&take, &receipt).await;
        back.map_err(|error| error.kind())
    };
    let good = ["a:", "{a}:", "x{a}:", "{a:", "a}:{b}"].map(|it| (it, Ok(1)));
    let bad = ["a}", "{}"].map(|it| (it, Err(StoreErrorKind::Configuration)));
    for (prefix, expected) in good.into_iter().chain(bad) {
        assert_eq!(refund(prefix).await, expected, "{prefix}");
    }

    let locked = Lock::new(&redis, "a{b").lock().await;
    let limiter = RateLimiter::new(&redis, "a{b");
    let set = limiter.try_set_rate(overall(1, HOUR)).await;
    for error in [
        locked.expect_err("two slots").to_string(),
        set.expect_err("two slots").to_string(),
    ] {
        assert!(error.contains("several slots of the cluster"), "{error}");
    }
}

/// The reply to a call is lost with its connection: it is an error, and the call is not made again.
/// A take stays charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_take_is_done_twice() {
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let take = take("p", 1_000);
    let node = &cluster.nodes[cluster.owner("CurrentLimiter:p")];
    let ask = async || store.take(&take).await.map(drop);
    let counted = async || {
        let peek = store.peek(&take).await.map_err(|error| error.to_string())?;
        Ok(1_000 - peek.remaining())
    };
    cut_off("a take", node, ask, counted, Lost::Counts).await;
}

/// A permit whose caller has only heard of an error is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_granted_twice() {
    let cluster = Cluster::start(&Plan::default());
    let redis = handle(&cluster.url()).await;
    let limiter = RateLimiter::new(&redis, "limiter");
    assert!(limiter.sets_first(overall(1_000, HOUR)).await);
    let node = &cluster.nodes[cluster.owner("limiter")];
    let ask = async || limiter.try_acquire(1).await.map(drop);
    let counted = async || {
        let left = limiter.available_permits().await;
        Ok(1_000 - left.map_err(|error| error.to_string())?)
    };
    cut_off("a permit", node, ask, counted, Lost::ComesBack).await;
}

/// What becomes of a question whose reply is lost.
#[derive(Clone, Copy, PartialEq)]
enum Lost {
    Counts,
    ComesBack,
}

/// Asks, and cuts the connection off between the call and its reply, until one is lost. Each
/// question counts at most once.
async fn cut_off<E: std::fmt::Display>(
    what: &str,
    node: &Process,
    ask: impl AsyncFn() -> Result<(), E>,
    counted: impl AsyncFn() -> Result<u64, String>,
    lost: Lost,
) {
    // On a busy machine it may take more than one attempt until the reply is lost.
    for attempt in 1..=20 {
        let (mut sleeper, mut killer) = (node.connection(), node.connection());
        let sleeping = move || cmd("DEBUG").arg("SLEEP").arg(0.6).exec(&mut sleeper);
        let sleeping = tokio::task::spawn_blocking(sleeping);
        sleep(millis(200)).await;
        let killing = async {
            sleep(millis(200)).await;
            // Both have come while the server sleeps, and are looked at in one go, before it sends
            // replies.
            let mut kill = cmd("CLIENT");
            kill.arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]);
            tokio::task::spawn_blocking(move || kill.exec(&mut killer)).await
        };
        let (answer, killed) = tokio::join!(ask(), killing);
        killed.expect("no panic").expect("kills");
        let _ = sleeping.await;
        let expected = match lost {
            Lost::ComesBack if answer.is_err() => attempt - 1,
            Lost::ComesBack | Lost::Counts => attempt,
        };
        let started = Instant::now();
        loop {
            let counted = counted().await;
            if counted == Ok(expected) {
                break;
            }
            let seen = format!("{what}: {counted:?} instead of {expected}");
            assert!(counted.is_err() || counted <= Ok(attempt), "{seen}");
            assert!(started.elapsed() < PATIENT, "{seen}");
            sleep(millis(10)).await;
        }
        if let Err(failure) = answer {
            println!("| cluster: the reply to {what} is lost | {failure} | - | once | - |");
            return;
        }
    }
    panic!("{what}: no reply was lost");
}
