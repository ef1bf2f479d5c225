//! Permits beside everything else that a rule says.

use super::*;

/// The permits of a rule without a key of its own are those of the key of its `Limits` behind a
/// layer: what alice does costs bob nothing.
#[tokio::test]
async fn each_key_has_its_permits() {
    on_both(async |store| {
        let one = Rule::with_policies("p", [Policy::concurrent(1)]).expect("valid");
        let limits = Limits::new([one]).store(store).key(Header::new("x-user"));
        let app = app(limits.layer("p"));
        let send = async |fields| kit::http::call(&app, kit::http::request("/", fields)).await;
        let (alice, bob) = (send("x-user: alice").await, send("x-user: bob").await);
        assert_eq!([alice.status(), bob.status()], [200, 200]);
        assert_eq!(send("x-user: alice").await.status(), 429);
    })
    .await;
}

/// Two layers in a row with the same key: a request needs two permits. Where there is one only, it
/// stands in its own way, and leaves nothing.
#[tokio::test]
async fn two_layers_in_a_row() {
    on_both(async |store| {
        for (max, expected) in [(1, 429), (2, 200)] {
            let limits = limits(at_a_time(max), Arc::clone(&store));
            let app = app(limits.layer("p")).layer(limits.layer("p"));
            for _ in 0..20 {
                assert_eq!(kit::http::status(&app, "/").await, expected);
                until_free(&limits, "k", max).await;
            }
        }
    })
    .await;
}

/// A shadow rule denies nothing, holds what runs, and leaves nothing.
#[tokio::test]
async fn shadows_hold_permits_without_a_bound() {
    let (server, stores) = kit::redis_and_memory().await;
    for store in stores {
        let shadow = limits(at_a_time(1).into_shadow(), Arc::clone(&store));
        let app = app(shadow.layer("p"));
        let (mut responses, mut checks) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            let response = kit::http::send(&app, "/").await;
            assert_eq!(response.status(), 200);
            responses.push(response);
            checks.push(admitted(&shadow, "k").await);
        }
        if store.name().starts_with("redis") {
            until_held(&server, 60).await;
        }
        drop((responses, checks));
        until_held(&server, 0).await;
        // Those who leave before the store has heard of them.
        for _ in 0..50 {
            let check = shadow.check("p", "k").into_future();
            drop(tokio::time::timeout(Duration::ZERO, check).await);
        }
        until_held(&server, 0).await;
        let limits = limits(at_a_time(2), store);
        until_free(&limits, "k", 2).await;
    }
}

/// Busy is never remembered, and the stronger denials win.
#[tokio::test]
async fn what_a_denial_is() {
    let server = Redis::start();
    let other = limits(with_quota(100, 1), store_at(&server.url, PATIENT).await);
    let store = store_at(&server.url, PATIENT).await;
    let store = Resilient::new(store).timeout(PATIENT).denial_cache(PATIENT);
    let limits = limits(with_quota(2, 1), store.build());
    let costs = async |cost| {
        let check = limits.check("p", "k").cost(cost).await;
        verdict(&check.expect_err("a denial"))
    };
    for _ in 0..2 {
        let first = admitted(&other, "k").await;
        for _ in 0..10 {
            let retry_after = SECOND;
            assert_eq!(costs(1).await, Verdict::Busy { retry_after });
        }
        // In another process.
        drop(first);
        until_held(&server, 0).await;
        // Nobody runs, and it is not remembered.
        drop(admitted(&limits, "k").await);
        until_held(&server, 0).await;
        limits.reset("p", "k").await.expect("an answer");
    }
    let one = admitted(&limits, "k").await;
    // One unit, no permit.
    match costs(2).await {
        Verdict::Denied { retry_after } => {
            assert!(retry_after > PATIENT, "the quota's: {retry_after:?}");
        }
        found => panic!("{found:?}"),
    }
    assert_eq!(costs(3).await, Verdict::Never, "more than max");
    drop(one);
    replace(&limits, [at_a_time(0)]);
    assert_eq!(costs(1).await, Verdict::Never, "none may run");
    until_held(&server, 0).await;
}

/// While Redis is away, a process admits its share, at least one; when it is back, nothing of that
/// is held, and what was held before goes back.
#[tokio::test]
async fn a_fallback_admits_its_share() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    for (max, processes, share) in [(8, 4, 2), (2, 4, 1)] {
        let store = store_at(&proxy.url, millis(300)).await;
        let store = Resilient::new(store).timeout(millis(300));
        let store = store.fallback(Share::of_processes(processes));
        let limits = limits(at_a_time(max), store.probe_every(millis(100)).build());
        let first = admitted(&limits, "k").await;
        proxy.all(Mode::Reset);
        let mut all = Vec::new();
        for _ in 0..8 {
            all.extend(check(&limits, "k").await);
        }
        assert_eq!(all.len(), share, "of {max} among {processes}");
        drop(all.pop());
        sleep(millis(50)).await;
        all.extend(check(&limits, "k").await);
        assert_eq!(all.len(), share, "it came back");
        drop(first);
        proxy.all(Mode::Pass);
        until_held(&server, 0).await;
        drop(all);
        let is_back = async || {
            let admitted = check(&limits, "k").await.ok();
            let decision = admitted.and_then(|it| it.decision);
            decision.is_some_and(|it| it.source() == Source::Redis)
        };
        eventually("Redis decides", is_back).await;
        until_held(&server, 0).await;
        until_free(&limits, "k", max).await;
    }
}
