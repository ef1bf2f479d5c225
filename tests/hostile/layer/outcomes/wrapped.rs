//! Outcomes behind the wrappers of a store, and under plans, quotas from code and leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::decision::Source;
use tidegate::rule::{Plan, Quotas};
use tidegate::{
    Algorithm, Decision, Header, Limits, MemoryStore, Quota, RedisStore, Resilient, Rule,
};
use tower::ServiceExt;

use super::{ALGORITHMS, ask, counted, flushed, left_of, limits, of, request, send, until, wrap};
use kit::clocked::Stores;
use kit::stub::Stub;
use kit::{HOUR, PATIENT, behind, connect, millis};

fn quotas(max: u64) -> Quotas {
    Quotas::new([Quota::new(HOUR, max).expect("valid")]).expect("valid")
}

/// Plans and quotas from code: good requests of each are free, failures count in all of them.
#[tokio::test]
async fn under_plans() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let rule = of("p", 4, &["2xx"]).with_algorithm(algorithm);
            let rule = rule.with_plan("pro", quotas(9)).expect("valid");
            let limits = limits(rule, Arc::clone(&clocked.store));
            let table = Arc::new(quotas(12));
            let layer = limits.layer("p").quotas(move |head| {
                head.headers
                    .contains_key("x-table")
                    .then(|| Arc::clone(&table))
            });
            let service = wrap(&layer);
            let case = format!("{} {algorithm:?}", clocked.name);
            let mut failed = 0;
            for at in 0..60_u64 {
                let (plan, max) = [
                    (None, 4),
                    (Some("pro"), 9),
                    (Some("table"), 12),
                    (Some("?"), 4),
                ][(at % 4) as usize];
                let status = if at % 7 == 6 { "500" } else { "200" };
                let mut asked = request(&[("x-status", status)]);
                match plan {
                    Some("table") => {
                        asked
                            .headers_mut()
                            .insert("x-table", "1".parse().expect("a value"));
                    }
                    Some(plan) => drop(asked.extensions_mut().insert(Plan::new(plan))),
                    None => {}
                }
                let answer = ask(&service, asked).await.to_string();
                flushed(&limits).await;
                if failed >= max {
                    assert_eq!(answer, "429", "{case} {at}");
                } else {
                    assert_eq!(answer, status, "{case} {at}: {failed} of {max}");
                    failed += u64::from(status == "500");
                }
            }
            assert!(failed >= 5, "{case}: {failed}");
            limits.reset("p", super::key("x")).await.expect("an answer");
            clocked.advance(HOUR * 3);
        }
    }
}

/// A denial is cached, then units come back: the next request asks the store.
#[tokio::test]
async fn a_cached_denial_is_void_after_a_refund() {
    let server = Redis::start();
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ] {
        let redis = connect(&server.url, PATIENT).await;
        let store = Resilient::bare(redis).denial_cache(Duration::MAX);
        let rule = of("cached", 1, &["2xx"]).with_algorithm(algorithm);
        let limits = limits(rule, store);
        let service = wrap(&limits.layer("cached"));
        for round in 0..5 {
            let slow = tokio::spawn({
                let service = service.clone();
                async move { ask(&service, request(&[("x-sleep", "80")])).await }
            });
            until(0, async || left_of(&limits, "cached", "x").await).await;
            for _ in 0..5 {
                assert_eq!(send(&service, 200).await, 429);
            }
            assert_eq!(slow.await.expect("no panic"), 200);
            flushed(&limits).await;
            assert_eq!(
                send(&service, 200).await,
                200,
                "{algorithm:?} {round}: law 14"
            );
            flushed(&limits).await;
        }
        limits
            .reset("cached", super::key("x"))
            .await
            .expect("an answer");
    }
}

/// Denials that arrive while the refund is on its way do not stay in the cache behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_that_race_with_a_refund() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let redis = connect(&proxy.url, PATIENT).await;
    let store = Resilient::bare(redis).denial_cache(Duration::MAX);
    let limits = Arc::new(limits(of("race", 1, &["2xx"]), store));
    let service = wrap(&limits.layer("race"));
    for round in 0..15_u64 {
        let hammer: Vec<_> = (0..6)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let status = send(&service, 200).await;
                        assert!(status == 200 || status == 429);
                    }
                })
            })
            .collect();
        for one in hammer {
            one.await.expect("no panic");
        }
        flushed(&limits).await;
        assert_eq!(send(&service, 200).await, 200, "round {round}: law 14");
        flushed(&limits).await;
    }
    assert_eq!(left_of(&limits, "race", "x").await, 1);
}

