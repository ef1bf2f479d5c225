//! Requests that wait while Redis is slow, hangs, or is gone.

use super::*;

/// A round trip of 20 ms: five at a time, each held 100 ms.
#[tokio::test]
async fn at_a_distance() {
    let (_server, proxy, store) = kit::proxied(PATIENT).await;
    let (calls, replies) = (millis(10), millis(10));
    proxy.all(Mode::Delay { calls, replies });
    let store = Resilient::new(store).timeout(10 * SECOND).build();
    for rule in [logins(5), units(5)] {
        let (limits, app) = world(rule, Arc::clone(&store), 10 * SECOND);
        served(start_all(25, &app, 0, "x-hold: 100, x-used: 0")).await;
        check_rest(&limits).await;
        assert_eq!(left(&limits, "p", "k").await, 5);
        limits.reset("p", "k").await.expect("an answer");
    }
}

/// Redis hangs while requests wait, with and without a fallback, and comes back or not.
#[tokio::test]
async fn redis_hangs_meanwhile() {
    for (has_fallback, comes_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_server, proxy, store) = kit::proxied(PATIENT).await;
        let resilient = Resilient::new(store).timeout(millis(200));
        let store = match has_fallback {
            true => resilient.processes(1).build(),
            false => resilient.build(),
        };
        let (limits, app) = world(logins(5), store, 4 * SECOND);
        let held = start_all(5, &app, 0, "x-hold: 1500");
        let asked = start_all(20, &app, 300, "x-hold: 10");
        sleep(millis(700)).await;
        proxy.all(Mode::Hold);
        if comes_back {
            sleep(millis(400)).await;
            proxy.all(Mode::Pass);
        }
        let answers = done(asked).await;
        let seen: Vec<_> = answers.iter().map(|it| (it.millis(), it.status)).collect();
        // Patience, a time-out, and what a busy machine needs.
        let is_right = seen.iter().all(|(after, _)| *after < 4_000 + 200 + 2_000);
        assert!(is_right, "{seen:?}");
        join_all(held).await;
        let expected: &[u16] = if has_fallback { &[200] } else { &[200, 503] };
        let are_right = seen.iter().all(|(_, status)| expected.contains(status));
        assert!(
            are_right,
            "fallback {has_fallback}, back {comes_back}: {seen:?}"
        );
        assert_eq!(waiting(&limits), 0);
        proxy.all(Mode::Pass);
        let is_so = async || limits.check("p", "other").await.is_ok();
        kit::eventually("it decides again", is_so).await;
        assert_eq!(ask(&app, "x-key: third").await.status, OK);
    }
}

/// A key that waits costs at most 12 calls a second, with the default denial cache, too.
#[tokio::test]
async fn a_key_that_waits_asks_rarely() {
    for cached in [false, true] {
        let server = Redis::start();
        let store = kit::store_on(&server).await;
        let store: Arc<dyn Store> = match cached {
            true => Resilient::new(store).build(),
            false => Arc::new(store),
        };
        for rule in [logins(1), units(1), units(1)] {
            let (limits, app) = world(rule, Arc::clone(&store), 3 * SECOND);
            let held = limits.check("p", "k").await.expect("a unit");
            let asked = start_all(50, &app, 0, "");
            sleep(millis(500)).await;
            let (began, before) = (Instant::now(), server.script_calls());
            sleep(2 * SECOND).await;
            let (calls, took) = (server.script_calls() - before, began.elapsed());
            let most = 12.0 * took.as_secs_f64() + 1.0;
            assert!(calls >= 2 && calls as f64 <= most, "{calls} in {took:?}");
            for answer in done(asked).await {
                assert_eq!(answer.status, DENIED);
            }
            drop(held);
            check_rest(&limits).await;
            limits.reset("p", "k").await.expect("an answer");
        }
    }
}

/// Redis is restarted empty: units are free, and are found.
#[tokio::test]
async fn redis_is_restarted_meanwhile() {
    let mut server = Redis::start();
    let store = RedisStore::connect(&*server.url).await;
    // No grant is lost because a busy machine hears of it too late.
    let store = Resilient::new(store.expect("a running server")).timeout(2 * SECOND);
    let (limits, app) = world(logins(1), store.processes(1).build(), 10 * SECOND);
    let held = start(&app, 0, "x-hold: 8000");
    let asked = start_all(5, &app, 300, "x-hold: 10");
    sleep(millis(600)).await;
    server.kill();
    server.restart();
    let after = served(asked).await;
    assert!(after.iter().all(|it| *it < 12_000), "{after:?}");
    held.abort();
    let _ = held.await;
    assert_eq!(waiting(&limits), 0);
}
