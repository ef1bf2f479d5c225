//! Very many refunds: bounded, counted, and no burden to whoever asks about something else (law
//! 13).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::{Limits, MemoryStore, RedisStore};

use super::{ALGORITHMS, ask, counted, flushed, left_of, of, request, send, until, wrap};
use kit::distant::{Distant, Fate};
use kit::stalls::{Lost, Stalls};
use kit::{PATIENT, behind, connect, millis};

/// After this time without an answer, a refund counts as lost.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// 10,000 requests end at once, on a key each, behind a server that is far away: at most 4,096
/// wait, the rest is lost and stays charged, and takes of a route beside them are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_once() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let limits = Limits::new([of("good", 100_000, &["2xx"]), of("other", 100_000, &[])]);
    let limits = Arc::new(limits.store(store));
    let service = wrap(&limits.layer("good"));
    let other = wrap(&limits.layer("other"));
    let stalls = Stalls::watch(&[&proxy.url], millis(500)).await;
    let began = Instant::now();
    let tasks: Vec<_> = (0..10_000_u64)
        .map(|at| {
            let service = service.clone();
            tokio::spawn(async move {
                let key = format!("k{}", at % 500);
                ask(&service, request(&[("x-key", &key), ("x-sleep", "400")])).await
            })
        })
        .collect();
    let bystander = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..40 {
            let began = Instant::now();
            let status = send(&other, 200).await;
            let lost = Lost::since(began, status);
            let is_excused = status == 200 || stalls.excuse(&lost, Duration::from_secs(1));
            assert!(is_excused, "law 13: {lost:?}");
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let (answers, slowest) = tokio::join!(join_all(tasks), bystander);
    let answers: Vec<_> = answers
        .into_iter()
        .map(|it| it.expect("no panic"))
        .collect();
    // A machine that stands still loses its connection, and with it takes that may be charged.
    let failed = answers.iter().filter(|it| **it != 200).count() as u64;
    assert!(failed == 0 || stalls.longest().is_some(), "{failed} failed");
    flushed(&limits).await;
    let took = began.elapsed();
    let (refunds, units, lost) = counted(&limits, "good");
    println!("{refunds} given back, {lost} lost; slowest bystander {slowest:?}");
    assert_eq!(refunds, units);
    assert_eq!(refunds + lost + failed, 10_000);
    let names: Vec<_> = (0..500).map(|at| format!("k{at}")).collect();
    let left = names.iter().map(|name| left_of(&limits, "good", name));
    let used = 500 * 100_000 - join_all(left).await.iter().sum::<u64>();
    assert!(used <= lost + failed, "nothing else stays charged: {used}");
    // On a busy machine, refunds may be given back after they were counted as lost.
    if took < MAX_WAIT && failed == 0 {
        assert_eq!(used, lost, "what is lost stays charged");
    }
    assert_eq!(counted(&limits, "other").2, 0);
}

/// Every refund is swallowed while takes pass: the route beside decides as before, in time.
#[tokio::test(start_paused = true)]
async fn refunds_that_fail_do_no_harm() {
    let distant = Distant::new(MemoryStore::new());
    distant.refunds_are(Fate::Silence);
    let limits = Limits::new([of("good", 1_000_000, &["2xx"]), of("other", 50, &[])]);
    let limits = limits.store(distant);
    let service = wrap(&limits.layer("good"));
    let other = wrap(&limits.layer("other"));
    for at in 0..12_000 {
        assert_eq!(send(&service, 200).await, 200);
        if at % 100 == 0 {
            let expected = if at / 100 < 50 { 200 } else { 429 };
            assert_eq!(send(&other, 200).await, expected);
        }
    }
    let (refunds, _, lost) = counted(&limits, "good");
    assert_eq!(refunds, 0);
    assert_eq!(lost, 12_000 - 4_096);
    assert_eq!(left_of(&limits, "good", "x").await, 1_000_000 - 12_000);
}

