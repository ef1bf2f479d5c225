//! `.wait()` on real servers: waits may end at any moment, and processes share a quota.

use crate::*;

fn app(store: &RedisStore, max: u64, wait: Duration) -> Router {
    let layer = RateLimitLayer::new("paced", millis(200), max);
    kit::app(layer.store(store.clone()).wait(wait))
}

/// Waits that end in between, at every moment: none of them is charged after its end, and
/// afterwards the quota is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_dropped_at_every_moment() {
    let (_server, _proxy, store) = kit::far(millis(4)).await;
    let waiting = app(&store, 5, Duration::MAX);
    in_tasks((0..400).map(|at| {
        let app = waiting.clone();
        async move {
            sleep(Duration::from_micros(at * 2_500)).await;
            let _ = timeout(millis(at % 60), kit::http::status(&app, "/")).await;
        }
    }))
    .await;
    sleep(millis(250)).await;
    let at_once = app(&store, 5, Duration::ZERO);
    let answers = kit::done((0..5).map(|_| kit::http::start(&at_once, 0, "/", ""))).await;
    assert!(answers.iter().all(|it| it.status == 200), "{answers:?}");
}

/// Two layers of one path in two "processes", both waiting, use the quota once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_wait_for_one_quota() {
    const MAX: u64 = 20;
    let server = Redis::start();
    let mut apps = Vec::new();
    for _ in 0..2 {
        let store = connect(&server.url, PATIENT).await;
        apps.push(app(&store, MAX, Duration::MAX));
    }
    let began = Instant::now();
    let allowed = in_tasks((0..200).map(|at| {
        let app = apps[at % 2].clone();
        async move {
            let asked = Instant::now();
            assert_eq!(kit::http::status(&app, "/").await, 200);
            let answered = Instant::now();
            Allowed { asked, answered }
        }
    }))
    .await;
    check_windows(&allowed, MAX, millis(200));
    let took = began.elapsed();
    let is_soon = took < millis(3_600);
    assert!(is_soon, "200 at 100 in a second take 1.8 s: {took:?}");
}
