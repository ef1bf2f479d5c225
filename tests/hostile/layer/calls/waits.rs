//! Calls that wait: for no time, for ever, in crowds, and for what an operator does.

use super::*;

fn every(window: Duration, max: u64) -> Rule {
    kit::owned_rule("p", max, window)
}

/// `Duration::MAX` is as long as it takes, not an overflow.
#[tokio::test(start_paused = true)]
async fn for_ever() {
    for window in [SECOND, HOUR, DAY] {
        let limits = paused(every(window, 1));
        let began = Instant::now();
        let calls = (0..4).map(|_| {
            let call = call(&limits).wait(Duration::MAX);
            call.run(async || began.elapsed())
        });
        let mut ran: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        ran.sort();
        assert_eq!(ran.len(), 4, "all had their turn");
        for (at, after) in ran.into_iter().enumerate() {
            let turn = window * at as u32;
            let is_near = after >= turn && after < turn + 5 * SECOND;
            assert!(is_near, "{window:?}: the call {at} ran after {after:?}");
        }
        assert_eq!(counted(&limits).waiting, 0);
    }
}

/// What no wait helps is denied at once, however long a caller would wait.
#[tokio::test(start_paused = true)]
async fn in_vain() {
    for (max, cost) in [(0, 1), (5, 6), (5, u64::MAX)] {
        let limits = paused(hourly(max));
        let began = Instant::now();
        let call = call(&limits).cost(cost).wait(Duration::MAX);
        let refused = call.run(async || ()).await.expect_err("never");
        assert_eq!(refused.retry_after(), None);
        assert_eq!(began.elapsed(), Duration::ZERO, "{max}, {cost}");
        assert_eq!(left(&limits).await, max, "law 2");
    }
}

/// A rule gives nothing back: whoever waits behind a request, or a call, that waited, too, is
/// denied at once. Nothing can settle the charge of a call, either.
#[tokio::test(start_paused = true)]
async fn behind_what_runs_nothing_comes_back() {
    for holder_waits in [Duration::ZERO, PATIENT] {
        for holder in ["request", "run", "try_run"] {
            let limits = paused(hourly(1));
            let work = async || works(30 * SECOND).await;
            let holds = async {
                let call = call(&limits).wait(holder_waits);
                match holder {
                    "request" => {
                        let layer = limits.layer("p").wait(holder_waits);
                        let app = Router::new()
                            .route("/", any(async || sleep(30 * SECOND).await).layer(layer));
                        kit::http::ask(&app, "/", "").await.status == 200
                    }
                    "run" => call.run(work).await.is_ok(),
                    _ => call.try_run(work).await.is_ok(),
                }
            };
            let began = Instant::now();
            let waits = async {
                sleep(millis(1)).await;
                let call = call(&limits).wait(20 * SECOND);
                let refused = call.run(async || ()).await.expect_err("used up");
                assert!(refused.retry_after().expect("a time") > 20 * SECOND);
                began.elapsed()
            };
            let (held, after) = join(holds, waits).await;
            assert!(held);
            let case = format!("{holder} waits {holder_waits:?}");
            assert!(after < SECOND, "{case}: {after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_time_at_all_asks_once() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let limits = limits(every(SECOND, 1), store.clone());
    for _ in 0..2 {
        drop(call(&limits).wait(Duration::ZERO).run(async || ()).await);
    }
    assert_eq!(store.takes().len(), 2);
    let counted = counted(&limits);
    assert_eq!((counted.waited, counted.waiting), (0, 0));
}

/// Of all calls of a path 1,024 may wait, and a quarter of them of one key: the others are denied
/// at once, and places come back.
#[tokio::test(start_paused = true)]
async fn a_crowd_that_waits_is_bounded() {
    let limits = paused(at_a_time(1));
    let admitted = limits.check("p", "k").await.expect("free");
    let crowd = |number: u64| -> Vec<_> {
        let calls = (0..number).map(|_| call(&limits).wait(Duration::MAX));
        let asks = calls.map(async |call| call.degrade(async |_| false).run(async || true).await);
        asks.map(tokio::spawn).collect()
    };
    for _ in 0..2 {
        let crowd = crowd(300);
        sleep(millis(10)).await;
        assert_eq!(counted(&limits).waiting, 256);
        assert_eq!(crowd.iter().filter(|it| it.is_finished()).count(), 44);
        crowd.iter().for_each(|it| it.abort());
        join_all(crowd).await;
        assert_eq!(counted(&limits).waiting, 0, "places come back");
    }
    let crowd = crowd(256);
    sleep(millis(10)).await;
    drop(admitted);
    for ran in kit::done(crowd).await {
        assert!(ran.expect("decided"), "each gets its turn");
    }
}

/// An operator lets the key through while calls wait: they run, and hold nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_lets_the_key_through() {
    let server = Redis::start();
    for (name, store) in shop_stores(&server) {
        let limits = limits(refunding(hourly(1)), store);
        let page = limits.page().allow_changes().router();
        let (done, may_end) = tokio::sync::oneshot::channel::<()>();
        // It might fail and give back, so that others wait.
        let holds = call(&limits).try_run(async || may_end.await);
        let waits = async {
            sleep(millis(50)).await;
            let waits = call(&limits).wait(2 * PATIENT).run(async || Instant::now());
            let lets = async {
                sleep(millis(200)).await;
                assert_eq!(counted(&limits).waiting, 1, "{name}");
                let body = r#"{"rule": "p", "key": "k", "seconds": 600}"#;
                let (status, text) = kit::operate(&page, "/api/let-through", body).await;
                assert_eq!(status, 200, "{name}: {text}");
                Instant::now()
            };
            let (ran, let_through) = join(waits, lets).await;
            let ran = ran.unwrap_or_else(|it| panic!("{name}: {it}"));
            let after = ran.saturating_duration_since(let_through);
            assert!(after < 6 * SECOND, "{name}: after {after:?}");
            done.send(()).expect("it runs");
        };
        let (held, ()) = join(holds, waits).await;
        assert!(held.is_ok());
        let counted = counted(&limits);
        assert_eq!((counted.waiting, counted.let_through), (0, 1), "{name}");
    }
}
