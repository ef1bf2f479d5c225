//! Keys that a partner's answer holds: the memory store and the scripts decide alike, and as an
//! oracle says that knows until when a key is held.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use redis::cmd;
use tidegate::decision::{Receipt, Verdict};
use tidegate::rule::Share;
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, Decision, Key, MemoryStore, Quota, RedisStore, Resilient, Rule, Store, Take,
};

use kit::store_on;
use kit::stub::Stub;

const HOUR: Duration = Duration::from_secs(3_600);

fn outgoing(path: &str, algorithm: Algorithm, quotas: &[Quota]) -> Arc<Rule> {
    let rule = Rule::new(path, quotas.to_vec()).expect("valid");
    let rule = rule.with_algorithm(algorithm).with_outgoing();
    Arc::new(rule.expect("one subject"))
}

fn told(decision: &Decision) -> (Verdict, Vec<(u64, Duration)>) {
    let states = decision.quotas().iter();
    let states = states.map(|it| (it.remaining(), it.reset_after()));
    (decision.verdict(), states.collect())
}

/// One history on both stores. Under each hold, nothing is admitted, and the retry-after is true.
async fn history(seed: u64, redis: &RedisStore, clock: &ManualClock) -> (usize, usize) {
    let mut random = Random::new(seed);
    let memory = MemoryStore::new().clock(clock.clone());
    let algorithm = Algorithm::ALL[seed as usize % 4];
    let windows = [[1_000, 60_000], [20, 3_000]][random.below(2) as usize];
    let quotas = windows
        .map(|window| Quota::new(Duration::from_millis(window), random.below(9)).expect("valid"));
    let quotas = &quotas[..1 + random.below(2) as usize];
    let path = format!("holds{seed}");
    let take = Take::new(outgoing(&path, algorithm, quotas), Key::from("us"));
    let (mut until, mut allowed, mut held) = (0, 0, 0);
    for step in 0..40 {
        let case = format!("seed {seed}, step {step}, {algorithm:?}");
        match random.below(10) {
            0..2 => {
                // No time only asks.
                let time = [0, 1, 700, 90_000, 2_000_000, 70_000_000][random.below(6) as usize];
                let time = Duration::from_micros(time);
                let both = [
                    memory.hold(&take, time).await,
                    redis.hold(&take, time).await,
                ];
                let both = both.map(|held| held.expect("an answer").as_micros() as u64);
                until = until.max(clock.now() + time.as_micros() as u64);
                assert_eq!(both, [until - clock.now(); 2], "{case}");
            }
            2..4 => {
                let by = [1, 699, 5_000, 800_000, 61_000_000][random.below(5) as usize];
                clock.set(clock.now() + by);
            }
            4 if random.is(30) => {
                let both = [memory.reset(&take).await, redis.reset(&take).await];
                let [ours, theirs] = both.map(|found| found.expect("an answer"));
                assert!(until <= clock.now() || ours && theirs, "{case}");
                until = 0;
                clock.set(clock.now() + 1);
            }
            4 => {
                // What was used is charged, held or not.
                let receipt = Receipt::new(0, 0, 1);
                let take = take.clone().with_cost(random.below(3));
                let both = [
                    memory.owe(&take, &receipt).await,
                    redis.owe(&take, &receipt).await,
                ];
                let [ours, theirs] = both.map(|charged| charged.expect("an answer"));
                assert_eq!(ours, theirs, "{case}");
            }
            _ => {
                let costs: Vec<_> = (0..1 + random.below(4)).map(|_| random.below(4)).collect();
                let takes: Vec<_> = costs
                    .iter()
                    .map(|cost| take.clone().with_cost(*cost))
                    .collect();
                let theirs = join_all(takes.iter().map(|take| redis.take(take))).await;
                for (take, theirs) in takes.iter().zip(theirs) {
                    let ours = memory.take(take).await.expect("decides");
                    let theirs = theirs.expect("decides");
                    assert_eq!(told(&ours), told(&theirs), "{case}: {}", take.cost());
                    let left = Duration::from_micros(until.saturating_sub(clock.now()));
                    if left.is_zero() || take.cost() == 0 {
                        assert!(!ours.is_on_hold(), "{case}: {ours:?}");
                        allowed += usize::from(ours.is_allowed());
                        continue;
                    }
                    assert!(!ours.is_allowed(), "{case}: {ours:?}");
                    let retry_after = ours.retry_after();
                    assert!(retry_after.is_none_or(|it| it >= left), "{case}: {ours:?}");
                    let is_true = !ours.is_on_hold() || retry_after == Some(left);
                    assert!(is_true, "{case}: {ours:?}");
                    held += usize::from(ours.is_on_hold());
                }
            }
        }
    }
    (allowed, held)
}