/// Redis is gone, the fallback decides and charges: it is given back there, and Redis keeps what it
/// was charged.
#[tokio::test]
async fn what_the_fallback_charged_is_given_back_there() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
    let store = Resilient::new(redis).processes(2).timeout(millis(300));
    let limits = limits(of("f", 8, &["2xx"]), store);
    let service = wrap(&limits.layer("f"));
    for _ in 0..3 {
        assert_eq!(send(&service, 500).await, 500);
    }
    proxy.all(Mode::Reset);
    let source = async |status: &str| {
        let answer = service
            .clone()
            .oneshot(request(&[("x-status", status)]))
            .await;
        let answer = answer.expect("no error");
        let decision = Decision::from_extensions(answer.extensions()).cloned();
        (answer.status().as_u16(), decision.map(|it| it.source()))
    };
    // The share is 4: good ones are free, bad ones are not.
    for _ in 0..12 {
        assert_eq!(source("200").await, (200, Some(Source::Fallback)));
        flushed(&limits).await;
    }
    for at in 0..6 {
        let answer = source("500").await;
        assert_eq!(
            answer,
            (if at < 4 { 500 } else { 429 }, Some(Source::Fallback))
        );
    }
    let (refunds, units, lost) = counted(&limits, "f");
    assert_eq!((refunds, units, lost), (12, 12, 0));
    proxy.all(Mode::Pass);
    until(Some(Source::Redis), async || {
        let left = limits.peek("f", super::key("x")).await;
        left.ok().flatten().map(|it| it.source())
    })
    .await;
    assert_eq!(
        left_of(&limits, "f", "x").await,
        5,
        "Redis gave nothing back"
    );
}

/// Charged by Redis, which is gone at the outcome, while the fallback decides: the refund is no
/// business of the fallback's, and gives nothing to its callers.
#[tokio::test]
async fn what_redis_charged_is_not_given_back_by_the_fallback() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
    let store = Resilient::new(redis).processes(1).timeout(millis(300));
    let limits = limits(of("f", 4, &["2xx"]), store);
    let service = wrap(&limits.layer("f"));
    let slow: Vec<_> = (0..3)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { ask(&service, request(&[("x-sleep", "700")])).await })
        })
        .collect();
    until(1, async || left_of(&limits, "f", "x").await).await;
    proxy.all(Mode::Reset);
    // The fallback, which knows nothing of Redis's count: 4 of its own.
    for _ in 0..4 {
        assert_eq!(send(&service, 500).await, 500);
    }
    for slow in slow {
        assert_eq!(slow.await.expect("no panic"), 200);
    }
    flushed(&limits).await;
    assert_eq!(
        send(&service, 500).await,
        429,
        "law 15: the fallback's charges stay"
    );
    assert_eq!(counted(&limits, "f"), (0, 0, 3));
}

/// Charged by the fallback, and Redis is back at the outcome: Redis gives nothing of others' back.
#[tokio::test]
async fn what_the_fallback_charged_is_not_given_back_by_redis() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
    let store = Resilient::new(redis).processes(1).timeout(millis(300));
    let limits = limits(of("f", 4, &["2xx"]), store);
    let service = wrap(&limits.layer("f"));
    assert_eq!(send(&service, 500).await, 500);
    proxy.all(Mode::Reset);
    until(Some(Source::Fallback), async || {
        let left = limits.peek("f", super::key("x")).await;
        left.ok().flatten().map(|it| it.source())
    })
    .await;
    let slow: Vec<_> = (0..3)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { ask(&service, request(&[("x-sleep", "900")])).await })
        })
        .collect();
    tokio::time::sleep(millis(200)).await;
    proxy.all(Mode::Pass);
    until(Some(Source::Redis), async || {
        let left = limits.peek("f", super::key("x")).await;
        left.ok().flatten().map(|it| it.source())
    })
    .await;
    for slow in slow {
        assert_eq!(slow.await.expect("no panic"), 200);
    }
    flushed(&limits).await;
    assert_eq!(
        left_of(&limits, "f", "x").await,
        3,
        "law 15: others' charge stays in Redis"
    );
}

