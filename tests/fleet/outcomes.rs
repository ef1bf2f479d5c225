//! Four processes ask for the same path, and the limit is one; they charge by outcome, and once all
//! refunds have gone, failures alone count.

use axum::extract::Path;

use crate::*;

/// Of all processes. `TIDEGATE_OUTCOMES` says another number.
const REQUESTS: usize = 12_000;

/// More than is asked for.
const PLENTY: u64 = 1_000_000;

/// Where there is plenty, what succeeds is given back.
fn rule(algorithm: Algorithm, max: u64) -> Rule {
    let rule = kit::per_hour("outcomes", max).with_algorithm(algorithm);
    match max {
        PLENTY => rule.with_refund_on(["2xx"]).expect("valid"),
        _ => rule,
    }
}

/// Plays one process: every tenth request fails.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_fails_at_times() {
    let Some(words) = instructions() else { return };
    let [max, requests] = numbers(&words);
    let limits = Limits::new([rule(algorithm(&words[1]), max)]).store(store(&words[0]).await);
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
            let (mut allowed, mut failures) = (0, 0);
            for number in (task..requests as usize).step_by(TASKS) {
                match kit::http::status(&app, &format!("/{number}")).await {
                    StatusCode::OK => allowed += 1,
                    StatusCode::INTERNAL_SERVER_ERROR => failures += 1,
                    StatusCode::TOO_MANY_REQUESTS if max < PLENTY => {}
                    other => panic!("{other}"),
                }
            }
            (allowed + failures, failures)
        }
    });
    let (allowed, failures): (Vec<u64>, Vec<u64>) = in_tasks(tasks).await.into_iter().unzip();
    let [allowed, failures] = [allowed, failures].map(|it| it.iter().sum::<u64>());
    let ended = Instant::now();
    assert!(limits.flush(5 * SECOND).await, "{:?}", limits.snapshot());
    let flushed = ended.elapsed().as_millis();
    let lost = limits.snapshot().rules[0].refunds_lost;
    println!("\nallowed {allowed}\nfailures {failures}\nlost {lost}\nflushed {flushed}");
}

/// What four processes say that ask so often each.
fn asked(server: &Redis, algorithm: &str, max: u64, requests: usize) -> Vec<String> {
    let workers = start_workers("outcomes::worker_fails_at_times", PROCESSES, |_| {
        format!("{} {algorithm} {max} {requests}", server.url)
    });
    outputs(workers)
}

/// Law 1 for processes: exactly `max` requests get through, whoever asks.
#[test]
fn exactly_max_requests_for_the_whole_fleet() {
    let _machine = MACHINE.blocking_lock();
    for max in [1, 10, 100, 1_000] {
        let requests = TASKS * (max as usize).div_ceil(4) + 10 * TASKS;
        let outputs = asked(&Redis::start(), Algorithm::default().name(), max, requests);
        assert_eq!(sum(&outputs, "allowed "), max);
    }
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
        let outputs = asked(&server, name, PLENTY, share);
        let failures = sum(&outputs, "failures ");
        let slowest = outputs.iter().map(|it| number(it, "flushed ")).max();
        assert_eq!(sum(&outputs, "lost "), 0);
        let take = Take::new(rule(algorithm, PLENTY).into(), Key::default());
        let charged = kit::charged(&store_on(&server).await, &take).await;
        println!("{name}: {share} requests each, {failures} failures, {slowest:?} ms");
        assert_eq!(charged, failures, "{name}");
        assert_eq!(failures as usize, PROCESSES * share.div_ceil(10), "{name}");
    }
}