/// Rules share the queue of a store: a rule whose refunds fill it takes the refunds of others with
/// it, which are counted as lost under their own rule, and stay charged.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_told_by_the_rule_that_lost() {
    let distant = Distant::new(MemoryStore::new());
    distant.refunds_are(Fate::Silence);
    let limits = Limits::new([of("flood", 1_000_000, &["2xx"]), of("login", 50, &["2xx"])]);
    let limits = limits.store(distant.clone());
    let (flood, login) = (wrap(&limits.layer("flood")), wrap(&limits.layer("login")));
    for _ in 0..5_000 {
        assert_eq!(send(&flood, 200).await, 200);
    }
    for _ in 0..10 {
        assert_eq!(send(&login, 200).await, 200);
    }
    assert_eq!(counted(&limits, "flood"), (0, 0, 5_000 - 4_096));
    assert_eq!(counted(&limits, "login"), (0, 0, 10));
    // When the store answers again, all is as before.
    distant.refunds_are(Fate::Answered);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(send(&login, 200).await, 200);
    flushed(&limits).await;
    assert_eq!(counted(&limits, "login"), (1, 1, 10));
    assert_eq!(left_of(&limits, "login", "x").await, 40);
}

/// A server that hangs while thousands are to be given back, and wakes: what was lost is counted,
/// and no more is charged than what failed and was lost; failures are never free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&*proxy.url).await.expect("a server");
    let limits = Limits::new([of("a", 1_000_000, &["2xx"])]).store(store.timeout(millis(900)));
    let limits = Arc::new(limits);
    let service = wrap(&limits.layer("a"));
    assert_eq!(send(&service, 200).await, 200);
    let tasks: Vec<_> = (0..600_u64)
        .map(|at| {
            let service = service.clone();
            tokio::spawn(async move {
                let status = if at % 3 == 0 { "500" } else { "200" };
                let sleep = (300 + at % 200).to_string();
                let fields = [("x-sleep", &*sleep), ("x-status", status)];
                ask(&service, request(&fields)).await
            })
        })
        .collect();
    tokio::time::sleep(millis(380)).await;
    proxy.all(Mode::Hold);
    let answers = join_all(tasks).await;
    let failed = answers.iter().filter(|it| matches!(it, Ok(500))).count() as u64;
    let good = answers.iter().filter(|it| matches!(it, Ok(200))).count() as u64;
    tokio::time::sleep(millis(200)).await;
    proxy.all(Mode::Pass);
    until(200, async || send(&service, 200).await).await;
    flushed(&limits).await;
    tokio::time::sleep(millis(200)).await;
    let (refunds, _, lost) = counted(&limits, "a");
    let used = 1_000_000 - left_of(&limits, "a", "x").await;
    println!("{good} good, {failed} failed, {refunds} given back, {lost} lost, {used} charged");
    assert!(refunds + lost >= good, "{refunds} + {lost} of {good}");
    assert!(used >= failed, "{used} of {failed}");
    let unheard = 600 - failed - good;
    assert!(
        used <= failed + lost + unheard + 5,
        "{used}: {failed} + {lost} + {unheard}"
    );
}

/// Failures are counted exactly in the midst of it all, by every algorithm that promises that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_counted_exactly() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    for algorithm in ALGORITHMS {
        let store = connect(&proxy.url, PATIENT).await;
        let rule = of("exact", 1_000_000, &["2xx"]).with_algorithm(algorithm);
        let limits = Limits::new([rule]).store(store);
        let service = wrap(&limits.layer("exact"));
        let tasks: Vec<_> = (0..32_u64)
            .map(|task| {
                let service = service.clone();
                tokio::spawn(async move {
                    for at in 0..25 {
                        let status = if (at + task) % 10 == 0 { 500 } else { 200 };
                        assert_eq!(send(&service, status).await, status);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        flushed(&limits).await;
        let failed: u64 = (0..32)
            .map(|task| (0..25).filter(|at| (at + task) % 10 == 0).count() as u64)
            .sum();
        let (refunds, units, lost) = counted(&limits, "exact");
        println!("{algorithm:?}: {refunds} given back, {lost} lost");
        assert_eq!(lost, 0);
        let used = 1_000_000 - left_of(&limits, "exact", "x").await;
        match algorithm {
            tidegate::Algorithm::Gcra => assert!(units <= 800 - failed && used <= 800),
            _ => assert_eq!((refunds, units, used), (800 - failed, 800 - failed, failed)),
        }
        limits
            .reset("exact", super::key("x"))
            .await
            .expect("an answer");
    }
}