/// Leases: good requests come back to the store, failures stay, and nothing is over max.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_leases() {
    let server = Redis::start();
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ] {
        let leased = AtomicU64::new(0);
        let store = Resilient::bare(connect(&server.url, PATIENT).await);
        let quota = Quota::new(HOUR, 20_000).expect("valid");
        let rule = Rule::new("leased", [quota])
            .expect("valid")
            .with_algorithm(algorithm);
        let rule = rule
            .with_lease(millis(50))
            .expect("valid")
            .with_key(Header::new("x-key"));
        let rule = rule.with_refund_on(["2xx"]).expect("valid");
        let limits = limits(rule, store);
        let service = wrap(&limits.layer("leased"));
        let mut failed = 0;
        for at in 0..1_500 {
            let status = if at % 10 == 0 { "500" } else { "200" };
            failed += u64::from(status == "500");
            let answer = service
                .clone()
                .oneshot(request(&[("x-status", status)]))
                .await;
            let answer = answer.expect("no error");
            assert_eq!(answer.status().as_str(), status);
            let decision = Decision::from_extensions(answer.extensions());
            let is_leased = decision.is_some_and(|it| it.source() == Source::Lease);
            leased.fetch_add(u64::from(is_leased), Ordering::Relaxed);
        }
        flushed(&limits).await;
        // What is left of leases comes back when they end.
        until(20_000 - failed, async || {
            left_of(&limits, "leased", "x").await
        })
        .await;
        let (refunds, units, lost) = counted(&limits, "leased");
        println!("{algorithm:?}: {leased:?} by leases, {refunds} refunds");
        assert_eq!((refunds, units, lost), (1_500 - failed, 1_500 - failed, 0));
        limits
            .reset("leased", super::key("x"))
            .await
            .expect("an answer");
    }
}

/// A check in code is no request: outcomes do not apply, its charge is for its caller.
#[tokio::test]
async fn checks_have_no_outcome() {
    let limits = Limits::new([of("a", 10, &["2xx"])]);
    for used in 1..=3 {
        let admitted = limits.check("a", super::key("x")).await.expect("allowed");
        drop(admitted);
        flushed(&limits).await;
        assert_eq!(left_of(&limits, "a", "x").await, 10 - used);
    }
    let admitted = limits.check("a", super::key("x")).await.expect("allowed");
    let charge = admitted.charge.expect("charged");
    assert_eq!(charge.refund().await.expect("an answer"), 1);
    assert_eq!(left_of(&limits, "a", "x").await, 7);
}

/// Requests that wait for units get those that an outcome gives back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_get_what_comes_back() {
    let server = Redis::start();
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ] {
        let store = connect(&server.url, PATIENT).await;
        let limits = limits(of("w", 2, &["2xx"]).with_algorithm(algorithm), store);
        let service = wrap(&limits.layer("w").wait(PATIENT));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move { ask(&service, request(&[("x-sleep", "30")])).await })
            })
            .collect();
        let mut served = 0;
        for task in tasks {
            served += u64::from(task.await.expect("no panic") == 200);
        }
        flushed(&limits).await;
        println!("{algorithm:?}: {served} of 8 were served");
        assert!(served >= 2);
        assert_eq!(left_of(&limits, "w", "x").await, 2);
        limits.reset("w", super::key("x")).await.expect("an answer");
    }
}

/// A store is asked once for each good request, and not at all about those that stay charged.
#[tokio::test]
async fn a_rule_without_outcomes_asks_nothing_more() {
    let listening = Stub::listening(MemoryStore::new());
    let limits = limits(of("a", 1_000, &[]), listening.clone());
    let service = wrap(&limits.layer("a"));
    for _ in 0..50 {
        assert_eq!(send(&service, 200).await, 200);
    }
    assert_eq!(listening.asked(|_| true), 50);
    assert_eq!(counted(&limits, "a"), (0, 0, 0));
}
