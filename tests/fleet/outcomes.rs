//! Four processes charge by outcome: once all refunds have gone, failures alone count.

use axum::extract::Path;

use crate::*;

/// Of all processes. `TIDEGATE_OUTCOMES` says another number.
const REQUESTS: usize = 12_000;

fn refunding(algorithm: Algorithm) -> Rule {
    let rule = kit::per_hour("outcomes", 1_000_000).with_algorithm(algorithm);
    rule.with_refund_on(["2xx"]).expect("valid")
}

/// Plays one process: every tenth request fails.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_fails_at_times() {
    let Some(words) = instructions() else { return };
    let rule = refunding(algorithm(&words[1]));
    let [requests] = numbers(&words);
    let limits = Limits::new([rule]).store(store(&words[0]).await);
    let handler = get(|Path(number): Path<usize>| async move {
        match number % 10 {
            0 => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        }
    });
    let app = Router::new().route("/{number}", handler.layer(limits.layer("outcomes")));
    let tasks = (0..TASKS).map(|task| {
        let app = app.clone();
        async move {
            let mut failures = 0;
            for number in (task..requests as usize).step_by(TASKS) {
                match kit::http::status(&app, &format!("/{number}")).await {
                    StatusCode::OK => {}
                    StatusCode::INTERNAL_SERVER_ERROR => failures += 1,
                    other => panic!("{other}"),
                }
            }
            failures
        }
    });
    let failures: u64 = in_tasks(tasks).await.into_iter().sum();
    let ended = Instant::now();
    assert!(limits.flush(5 * SECOND).await, "{:?}", limits.snapshot());
    let flushed = ended.elapsed().as_millis();
    let lost = limits.snapshot().rules[0].refunds_lost;
    println!("\nfailures {failures}\nlost {lost}\nflushed {flushed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted_exactly() {
    let _machine = MACHINE.lock().await;
    let share = from_env("TIDEGATE_OUTCOMES", REQUESTS) / PROCESSES;
    let exact = [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ];
    for algorithm in exact {
        let (server, name) = (Redis::start(), algorithm.name());
        let workers = start_workers("outcomes::worker_fails_at_times", PROCESSES, |_| {
            format!("{} {name} {share}", server.url)
        });
        let outputs = outputs(workers);
        let failures = sum(&outputs, "failures ");
        let slowest = outputs.iter().map(|it| number(it, "flushed ")).max();
        assert_eq!(sum(&outputs, "lost "), 0);
        let take = Take::new(refunding(algorithm).into(), Key::default());
        let charged = kit::charged(&store_on(&server).await, &take).await;
        println!("{name}: {share} requests each, {failures} failures, {slowest:?} ms");
        assert_eq!(charged, failures, "{name}");
        assert_eq!(failures as usize, PROCESSES * share.div_ceil(10), "{name}");
    }
}
