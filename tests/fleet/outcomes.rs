//! Four processes charge by outcome: once all refunds have gone, failures alone count.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use http::{Request, StatusCode};
use kit::Redis;
use kit::workers::{instructions, number, outputs, start_worker};
use tidegate::{Algorithm, Key, Limits, Quota, Rule, Take};
use tower::ServiceExt;

use crate::{MACHINE, PROCESSES, TASKS, store};

/// Of all processes. `TIDEGATE_OUTCOMES` says another number.
const REQUESTS: usize = 12_000;
const FLUSH: Duration = Duration::from_secs(5);

fn refunding(algorithm: Algorithm) -> Rule {
    let rule = Rule::new("outcomes", [Quota::per_hour(1_000_000)]).expect("valid");
    let rule = rule.with_algorithm(algorithm).with_refund_on(["2xx"]);
    rule.expect("valid")
}

fn algorithm(name: &str) -> Algorithm {
    let mut all = Algorithm::ALL.into_iter();
    all.find(|known| known.name() == name).expect("one of them")
}

/// Plays one process: every tenth request fails.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_fails_at_times() {
    let Some(words) = instructions() else { return };
    let rule = refunding(algorithm(&words[1]));
    let requests: usize = words[2].parse().expect("a number");
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
        tokio::spawn(async move {
            let mut failures = 0;
            for number in (task..requests).step_by(TASKS) {
                let request = Request::get(format!("/{number}")).body(Body::empty());
                let response = app.clone().oneshot(request.expect("valid")).await;
                match response.expect("axum does not fail").status() {
                    StatusCode::OK => {}
                    StatusCode::INTERNAL_SERVER_ERROR => failures += 1,
                    other => panic!("{other}"),
                }
            }
            failures
        })
    });
    let mut failures: u64 = 0;
    for task in tasks.collect::<Vec<_>>() {
        failures += task.await.expect("no panic");
    }
    let ended = Instant::now();
    assert!(limits.flush(FLUSH).await, "{:?}", limits.snapshot());
    let flushed = ended.elapsed().as_millis();
    let lost = limits.snapshot().rules[0].refunds_lost;
    println!("\nfailures {failures}\nlost {lost}\nflushed {flushed}");
}

#[test]
fn failures_are_counted_exactly() {
    let _machine = MACHINE.blocking_lock();
    let requests = std::env::var("TIDEGATE_OUTCOMES").ok();
    let requests = requests.map_or(REQUESTS, |text| text.parse().expect("a number"));
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ] {
        let server = Redis::start();
        let (name, share) = (algorithm.name(), requests / PROCESSES);
        let instructions = format!("{} {name} {share}", server.url);
        let workers =
            (0..PROCESSES).map(|_| start_worker("outcomes::worker_fails_at_times", &instructions));
        let outputs = outputs(workers.collect());
        let all = |what| outputs.iter().map(move |output| number(output, what));
        let failures: u64 = all("failures ").sum();
        let slowest = all("flushed ").max();
        assert_eq!(all("lost ").sum::<u64>(), 0);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let remaining = runtime.block_on(async {
            let take = Take::new(refunding(algorithm).into(), Key::default());
            let decision = store(&server.url).await.peek(&take).await;
            decision.expect("a decision").remaining()
        });
        println!("{name}: {requests} requests, {failures} failures, {slowest:?} ms");
        assert_eq!(1_000_000 - remaining, failures, "{name}");
        assert_eq!(failures as usize, PROCESSES * share.div_ceil(10), "{name}");
    }
}
