//! Four processes ask for the same path, and the limit is one.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use kit::Redis;
use kit::workers::{instructions, number, outputs, start_worker};
use tidegate::{Decision, Key, Quota, RateLimitLayer, Rule, Store, Take};
use tower::ServiceExt;

use crate::monitor::Monitor;
use crate::{MACHINE, PROCESSES, TASKS, store};
use kit::windows::fullest_window;

/// Plays one process: requests through the whole layer until told otherwise.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_hammers_a_path() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let max: u64 = words[1].parse().expect("a number");
    let layer = RateLimitLayer::new("hammered", Duration::from_secs(3600), max).store(store);
    let app = Router::new().route("/", get(|| async { "1" }).layer(layer));
    let tasks = (0..TASKS).map(|_| {
        let app = app.clone();
        tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..max.div_ceil(4) + 10 {
                let request = Request::get("/").body(Body::empty()).expect("valid");
                let response = app
                    .clone()
                    .oneshot(request)
                    .await
                    .expect("axum does not fail");
                match response.status() {
                    StatusCode::OK => allowed += 1,
                    StatusCode::TOO_MANY_REQUESTS => {}
                    other => panic!("{other}"),
                }
            }
            allowed
        })
    });
    let mut allowed: u64 = 0;
    for task in tasks.collect::<Vec<_>>() {
        allowed += task.await.expect("no panic");
    }
    println!("\nallowed {allowed}");
}

/// Law 1 for processes: exactly `max` requests get through, whoever asks.
#[test]
fn exactly_max_requests_for_the_whole_fleet() {
    let _machine = MACHINE.blocking_lock();
    for max in [1, 10, 100, 1_000] {
        let server = Redis::start();
        let instructions = format!("{} {max}", server.url);
        let workers = (0..PROCESSES)
            .map(|_| start_worker("shared_limit::worker_hammers_a_path", &instructions));
        let outputs = outputs(workers.collect());
        let allowed: u64 = outputs
            .iter()
            .map(|output| number(output, "allowed "))
            .sum();
        assert_eq!(allowed, max);
    }
}

/// Plays one process that asks for weighted takes without a pause, for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_spends_for_a_while() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let quotas = [quota(100, 200), quota(240, 1_000)];
    let rule = Arc::new(Rule::new("weighted", quotas).expect("valid"));
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    let tasks = (0..TASKS as u64).map(|task| {
        let (store, rule) = (store.clone(), rule.clone());
        tokio::spawn(async move {
            let mut spent = Vec::new();
            let mut step = task;
            while tokio::time::Instant::now() < until {
                step += 1;
                let cost = 1 + step % 7;
                let take = Take::new(rule.clone(), Key::default()).with_cost(cost);
                let decision: Decision = store.take(&take).await.expect("a decision");
                if decision.is_allowed() {
                    spent.push(cost);
                }
            }
            spent.iter().sum::<u64>()
        })
    });
    let mut spent = 0;
    for task in tasks.collect::<Vec<_>>() {
        spent += task.await.expect("no panic");
    }
    println!("\nspent {spent}");
}

fn quota(max: u64, millis: u64) -> Quota {
    Quota::new(Duration::from_millis(millis), max).expect("valid")
}

/// Law 1 in every window: what `MONITOR` saw the script write is replayed by somebody who knows
/// only when how much was spent.
#[test]
fn no_window_is_ever_above_its_quota() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let mut monitor = Monitor::start(&server);
    let workers = (0..PROCESSES)
        .map(|_| start_worker("shared_limit::worker_spends_for_a_while", &server.url));
    let outputs = outputs(workers.collect());
    let spent: u64 = outputs.iter().map(|output| number(output, "spent ")).sum();
    let grants = monitor.grants();

    assert_eq!(
        grants.iter().map(|grant| grant.cost).sum::<u64>(),
        spent,
        "every grant was seen"
    );
    for (max, window) in [(100, 200_000), (240, 1_000_000)] {
        let fullest = fullest_window(&grants, window);
        assert!(fullest <= max, "{fullest} in a window of {max}");
        assert!(
            fullest * 100 >= max * 90,
            "{fullest} of {max}: this test asked for too little"
        );
    }
}
