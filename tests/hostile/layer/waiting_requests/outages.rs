//! Requests that wait while Redis is slow, hangs, or is gone.

use futures_util::future::join_all;
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::{RedisStore, Resilient};

use super::*;

async fn behind(server: &Redis) -> (Proxy, RedisStore) {
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&*proxy.url)
        .await
        .expect("a running server");
    (proxy, store)
}

fn script_calls(server: &Redis) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("an answer");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| {
        line.split(',')
            .next()
            .expect("a number")
            .parse()
            .expect("a number")
    })
}

/// A round trip of 20 ms: five at a time, each held 100 ms.
#[tokio::test]
async fn at_a_distance() {
    let server = Redis::start();
    let (proxy, store) = behind(&server).await;
    let (calls, replies) = (millis(10), millis(10));
    proxy.all(Mode::Delay { calls, replies });
    let store = Resilient::new(store).timeout(10 * SECOND).build();
    for rule in [logins(5), units_a_minute(5).with_settling(true)] {
        let limits = limits([rule], Arc::clone(&store));
        let app = app([limits.layer("p").wait(10 * SECOND)]);
        let asked: Vec<_> = (0..25)
            .map(|_| start(&app, 0, "x-hold: 100, x-used: 0"))
            .collect();
        for asked in asked {
            let answer = asked.await.expect("no panic");
            assert_eq!(answer.status, OK);
        }
        check_rest(&limits).await;
        assert_eq!(left(&limits, "k").await, 5);
        limits.reset("p", "k").await.expect("an answer");
    }
}

/// Redis hangs while requests wait, with and without a fallback, and comes back or not.
#[tokio::test]
async fn redis_hangs_meanwhile() {
    for has_fallback in [false, true] {
        for comes_back in [false, true] {
            let server = Redis::start();
            let (proxy, store) = behind(&server).await;
            let resilient = Resilient::new(store).timeout(millis(200));
            let store = match has_fallback {
                true => resilient.processes(1).build(),
                false => resilient.build(),
            };
            let limits = limits([logins(5)], store);
            let app = app([limits.layer("p").wait(4 * SECOND)]);
            let held: Vec<_> = (0..5).map(|_| start(&app, 0, "x-hold: 1500")).collect();
            let asked: Vec<_> = (0..20).map(|_| start(&app, 300, "x-hold: 10")).collect();
            sleep(millis(700)).await;
            proxy.all(Mode::Hold);
            if comes_back {
                sleep(millis(400)).await;
                proxy.all(Mode::Pass);
            }
            let mut seen = Vec::new();
            for asked in asked {
                let answer = asked.await.expect("no panic");
                // Patience, a time-out, and what a busy machine needs.
                assert!(answer.after < 4_000 + 200 + 2_000, "{} ms", answer.after);
                seen.push((answer.after, answer.status.as_u16()));
            }
            println!("fallback {has_fallback}, back {comes_back}: {seen:?}");
            join_all(held).await;
            if has_fallback {
                assert!(seen.iter().all(|(_, status)| *status == 200), "{seen:?}");
            }
            assert!(
                seen.iter().all(|(_, status)| [200, 503].contains(status)),
                "{seen:?}"
            );
            assert_eq!(waiting(&limits), 0);
            proxy.all(Mode::Pass);
            let began = Instant::now();
            while let Err(refused) = limits.check("p", "other").await {
                assert!(began.elapsed() < 20 * SECOND, "{:?}", refused.error());
                sleep(millis(20)).await;
            }
            let after = ask(&app, "x-key: third").await;
            assert_eq!(after.status, OK);
        }
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
        for rule in [
            logins(1),
            units_a_minute(1).with_settling(true),
            units_a_minute(1),
        ] {
            let limits = limits([rule], Arc::clone(&store));
            let app = app([limits.layer("p").wait(3 * SECOND)]);
            let held = limits.check("p", "k").await.expect("a unit");
            let asked: Vec<_> = (0..50).map(|_| start(&app, 0, "")).collect();
            sleep(millis(500)).await;
            let (began, before) = (Instant::now(), script_calls(&server));
            sleep(2 * SECOND).await;
            let (calls, took) = (script_calls(&server) - before, began.elapsed());
            assert!(
                calls as f64 <= 12.0 * took.as_secs_f64() + 1.0,
                "{calls} in {took:?}"
            );
            assert!(calls >= 2, "{calls} in {took:?}");
            for answer in join_all(asked).await {
                assert_eq!(answer.expect("no panic").status, DENIED);
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
    let store = RedisStore::connect(&*server.url)
        .await
        .expect("a running server");
    // No grant is lost because a busy machine hears of it too late.
    let store = Resilient::new(store).timeout(2 * SECOND).processes(1);
    let store = store.build();
    let limits = limits([logins(1)], store);
    let app = app([limits.layer("p").wait(10 * SECOND)]);
    let held = start(&app, 0, "x-hold: 8000");
    let asked: Vec<_> = (0..5).map(|_| start(&app, 300, "x-hold: 10")).collect();
    sleep(millis(600)).await;
    server.kill();
    server.restart();
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, OK, "after {} ms", answer.after);
        assert!(answer.after < 12_000, "{} ms", answer.after);
    }
    held.abort();
    let _ = held.await;
    assert_eq!(waiting(&limits), 0);
}
