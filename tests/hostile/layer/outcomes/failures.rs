//! Refunds that fail: what is not given back stays charged and is counted, and requests go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{MemoryStore, RedisStore, StoreError};
use tokio::time::{sleep, timeout};

use super::{Gate, ask, counted, flushed, left_of, limits, of, request, send, until, wrap};
use kit::distant::{Distant, Fate};
use kit::stub::Stub;
use kit::{PATIENT, connect, millis, run};

/// What a store does with refunds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refunds {
    PanicAtOnce,
    PanicLater,
    FailAtOnce,
    Never,
}

fn bad(refunds: Refunds) -> (Stub, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&asked);
    let store = Stub::in_memory().refund_fn(move |_, _, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let error = || StoreError::new(StoreErrorKind::Unavailable, "it is gone");
        match refunds {
            Refunds::PanicAtOnce => panic!("a store of a test"),
            Refunds::PanicLater => StoreFuture::boxed(async {
                tokio::task::yield_now().await;
                panic!("a store of a test, later")
            }),
            Refunds::FailAtOnce => StoreFuture::ready(Err(error())),
            Refunds::Never => StoreFuture::boxed(std::future::pending()),
        }
    });
    (store, asked)
}

/// Stores that panic or fail: each refund is asked once and counted lost, and answers
/// are what they were.
#[tokio::test]
async fn stores_that_misbehave() {
    for refunds in [
        Refunds::FailAtOnce,
        Refunds::PanicLater,
        Refunds::PanicAtOnce,
    ] {
        let (store, asked) = bad(refunds);
        let limits = limits(of("a", 100, &["2xx"]), store);
        let service = wrap(&limits.layer("a"));
        for used in 1..=10 {
            let answer = tokio::spawn({
                let service = service.clone();
                async move { send(&service, 200).await }
            });
            let answer = timeout(PATIENT, answer).await.expect("in time");
            assert_eq!(answer.expect("no panic"), 200, "{refunds:?}");
            assert_eq!(left_of(&limits, "a", "x").await, 100 - used, "{refunds:?}");
        }
        flushed(&limits).await;
        assert_eq!(asked.load(Ordering::Relaxed), 10, "{refunds:?}");
        assert_eq!(counted(&limits, "a"), (0, 0, 10), "{refunds:?}");
    }
}

/// A store whose refunds never answer: 4,096 wait, the rest is lost, 10 s later all are; a flush
/// ends in its time.
#[tokio::test(start_paused = true)]
async fn refunds_that_are_never_answered() {
    let (store, asked) = bad(Refunds::Never);
    let limits = limits(of("a", 100_000, &["2xx"]), store);
    let service = wrap(&limits.layer("a"));
    for _ in 0..10_000 {
        assert_eq!(send(&service, 200).await, 200);
    }
    assert!(!limits.flush(millis(500)).await);
    let (count, _, lost) = counted(&limits, "a");
    assert_eq!(count, 0);
    assert_eq!(lost, 10_000 - 4_096);
    assert!(asked.load(Ordering::Relaxed) <= 4_096);
    let began = tokio::time::Instant::now();
    assert!(limits.flush(Duration::from_secs(60)).await);
    assert!(
        began.elapsed() <= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(counted(&limits, "a").2, 10_000);
    assert_eq!(left_of(&limits, "a", "x").await, 90_000);
}

/// Lost on the way there, and lost on the way back: each is asked once, whatever becomes of it.
#[tokio::test(start_paused = true)]
async fn refunds_that_are_lost() {
    for (fate, left) in [(Fate::QuestionLost, 90), (Fate::ReplyLost, 100)] {
        let distant = Distant::new(MemoryStore::new()).ways(5, 5);
        let limits = limits(of("a", 100, &["2xx"]), distant.clone());
        let service = wrap(&limits.layer("a"));
        distant.refunds_are(fate);
        for _ in 0..10 {
            assert_eq!(send(&service, 200).await, 200);
        }
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (0, 0, 10), "{fate:?}");
        distant.refunds_are(Fate::Answered);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(left_of(&limits, "a", "x").await, left, "{fate:?}");
    }
}

/// Redis goes between the take and the refund, and comes back: answers are whole and in time, what
/// is lost is counted, and later refunds arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_between_take_and_refund() {
    for mode in [
        Mode::BlackHole,
        Mode::Reset,
        Mode::Garbage(b"-ERR no\r\n"),
        Mode::HalfClosed,
    ] {
        let server = Redis::start();
        let proxy = Proxy::start(&server.url).await;
        let store = RedisStore::connect(&*proxy.url).await.expect("a server");
        let limits = limits(of("a", 1_000, &["2xx"]), store.timeout(millis(1_000)));
        let service = wrap(&limits.layer("a"));
        assert_eq!(send(&service, 200).await, 200);
        flushed(&limits).await;
        let before = counted(&limits, "a");
        let slow: Vec<_> = (0..20)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move { ask(&service, request(&[("x-sleep", "500")])).await })
            })
            .collect();
        until(980, async || left_of(&limits, "a", "x").await).await;
        proxy.all(mode);
        let began = Instant::now();
        for slow in slow {
            assert_eq!(slow.await.expect("no panic"), 200, "{mode:?}");
        }
        assert!(began.elapsed() < PATIENT / 2);
        flushed(&limits).await;
        let (refunds, units, lost) = counted(&limits, "a");
        assert_eq!((refunds, units, lost), (before.0, before.1, 20), "{mode:?}");
        proxy.all(Mode::Pass);
        until(200, async || send(&service, 200).await).await;
        flushed(&limits).await;
        let left = left_of(&limits, "a", "x").await;
        assert!((980..=1_000).contains(&left), "{mode:?}: {left}");
        let (refunds, _, _) = counted(&limits, "a");
        assert_eq!(refunds, before.0 + 1, "{mode:?}");
    }
}

