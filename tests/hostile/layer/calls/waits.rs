//! Calls that wait: for no time, for ever, in crowds, and for what an operator does.

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use futures_util::future::{join, join_all};
use http::{Request, StatusCode};
use tidegate::{Page, Resilient};
use tower::ServiceExt;

use super::*;
use kit::stub::Stub;

fn every(window: Duration, max: u64) -> Rule {
    let quota = Quota::new(window, max).expect("valid");
    Rule::new("p", [quota]).expect("valid")
}

/// `Duration::MAX` is as long as it takes, not an overflow.
#[tokio::test(start_paused = true)]
async fn for_ever() {
    for window in [SECOND, HOUR, DAY] {
        let limits = paused(every(window, 1));
        let began = Instant::now();
        let calls = (0..4).map(|_| {
            let call = limits.call("p").key("k").wait(Duration::MAX);
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
        let call = limits.call("p").key("k").cost(cost).wait(Duration::MAX);
        let refused = call.run(async || ()).await.expect_err("never");
        assert_eq!(refused.retry_after(), None);
        assert_eq!(began.elapsed(), Duration::ZERO, "{max}, {cost}");
        assert_eq!(left(&limits).await, max, "law 2");
    }
}

/// After which time a call that would wait for 20 s is denied while something else runs for 30 s.
async fn denied_after(limits: &Limits, runs: impl Future<Output = bool>) -> Duration {
    let began = Instant::now();
    let waits = async {
        sleep(millis(1)).await;
        let call = limits.call("p").key("k").wait(20 * SECOND);
        let refused = call.run(async || ()).await.expect_err("used up");
        assert!(refused.retry_after().expect("a time") > 20 * SECOND);
        began.elapsed()
    };
    let (ran, after) = join(runs, waits).await;
    assert!(ran);
    after
}

/// A rule gives nothing back: whoever waits behind a request that waited, too, is denied at once.
#[tokio::test(start_paused = true)]
async fn behind_a_request_that_runs_nothing_comes_back() {
    for holder_waits in [Duration::ZERO, PATIENT] {
        let limits = paused(hourly(1));
        let work = any(async || sleep(30 * SECOND).await);
        let app = Router::new().route("/", work.layer(limits.layer("p").wait(holder_waits)));
        let runs = async {
            app.oneshot(kit::http::get("/"))
                .await
                .is_ok_and(|it| it.status() == 200)
        };
        let after = denied_after(&limits, runs).await;
        assert!(after < SECOND, "holder waits {holder_waits:?}: {after:?}");
    }
}

/// The same behind a call: nothing can settle its charge, either.
#[tokio::test(start_paused = true)]
async fn behind_a_call_that_runs_nothing_comes_back() {
    for holder_waits in [Duration::ZERO, PATIENT] {
        let limits = paused(hourly(1));
        let call = || limits.call("p").key("k").wait(holder_waits);
        let work = async || sleep(30 * SECOND).await;
        let runs = async { call().run(work).await.is_ok() };
        let after = denied_after(&limits, runs).await;
        assert!(after < SECOND, "holder waits {holder_waits:?}: {after:?}");
        limits.reset("p", "k").await.expect("an answer");
        let work = async || {
            work().await;
            Ok::<_, ()>(())
        };
        let runs = async { call().try_run(work).await.is_ok() };
        let after = denied_after(&limits, runs).await;
        assert!(
            after < SECOND,
            "try_run, holder waits {holder_waits:?}: {after:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_time_at_all_asks_once() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let limits = limits(every(SECOND, 1), store.clone());
    for _ in 0..2 {
        let call = limits.call("p").key("k").wait(Duration::ZERO);
        drop(call.run(async || ()).await);
    }
    assert_eq!(store.takes().len(), 2);
    let counted = counted(&limits);
    assert_eq!((counted.waited, counted.waiting), (0, 0));
}

/// Of all calls of a path 1,024 may wait, and a quarter of them of one key: the others are denied at
/// once, and places come back.
#[tokio::test(start_paused = true)]
async fn a_crowd_that_waits_is_bounded() {
    let limits = paused(at_a_time(1));
    let admitted = limits.check("p", "k").await.expect("free");
    let ask = |limits: &Limits| {
        let limits = limits.clone();
        tokio::spawn(async move {
            let call = limits.call("p").key("k").wait(Duration::MAX);
            call.degrade(async |_| false)
                .run(async || true)
                .await
                .expect("decided")
        })
    };
    for _ in 0..2 {
        let crowd: Vec<_> = (0..300).map(|_| ask(&limits)).collect();
        sleep(millis(10)).await;
        assert_eq!(counted(&limits).waiting, 256);
        assert_eq!(crowd.iter().filter(|it| it.is_finished()).count(), 44);
        crowd.iter().for_each(|it| it.abort());
        join_all(crowd).await;
        assert_eq!(counted(&limits).waiting, 0, "places come back");
    }
    let crowd: Vec<_> = (0..256).map(|_| ask(&limits)).collect();
    sleep(millis(10)).await;
    drop(admitted);
    let ran = join_all(crowd)
        .await
        .into_iter()
        .filter(|it| matches!(it, Ok(true)));
    assert_eq!(ran.count(), 256, "each gets its turn");
}

/// An operator lets the key through while calls wait: they run, and hold nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_lets_the_key_through() {
    let server = Redis::start();
    let redis = Resilient::redis(&*server.url, "shop").expect("a valid address");
    let on_redis = hourly(1);
    for (name, limits) in [
        ("memory", Limits::new([hourly(1)])),
        (
            "redis",
            Limits::new([on_redis]).store(redis.timeout(PATIENT)),
        ),
    ] {
        replace(&limits, [refunding(hourly(1))]);
        let page = Page::allow_changes(limits.page()).router();
        let router = Router::new().nest_service("/limits", page);
        let call = || limits.call("p").key("k");
        let (done, may_end) = tokio::sync::oneshot::channel::<()>();
        // It might fail and give back, so that others wait.
        let holds = call().try_run(async || may_end.await);
        let waits = async {
            sleep(millis(50)).await;
            let waits = call().wait(2 * PATIENT).run(async || Instant::now());
            let lets = async {
                sleep(millis(200)).await;
                assert_eq!(counted(&limits).waiting, 1, "{name}");
                let posted = Request::post("/limits/api/let-through")
                    .header("content-type", "application/json")
                    .header("x-tidegate", "1")
                    .header("host", "127.0.0.1:3000")
                    .header("origin", "http://127.0.0.1:3000")
                    .body(Body::from(r#"{"rule": "p", "key": "k", "seconds": 600}"#));
                let answer = router.oneshot(posted.expect("valid")).await;
                let answer = answer.expect("axum does not fail").status();
                assert_eq!(answer, StatusCode::OK, "{name}");
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
