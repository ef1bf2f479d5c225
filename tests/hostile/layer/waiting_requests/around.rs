//! What happens around requests that wait: rules change, counts are reset, other layers decide.

use super::*;

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
