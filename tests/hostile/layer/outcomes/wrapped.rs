//! Outcomes behind the wrappers of a store, and under plans, quotas from code and leases.

use super::*;

/// Denials that arrive while the refund is on its way do not stay in the cache behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_that_race_with_a_refund() {
    let (_server, _proxy, redis) = kit::far(millis(6)).await;
    let store = Resilient::bare(redis).denial_cache(Duration::MAX);
    let (limits, service) = world(of("race", 1, &["2xx"]), store);
    for round in 0..15 {
        in_tasks((0..6).map(|_| {
            let service = service.clone();
            async move {
                for _ in 0..10 {
                    assert!([200, 429].contains(&send(&service, 200).await));
                }
            }
        }))
        .await;
        flushed(&limits).await;
        assert_eq!(send(&service, 200).await, 200, "round {round}: law 14");
        flushed(&limits).await;
    }
    assert_eq!(left(&limits, "race").await, 1);
}

/// A server behind a proxy, and a fallback with the share of one of so many processes.
async fn with_fallback(max: u64, processes: u32) -> (Redis, Proxy, Limits, Wrapped) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
    let store = Resilient::new(redis)
        .processes(processes)
        .timeout(millis(300));
    let (limits, service) = world(of("f", max, &["2xx"]), store);
    (server, proxy, limits, service)
}

async fn until_decided_by(limits: &Limits, source: Source) {
    until(Some(source), async || {
        let left = limits.peek("f", key("x")).await;
        left.ok().flatten().map(|it| it.source())
    })
    .await;
}

/// The status of an answer, and who decided.
async fn source(service: &Wrapped, status: u16) -> (u16, Option<Source>) {
    let asked = request(&format!("x-status: {status}"));
    let answer = service.clone().oneshot(asked).await.expect("no error");
    let decision = Decision::from_extensions(answer.extensions());
    (answer.status().as_u16(), decision.map(Decision::source))
}

/// Redis is gone, the fallback decides and charges: it is given back there, and Redis keeps what it
/// was charged.
#[tokio::test]
async fn what_the_fallback_charged_is_given_back_there() {
    let (_server, proxy, limits, service) = with_fallback(8, 2).await;
    pass(&service, 500, 3).await;
    proxy.all(Mode::Reset);
    // The share is 4: good ones are free, bad ones are not.
    for _ in 0..12 {
        let answer = source(&service, 200).await;
        assert_eq!(answer, (200, Some(Source::Fallback)));
        flushed(&limits).await;
    }
    for at in 0..6 {
        let expected = if at < 4 { 500 } else { 429 };
        let answer = source(&service, 500).await;
        assert_eq!(answer, (expected, Some(Source::Fallback)));
    }
    assert_eq!(counted(&limits, "f"), (12, 12, 0));
    proxy.all(Mode::Pass);
    until_decided_by(&limits, Source::Redis).await;
    assert_eq!(left(&limits, "f").await, 5, "Redis gave nothing back");
}

/// Charged by Redis, which is gone at the outcome while the fallback decides, and the other way
/// round: the refund is no business of the other one, and gives nothing to its callers.
#[tokio::test]
async fn what_one_charged_is_not_given_back_by_the_other() {
    let (_server, proxy, limits, service) = with_fallback(4, 1).await;
    let slow = [(); 3].map(|()| start(&service, "x-sleep: 700"));
    until_left(&limits, "f", 1).await;
    proxy.all(Mode::Reset);
    // The fallback, which knows nothing of Redis's count: 4 of its own.
    pass(&service, 500, 4).await;
    assert_eq!(done(slow).await, [200; 3]);
    flushed(&limits).await;
    let status = send(&service, 500).await;
    assert_eq!(status, 429, "law 15: the fallback's charges stay");
    assert_eq!(counted(&limits, "f"), (0, 0, 3));

    let (_server, proxy, limits, service) = with_fallback(4, 1).await;
    pass(&service, 500, 1).await;
    proxy.all(Mode::Reset);
    until_decided_by(&limits, Source::Fallback).await;
    let slow = [(); 3].map(|()| start(&service, "x-sleep: 900"));
    sleep(millis(200)).await;
    proxy.all(Mode::Pass);
    until_decided_by(&limits, Source::Redis).await;
    assert_eq!(done(slow).await, [200; 3]);
    flushed(&limits).await;
    let left = left(&limits, "f").await;
    assert_eq!(left, 3, "law 15: others' charge stays in Redis");
}

/// A check in code is no request: outcomes do not apply, its charge is for its caller.
#[tokio::test]
async fn checks_have_no_outcome() {
    let limits = Limits::new([of("a", 10, &["2xx"])]);
    for used in 1..=3 {
        drop(limits.check("a", key("x")).await.expect("allowed"));
        flushed(&limits).await;
        assert_eq!(left(&limits, "a").await, 10 - used);
    }
    let admitted = limits.check("a", key("x")).await.expect("allowed");
    let charge = admitted.charge.expect("charged");
    assert_eq!(charge.refund().await.expect("an answer"), 1);
    assert_eq!(left(&limits, "a").await, 7);
}

/// A store is asked once for each good request, and not at all about those that stay charged.
#[tokio::test]
async fn a_rule_without_outcomes_asks_nothing_more() {
    let listening = Stub::listening(MemoryStore::new());
    let (limits, service) = world(of("a", 1_000, &[]), listening.clone());
    pass(&service, 200, 50).await;
    assert_eq!(listening.asked(|_| true), 50);
    assert_eq!(counted(&limits, "a"), (0, 0, 0));
}