/// The ACL forbids what a refund needs, from now on: lost, counted, and takes go on.
#[tokio::test]
async fn the_acl_forbids_refunds() {
    let server = Redis::start();
    run(&server, "ACL SETUSER app on nopass ~* +@all");
    let url = server.url.replace("//", "//app:x@");
    for algorithm in super::ALGORITHMS {
        let store = connect(&url, PATIENT).await;
        let rule = of("a", 1_000, &["2xx"]).with_algorithm(algorithm);
        let limits = limits(rule, store);
        let service = wrap(&limits.layer("a"));
        assert_eq!(send(&service, 200).await, 200);
        flushed(&limits).await;
        // The key of the count only.
        run(&server, "ACL SETUSER app resetkeys ~CurrentLimiter:*");
        for _ in 0..5 {
            assert_eq!(send(&service, 200).await, 200, "{algorithm:?}");
        }
        flushed(&limits).await;
        let (refunds, units, lost) = counted(&limits, "a");
        println!("{algorithm:?}: {refunds} {units} {lost}");
        assert_eq!(refunds, units, "{algorithm:?}");
        let used = 1_000 - left_of(&limits, "a", "x").await;
        match algorithm {
            // What has begun to drain is not given back, and not lost.
            tidegate::Algorithm::Gcra => assert!(refunds + lost <= 6, "{refunds} {lost}"),
            _ => assert_eq!((refunds + lost, used), (6, lost), "{algorithm:?}"),
        }
        run(&server, "ACL SETUSER app ~*");
        assert_eq!(send(&service, 200).await, 200);
        flushed(&limits).await;
        if algorithm != tidegate::Algorithm::Gcra {
            assert_eq!(counted(&limits, "a").0, refunds + 1, "{algorithm:?}");
        }
        limits.reset("a", super::key("x")).await.expect("an answer");
    }
}

/// A wrong type under the key, its loss, and a foreign one, between take and refund.
#[tokio::test]
async fn bad_state_between_take_and_refund() {
    let server = Redis::start();
    for algorithm in super::ALGORITHMS {
        for command in ["SET", "LPUSH", "HSET", "SADD", "ZADD", "DEL", "FLUSHALL"] {
            run(&server, "FLUSHALL");
            let store = connect(&server.url, PATIENT).await;
            let rule = of("a", 100, &["2xx"]).with_algorithm(algorithm);
            let limits = limits(rule, store);
            let service = wrap(&limits.layer("a"));
            let gate = Gate::new();
            let held = tokio::spawn({
                let (service, request) = (service.clone(), gate.request());
                async move { ask(&service, request).await }
            });
            until(99, async || left_of(&limits, "a", "x").await).await;
            let mut connection = server.connection();
            let keys: Vec<String> = redis::cmd("KEYS")
                .arg("*:a*")
                .query(&mut connection)
                .expect("keys");
            assert!(!keys.is_empty());
            for name in &keys {
                redis::cmd("DEL")
                    .arg(name)
                    .exec(&mut connection)
                    .expect("deleted");
                let mut words = redis::cmd(command);
                match command {
                    "SET" | "LPUSH" | "SADD" => words.arg(name).arg("not ours"),
                    "HSET" => words.arg(name).arg("not").arg("ours"),
                    "ZADD" => words.arg(name).arg("1").arg("not ours"),
                    "DEL" => words.arg(name),
                    _ => &mut words,
                }
                .exec(&mut connection)
                .expect("done");
            }
            gate.open();
            assert_eq!(held.await.expect("no panic"), 200);
            flushed(&limits).await;
            let case = format!("{algorithm:?} {command}");
            let (_, units, _) = counted(&limits, "a");
            assert_eq!(units, 0, "{case}: nothing was there to be given back");
            // It heals, at the latest when the foreign value is gone.
            if !matches!(send(&service, 500).await, 500) {
                for name in &keys {
                    redis::cmd("DEL")
                        .arg(name)
                        .exec(&mut connection)
                        .expect("deleted");
                }
                assert_eq!(send(&service, 500).await, 500, "{case}");
            }
            assert_eq!(left_of(&limits, "a", "x").await, 99, "{case}");
            assert_eq!(send(&service, 200).await, 200, "{case}");
            flushed(&limits).await;
            assert_eq!(left_of(&limits, "a", "x").await, 99, "{case}");
        }
    }
}
