//! Four processes ask for the same path, and the limit is one.

use kit::limiter_oracle::pairs;
use kit::windows::{Grant, fullest_window};

use crate::*;

/// Plays one process: requests through the whole layer until told otherwise.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_hammers_a_path() {
    let Some(words) = instructions() else { return };
    let [max] = numbers(&words);
    let layer = RateLimitLayer::new("hammered", HOUR, max);
    let app = kit::app(layer.store(store(&words[0]).await));
    let tasks = (0..TASKS).map(|_| {
        let app = app.clone();
        async move {
            let mut allowed = 0;
            for _ in 0..max.div_ceil(4) + 10 {
                match kit::http::status(&app, "/").await {
                    StatusCode::OK => allowed += 1,
                    StatusCode::TOO_MANY_REQUESTS => {}
                    other => panic!("{other}"),
                }
            }
            allowed
        }
    });
    let allowed: u64 = in_tasks(tasks).await.into_iter().sum();
    println!("\nallowed {allowed}");
}

/// Law 1 for processes: exactly `max` requests get through, whoever asks.
#[test]
fn exactly_max_requests_for_the_whole_fleet() {
    let _machine = MACHINE.blocking_lock();
    for max in [1, 10, 100, 1_000] {
        let server = Redis::start();
        let workers = start_workers("shared_limit::worker_hammers_a_path", PROCESSES, |_| {
            format!("{} {max}", server.url)
        });
        assert_eq!(sum(&outputs(workers), "allowed "), max);
    }
}

/// Plays one process that asks for weighted takes without a pause, for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_spends_for_a_while() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let quotas = [quota(100, millis(200)), quota(240, millis(1_000))];
    let rule = Arc::new(Rule::new("weighted", quotas).expect("valid"));
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    let tasks = (0..TASKS as u64).map(|task| {
        let (store, rule) = (store.clone(), rule.clone());
        async move {
            let (mut spent, mut step) = (0, task);
            while tokio::time::Instant::now() < until {
                step += 1;
                let cost = 1 + step % 7;
                let take = Take::new(rule.clone(), Key::default()).with_cost(cost);
                let decision = store.take(&take).await.expect("a decision");
                spent += if decision.is_allowed() { cost } else { 0 };
            }
            spent
        }
    });
    let spent: u64 = in_tasks(tasks).await.into_iter().sum();
    println!("\nspent {spent}");
}

/// From `"ZADD" "CurrentLimiter:weighted" "<stamp>" "<entry>"`: seven bytes of an entry are the
/// running total, so the difference to the one before is what was granted.
fn grants(monitor: Monitor, server: &Redis) -> Vec<Grant> {
    let (mut grants, mut before) = (Vec::new(), 0);
    monitor.replay(&server.url, |_, _, words| {
        if words[0] == b"ZADD" && words[1] == b"CurrentLimiter:weighted" {
            for (stamp, entry) in pairs(&words) {
                let total = entry[1..8].iter();
                let total = total.fold(0, |total, byte| (total << 8) | u64::from(*byte));
                // A log that was forgotten as a whole starts again at zero.
                let cost = total.checked_sub(before).unwrap_or(total);
                before = total;
                grants.push(Grant { stamp, cost });
            }
        }
    });
    grants
}

/// Law 1 in every window: what `MONITOR` saw the script write is replayed by somebody who knows
/// only when how much was spent.
#[test]
fn no_window_is_ever_above_its_quota() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let monitor = Monitor::start(&server.url);
    let worker = "shared_limit::worker_spends_for_a_while";
    let workers = start_workers(worker, PROCESSES, |_| server.url.clone());
    let spent = sum(&outputs(workers), "spent ");
    let grants = grants(monitor, &server);

    let seen: u64 = grants.iter().map(|grant| grant.cost).sum();
    assert_eq!(seen, spent, "every grant was seen");
    for (max, window) in [(100, 200_000), (240, 1_000_000)] {
        let fullest = fullest_window(&grants, window);
        assert!(fullest <= max, "{fullest} in a window of {max}");
        let is_full = fullest * 100 >= max * 90;
        assert!(
            is_full,
            "{fullest} of {max}: this test asked for too little"
        );
    }
}
