//! Four processes ask for the same path, and the limit is one.

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