#[tokio::test]
async fn memory_and_redis_hold_alike() {
    let histories = std::env::var("TIDEGATE_HISTORIES").map_or(Ok(200), |number| number.parse());
    let server = Redis::start();
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    let redis = store_on(&server).await.clock(clock.clone());
    let (mut allowed, mut held) = (0, 0);
    for seed in 0..histories.expect("a number") {
        let (more_allowed, more_held) = history(seed, &redis, &clock).await;
        (allowed, held) = (allowed + more_allowed, held + more_held);
    }
    assert!(allowed > 300 && held > 300, "{allowed} {held}");
}

fn connection(server: &Redis) -> redis::Connection {
    let client = redis::Client::open(&*server.url).expect("an address");
    client.get_connection().expect("a running server")
}

/// A hold is a key of its own, with an expiry; one that nobody here wrote holds nothing.
#[tokio::test]
async fn its_key() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let take = Take::new(
        outgoing("p", Algorithm::SlidingLog, &[Quota::per_hour(1_000)]),
        Key::from("us"),
    );
    store.hold(&take, HOUR).await.expect("an answer");
    assert!(store.take(&take).await.expect("decides").is_on_hold());
    let mut server_side = connection(&server);
    let names: Vec<String> = cmd("KEYS")
        .arg("*~until")
        .query(&mut server_side)
        .expect("a list");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    assert!(
        name.starts_with('{') && name.ends_with("p:us}~until"),
        "{name}"
    );
    let left: i64 = cmd("PTTL")
        .arg(name)
        .query(&mut server_side)
        .expect("a time");
    assert!((3_500_000..=3_602_000).contains(&left), "{left}");

    for foreign in ["", "x", "-1", "nan", "inf", "9e99", "1e300", "0"] {
        let () = cmd("SET")
            .arg(name)
            .arg(foreign)
            .query(&mut server_side)
            .expect("set");
        assert!(
            store.take(&take).await.expect("decides").is_allowed(),
            "{foreign:?}"
        );
        assert_eq!(
            store.hold(&take, HOUR).await.expect("an answer"),
            HOUR,
            "{foreign:?}"
        );
        assert!(store.reset(&take).await.expect("an answer"), "{foreign:?}");
    }
    let () = cmd("RPUSH")
        .arg(name)
        .arg("x")
        .query(&mut server_side)
        .expect("pushed");
    assert!(store.take(&take).await.expect("decides").is_allowed());
    assert_eq!(store.hold(&take, HOUR).await.expect("an answer"), HOUR);
    assert!(store.take(&take).await.expect("decides").is_on_hold());
}

/// While the store fails, the fallback of the process that heard it obeys.
#[tokio::test(start_paused = true)]
async fn a_fallback_obeys() {
    let away = Stub::answering(MemoryStore::new(), |_| {
        let error = tidegate::StoreError::new(tidegate::store::StoreErrorKind::Unavailable, "away");
        Some(tidegate::store::StoreFuture::ready(Err(error)))
    });
    let store = Resilient::bare(away).fallback(Share::of_processes(2));
    let take = Take::new(
        outgoing("p", Algorithm::Gcra, &[Quota::per_hour(1_000)]),
        Key::from("us"),
    );
    assert!(store.take(&take).await.expect("decides").is_allowed());
    drop(store.hold(&take, HOUR).await);
    let held = store.take(&take).await.expect("decides");
    assert!(held.is_on_hold(), "{held:?}");
    drop(store.reset(&take).await);
    assert!(store.take(&take).await.expect("decides").is_allowed());
}

/// A reset ends a hold also while a reload says that the rule is not outgoing.
#[tokio::test]
async fn a_reset_ends_it_under_any_rule() {
    let server = Redis::start();
    let (memory, redis) = (MemoryStore::new(), store_on(&server).await);
    let quota = [Quota::per_hour(1_000)];
    let take = |rule: Arc<Rule>| Take::new(rule, Key::from("us"));
    let obeys = take(outgoing("p", Algorithm::Gcra, &quota));
    let plain = Rule::new("p", quota).expect("valid");
    let plain = take(Arc::new(plain.with_algorithm(Algorithm::Gcra)));
    let stores: [&dyn Store; 2] = [&memory, &redis];
    for store in stores {
        store.hold(&obeys, HOUR).await.expect("an answer");
        assert!(store.take(&plain).await.expect("decides").is_allowed());
        assert!(store.take(&obeys).await.expect("decides").is_on_hold());
        assert!(store.reset(&plain).await.expect("an answer"));
        assert!(store.take(&obeys).await.expect("decides").is_allowed());
    }
}
