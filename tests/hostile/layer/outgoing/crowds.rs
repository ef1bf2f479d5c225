//! Crowds that wait for turns at an even pace, and more questions at once than a store takes.

use super::*;

/// The rule of a file.
fn of_file(text: &str) -> Limits {
    Limits::from_toml(text).expect("valid")
}

fn even(per_second: u64) -> Limits {
    of_file(&format!(
        "[rules.partner]\noutgoing = true\nmax-count = {per_second}\nwindow = \"1s\"\n\
         pace = \"even\"\n[rules.other]\nmax-count = 1000000000\nwindow = \"1s\"\n"
    ))
}

/// One asks for all: a few calls for each turn, and a bystander gets its decisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_even_pace_is_kept_by_one_that_asks() {
    for (callers, pace) in [(1_000, 200), (4_000, 2_000)] {
        let server = Redis::start();
        let store = Resilient::new(connect(&server.url, PATIENT).await);
        let limits = even(pace).store(store);
        pass(&limits, "warm").await;
        let before = server.script_calls();
        let begun = std::time::Instant::now();
        let calls = (0..callers).map(|_| {
            let patient = limits.outgoing("partner").wait(MINUTE);
            async move { patient.ready("us").await.map(drop) }
        });
        let beside = async {
            let mut decided = 0;
            while counters(&limits, "partner").waiting > 0 || decided == 0 {
                limits.check("other", "x").await.expect("a decision");
                decided += 1;
                sleep(millis(5)).await;
            }
            decided
        };
        let (turns, beside) = futures_util::future::join(in_tasks(calls), beside).await;
        let took = begun.elapsed();
        for turn in turns {
            turn.expect("a turn");
        }
        let calls = server.script_calls() - before - beside;
        let share = callers as f64 / pace as f64 / took.as_secs_f64();
        println!(
            "{callers} at {pace}: {:.1} % of the turns, {:.2} calls a turn",
            share * 100.0,
            calls as f64 / callers as f64
        );
        assert!(share < 1.05, "{share:.3}: too many turns in {took:?}");
        assert!(calls < 3 * callers, "{calls} calls for {callers} turns");
        assert_eq!(counters(&limits, "partner").waiting, 0);
    }
}

/// More than the store takes at once: whoever has patience gets a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_store_takes_at_once() {
    let server = Redis::start();
    let store = Resilient::new(connect(&server.url, PATIENT).await);
    let limits = Limits::new([partner(1_000_000)]).store(store);
    let calls = (0..10_000).map(|_| {
        let patient = limits.outgoing("partner").wait(20 * SECOND);
        async move { patient.ready("us").await.map(drop) }
    });
    let turns = in_tasks(calls).await;
    let refused = turns.iter().filter(|turn| turn.is_err()).count();
    assert_eq!(refused, 0, "of 10,000");
    // Without patience they hear it at once.
    let calls = (0..10_000).map(|_| {
        let hasty = limits.outgoing("partner");
        async move { hasty.ready("us").await.map(drop) }
    });
    let turns = in_tasks(calls).await;
    assert!(turns.iter().any(|turn| turn.is_err()), "1,024 at a time");
}
