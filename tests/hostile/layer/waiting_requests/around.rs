//! What happens around requests that wait: rules change, counts are reset, other layers decide.

use super::*;

/// A reset frees units: those who wait ask at once.
#[tokio::test(start_paused = true)]
async fn a_reset_meanwhile() {
    for rule in [logins(5), units(5)] {
        let (limits, app) = world(rule, paused(), 90 * SECOND);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(charge(&limits).await);
        }
        let asked = start_all(5, &app, 0, "x-status: 401");
        sleep(millis(2_500)).await;
        assert_eq!(waiting(&limits), 5);
        assert!(limits.reset("p", "k").await.expect("an answer"));
        for answer in done(asked).await {
            assert!(answer.millis() <= 2_510, "{answer:?}");
        }
        for charge in held {
            assert_eq!(refund(charge).await, 0, "nothing that was forgotten");
        }
        check_rest(&limits).await;
        assert_eq!(left(&limits, "p", "k").await, 0);
    }
}

/// Three rules in turn with one bound; what the outer ones charged is given back if an inner one
/// denies.
#[tokio::test(start_paused = true)]
async fn three_layers_share_one_bound() {
    for busy in ["a", "b", "c"] {
        for store in near_and_far(10) {
            let limits = limits(["a", "b", "c"].map(|path| refunding(path, 5)), store);
            let app = app(["c", "b", "a"].map(|path| limits.layer(path).wait(2 * SECOND)));
            // Four remain as they are, and one is given back: after 1.5 s, or too late.
            for (comes_back, expected) in [(1_500, OK), (2_500, DENIED)] {
                let mut held = Vec::new();
                for _ in 0..5 {
                    held.push(limits.check(busy, "k").await.expect("a unit"));
                }
                let asked = start(&app, 0, "");
                sleep(millis(comes_back)).await;
                refund(held.pop().and_then(|it| it.charge).expect("charged")).await;
                let answer = answer(asked).await;
                assert_eq!(answer.status, expected, "{busy}");
                assert!(answer.millis() <= 2_100, "{busy}: {answer:?}");
                check_rest(&limits).await;
                for path in ["a", "b", "c"] {
                    let expected = if path == busy { 1 } else { 5 };
                    assert_eq!(left(&limits, path, "k").await, expected, "{path} of {busy}");
                    limits.reset(path, "k").await.expect("an answer");
                }
                sleep(millis(1)).await;
            }
        }
    }
}

/// An inner layer of the same limits denies, whatever its callback answers: that gives back. What
/// another `Limits` answers is no outcome.
#[tokio::test(start_paused = true)]
async fn a_degraded_answer_gives_the_outer_charge_back() {
    for outcomes in [["401"], ["denied"], ["2xx"]] {
        for degraded in [200, 401, 429, 503] {
            let outer = per_minute("outer", 5).with_refund_on(outcomes);
            let rules = [outer.expect("valid"), per_minute("inner", 0)];
            let [own, other] = [
                limits(rules, paused()),
                limits([per_minute("inner", 0)], paused()),
            ];
            for (of_inner, expected) in [(&own, 5), (&other, 4)] {
                let inner = of_inner.layer("inner").degrade_fn(move |_| async move {
                    StatusCode::from_u16(degraded).expect("a status")
                });
                let app = app([inner, own.layer("outer")]);
                assert_eq!(ask(&app, "").await.status, degraded);
                check_rest(&own).await;
                let left = left(&own, "outer", "k").await;
                assert_eq!(left, expected, "{outcomes:?} {degraded}");
            }
        }
    }
}

/// Wrappers answer by themselves: a denial that is cached, a fallback.
#[tokio::test(start_paused = true)]
async fn wrapped_stores() {
    let bare = || Resilient::bare(paused());
    let fallback = Resilient::bare(MemoryStore::with_max_keys(0))
        .fallback(Share::of_processes(1))
        .fallback_store(MemoryStore::new().tokio_clock());
    let stores: [(&str, Arc<dyn Store>); 4] = [
        ("cache", Arc::new(bare().denial_cache(millis(100)))),
        ("slow cache", Arc::new(bare().denial_cache(MINUTE))),
        ("resilient", Resilient::new(paused()).build()),
        ("fallback", Arc::new(fallback)),
    ];
    for (name, store) in stores {
        let of_store = |rule: Rule| match name {
            "fallback" => rule.with_on_error(OnError::Fallback),
            _ => rule,
        };
        for hold in [30, 300, 1_000] {
            for (how, rule, used) in [
                ("settled", units(3), "x-used: 0, "),
                ("by outcome", logins(3), ""),
            ] {
                let (limits, app) = world(of_store(rule), Arc::clone(&store), 2 * SECOND);
                let fields = format!("{used}x-hold: {hold}");
                let first = start_all(3, &app, 0, &fields);
                let second = start_all(3, &app, 10, &fields);
                let after = served(first.into_iter().chain(second)).await;
                let most = 2 * hold + 110;
                let is_soon = after.iter().all(|it| *it <= most);
                assert!(is_soon, "{name}, {how}, {hold}: {after:?} ms");
                check_rest(&limits).await;
                limits.reset("p", "k").await.expect("an answer");
                sleep(2 * MINUTE).await;
            }
        }
    }
}
