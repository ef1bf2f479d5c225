//! Clients of Redisson count a limiter in the way of their release. A caller of another generation
//! is told so, and writes nothing. What stands in Redis here is what each release writes.

use kit::Redis;

use crate::*;

/// Releases of Redisson that count alike: their grant, as they pack it, and their generation.
struct Releases {
    names: &'static str,
    grant: fn(u32) -> Vec<u8>,
    generation: Option<Generation>,
}

fn packed(random: &[u8], permits: u32) -> Vec<u8> {
    [random, &permits.to_le_bytes()].concat()
}

/// `Bc0I`, with so many random bytes.
fn third(size: u8, permits: u32) -> Vec<u8> {
    let random: Vec<u8> = (0..size).map(|at| 200 + at).collect();
    packed(&[&[size], &random[..]].concat(), permits)
}

const ALL: [Releases; 5] = [
    Releases {
        names: "to 3.13.2",
        // They keep none.
        grant: |_| Vec::new(),
        generation: Some(Generation::First),
    },
    Releases {
        names: "3.13.3 to 3.16.3",
        // `fI`: a random number.
        grant: |permits| packed(&[0xf8, 0x35, 0x94, 0xde], permits),
        generation: Some(Generation::Second),
    },
    Releases {
        names: "3.16.4 to 3.16.8",
        // `Lc0I`
        grant: |permits| {
            packed(
                &[&[8, 0, 0, 0, 0, 0, 0, 0], &[201; 8][..]].concat(),
                permits,
            )
        },
        generation: None,
    },
    Releases {
        names: "3.17.0 and later",
        grant: |permits| third(8, permits),
        generation: Some(Generation::Third),
    },
    Releases {
        names: "3.17.0 and later",
        grant: |permits| third(16, permits),
        generation: Some(Generation::Third),
    },
];

const GENERATIONS: [Generation; 3] = [Generation::First, Generation::Second, Generation::Third];

impl Releases {
    /// Clients of these releases were granted 3 of 5 permits so many milliseconds ago.
    fn write(&self, server: &Redis, ago: u64) {
        let (seconds, micros): (u64, u64) = server.run("TIME");
        let score = seconds * 1_000 + micros / 1_000 - ago;
        run(server, "FLUSHALL");
        run(server, "HSET partner rate 5 interval 60000 type 0");
        let grant = (self.grant)(3);
        if grant.is_empty() {
            run(
                server,
                &format!("SET {{partner}}:value 2 PX {}", 60_000 - ago),
            );
        } else {
            run(server, "SET {partner}:value 2");
            let add = redis::Cmd::zadd("{partner}:permits", grant, score);
            let _: () = add.query(&mut server.connection()).expect("is added");
        }
    }
}

/// All keys, what is in them, and whether they expire.
fn contents(server: &Redis) -> Vec<(String, Vec<u8>, bool)> {
    let content = |name: String| {
        let dump = redis::cmd("DUMP")
            .arg(&name)
            .query(&mut server.connection());
        let expires = server.life(&name) >= 0;
        (name, dump.expect("a value"), expires)
    };
    server.names().into_iter().map(content).collect()
}

