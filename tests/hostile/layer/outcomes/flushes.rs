//! `flush`: true only when nothing waits any more, never longer than its bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use tidegate::{Limits, MemoryStore, RateLimitLayer};
use tokio::time::{sleep, timeout};

use super::{counted, flushed, left_of, limits, of, send, until, wrap};
use kit::distant::{Distant, Fate};
use kit::{PATIENT, behind, connect, millis};

/// With nothing to wait for it is true at once, with any bound, also for layers of their own.
#[tokio::test]
async fn nothing_to_wait_for() {
    let limits = Limits::new([of("a", 5, &["2xx"])]);
    let layer = RateLimitLayer::new("b", Duration::from_secs(1), 5);
    for bound in [Duration::ZERO, millis(1), Duration::MAX] {
        assert!(limits.flush(bound).await);
        assert!(layer.flush(bound).await);
        assert!(limits.layer("a").flush(bound).await);
        assert!(limits.layer("unknown").flush(bound).await);
    }
}

/// A bound of nothing says what is; the longest one waits for the answer.
#[tokio::test(start_paused = true)]
async fn the_shortest_and_the_longest() {
    let distant = Distant::new(MemoryStore::new());
    let limits = limits(of("a", 5, &["2xx"]), distant.clone());
    let layer = limits.layer("a");
    let service = wrap(&layer);
    distant.set_ways(0, 700);
    assert_eq!(send(&service, 200).await, 200);
    assert!(!limits.flush(Duration::ZERO).await);
    assert!(!layer.flush(millis(300)).await);
    let began = tokio::time::Instant::now();
    let clone = layer.clone();
    let (one, two, three) = tokio::join!(
        limits.flush(Duration::MAX),
        layer.flush(Duration::MAX),
        clone.flush(Duration::from_secs(u64::MAX / 2)),
    );
    assert!(one && two && three);
    assert!(began.elapsed() <= millis(500), "{:?}", began.elapsed());
    assert!(limits.flush(Duration::ZERO).await);
    distant.set_ways(0, 0);
    assert_eq!(left_of(&limits, "a", "x").await, 5);
}

/// Each of many that wait is told, and one that gives up takes nothing from the others.
#[tokio::test(start_paused = true)]
async fn many_wait() {
    let distant = Distant::new(MemoryStore::new());
    let limits = Arc::new(limits(of("a", 5_000, &["2xx"]), distant.clone()));
    let service = wrap(&limits.layer("a"));
    for round in 0..5 {
        distant.set_ways(10, 200);
        assert_eq!(send(&service, 200).await, 200);
        let tasks: Vec<_> = (0..40)
            .map(|at| {
                let limits = Arc::clone(&limits);
                tokio::spawn(async move {
                    let bound = if at % 2 == 0 { PATIENT } else { millis(at) };
                    let flush = timeout(bound, limits.flush(Duration::MAX));
                    (at % 2 == 0, flush.await.unwrap_or(false))
                })
            })
            .collect();
        for answer in join_all(tasks).await {
            let (is_patient, is_done) = answer.expect("no panic");
            assert_eq!(is_patient, is_done, "{round}");
        }
    }
}

/// While requests run and run, a flush ends by its bound, and says true only if all of what came
/// before it was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_requests_run() {
    let server = Redis::start();
    let proxy = behind(&server, millis(10)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let limits = Arc::new(limits(of("a", 1_000_000, &["2xx"]), store));
    let service = wrap(&limits.layer("a"));
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (service, is_over) = (service.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut sent = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(send(&service, 200).await, 200);
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    for bound in [0, 1, 20, 100, 300] {
        let began = Instant::now();
        let done = limits.flush(millis(bound)).await;
        println!("{bound}: {done} after {:?}", began.elapsed());
        assert!(began.elapsed() < millis(bound) + PATIENT / 4);
        sleep(millis(20)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for task in tasks {
        sent += task.await.expect("no panic");
    }
    assert!(limits.flush(PATIENT).await);
    assert_eq!(counted(&limits, "a"), (sent, sent, 0));
    assert_eq!(left_of(&limits, "a", "x").await, 1_000_000);
}

/// It is about all layers of the limits, their clones, and layers that are gone.
#[tokio::test(start_paused = true)]
async fn layers_that_are_gone() {
    let distant = Distant::new(MemoryStore::new());
    let limits = Limits::new([of("a", 50, &["2xx"]), of("b", 50, &["2xx"])]).store(distant.clone());
    distant.set_ways(0, 400);
    for path in ["a", "b", "a"] {
        let service = wrap(&limits.layer(path));
        assert_eq!(send(&service, 200).await, 200);
        drop(service);
    }
    assert!(!limits.flush(Duration::ZERO).await);
    flushed(&limits).await;
    distant.set_ways(0, 0);
    for path in ["a", "b"] {
        assert_eq!(left_of(&limits, path, "x").await, 50, "{path}");
    }
    // The limits are gone, too: what was to be given back arrives.
    distant.set_ways(0, 100);
    let service = wrap(&limits.layer("a"));
    assert_eq!(send(&service, 200).await, 200);
    let store = Arc::clone(limits.shared_store());
    drop((limits, service));
    sleep(Duration::from_secs(1)).await;
    distant.set_ways(0, 0);
    assert_eq!(super::left_in(&*store, &of("a", 50, &[]), "x").await, 50);
}

/// A store whose answers come no more: the flush says so in its time, and later ones as well, until
/// they are given up.
#[tokio::test(start_paused = true)]
async fn a_store_that_falls_silent() {
    let distant = Distant::new(MemoryStore::new());
    let limits = limits(of("a", 50, &["2xx"]), distant.clone());
    let service = wrap(&limits.layer("a"));
    distant.refunds_are(Fate::Silence);
    assert_eq!(send(&service, 200).await, 200);
    for _ in 0..5 {
        let began = tokio::time::Instant::now();
        assert!(!limits.flush(millis(100)).await);
        assert!(began.elapsed() <= millis(200));
    }
    distant.refunds_are(Fate::Answered);
    until(1, async || counted(&limits, "a").2).await;
    assert!(limits.flush(Duration::ZERO).await);
    assert_eq!(send(&service, 200).await, 200);
    flushed(&limits).await;
    assert_eq!(counted(&limits, "a"), (1, 1, 1));
}