/// What a call says if clients of these releases use the limiter.
fn assert_refused<T: std::fmt::Debug>(called: Result<T, LimiterError>, releases: &Releases) {
    let error = called.expect_err(releases.names);
    assert_eq!(error.kind(), LimiterErrorKind::Unsupported, "{error}");
    let remedy = match releases.generation {
        Some(generation) => format!("generation(Generation::{generation:?})"),
        None => "upgrade".to_owned(),
    };
    let message = error.to_string();
    for part in [releases.names, "\"partner\"", &remedy] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// Also by a limiter with a rate of its own, whether it is Redisson's or another one.
#[tokio::test]
async fn another_generation_is_refused_before_anything_is_written() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for releases in &ALL {
        releases.write(&server, 5_000);
        let before = contents(&server);
        for generation in GENERATIONS {
            if releases.generation == Some(generation) {
                continue;
            }
            let limiter = RateLimiter::new(&redis, "partner").generation(generation);
            let owned = |permits| limiter.clone().rate(overall(permits, MINUTE));
            let shared = limiter.clone().shared_with_redisson();
            for limiter in [owned(5), owned(7), owned(7).shared_with_redisson(), shared] {
                assert_refused(limiter.try_acquire(1).await, releases);
                assert_refused(limiter.try_acquire(4).await, releases);
                assert_refused(limiter.try_acquire_for(4, MINUTE).await, releases);
                // It would wait for ever.
                assert_refused(limiter.acquire(4).await, releases);
                assert_refused(limiter.available_permits().await, releases);
                if generation == Generation::Third {
                    assert_refused(limiter.release(1).await, releases);
                    assert_refused(limiter.clone().fair().acquire(4).await, releases);
                    let is_as_before = async || contents(&server) == before;
                    eventually("the queue is empty again", is_as_before).await;
                }
            }
            assert_eq!(
                contents(&server),
                before,
                "{generation:?}, {}",
                releases.names
            );
        }
    }
}

#[tokio::test]
async fn the_generation_of_a_release_counts_on() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for releases in &ALL {
        let Some(generation) = releases.generation else {
            continue;
        };
        let limiter = RateLimiter::new(&redis, "partner").generation(generation);
        for limiter in [
            limiter.clone(),
            limiter.rate(overall(5, MINUTE)).shared_with_redisson(),
        ] {
            releases.write(&server, 5_000);
            assert_eq!(limiter.free().await, 2);
            assert!(!limiter.takes(3).await, "{}", releases.names);
            let permit = limiter.try_acquire_permit(2).await.expect("an answer");
            assert!(!limiter.takes(1).await, "{}", releases.names);
            // The third generation alone tells grants apart.
            let back = permit.expect("2 are free").release().await;
            let expected = 2 * u64::from(generation == Generation::Third);
            assert_eq!(back.expect("an answer"), expected, "{}", releases.names);
        }
    }
}

/// A fleet that moved on is not told of the releases that it had: their grants have expired.
#[tokio::test]
async fn grants_that_have_expired_refuse_nobody() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for releases in ALL.iter().filter(|it| !(it.grant)(1).is_empty()) {
        for generation in GENERATIONS {
            releases.write(&server, 60_001);
            let limiter = RateLimiter::new(&redis, "partner").generation(generation);
            limiter.available_permits().await.expect("a number");
            limiter.try_acquire(1).await.expect("an answer");
        }
    }
}

/// Java may come, or another release of it, while callers wait.
#[tokio::test]
async fn a_waiter_ends_once_another_generation_is_seen() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let [second, third] = [&ALL[1], &ALL[4]];
    third.write(&server, 5_000);
    let limiter = RateLimiter::new(&redis, "partner");
    let waiters: Vec<_> = (0..20).map(|_| waits_for(&limiter, 5)).collect();
    eventually("they wait", async || server.script_calls() >= 1).await;
    second.write(&server, 5_000);
    for waiter in waiters {
        assert_refused(waiter.await.expect("no panic"), second);
    }
}

fn waits_for(
    limiter: &RateLimiter,
    permits: u64,
) -> tokio::task::JoinHandle<Result<(), LimiterError>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(permits).await })
}

/// A fixed window without an end would deny clients of Redisson for ever.
#[tokio::test]
async fn a_window_that_becomes_shared_still_ends() {
    let server = Redis::start();
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    let limiter = limiter.generation(Generation::First);
    assert!(limiter.sets_first(overall(5, MINUTE)).await);
    assert!(limiter.takes(1).await);
    let shared = limiter.shared_with_redisson();
    assert!(!shared.sets_first(overall(5, MINUTE)).await);
    assert!(shared.is_shared().await.expect("an answer") == Some(true));
    let life = server.life("{partner}:value");
    assert!((1..=60_000).contains(&life), "{life}");
}
