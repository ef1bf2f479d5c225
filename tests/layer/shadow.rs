//! Rules that decide and count, and never deny.

use DecisionOutcome::{Allowed, ShadowDenied};

use crate::*;

fn counted(limits: &Limits) -> RuleSnapshot {
    crate::counted(limits, "a")
}

/// Waits until all answers are counted: a shadow rule delays no response.
async fn counted_up_to(limits: &Limits, number: u64) -> RuleSnapshot {
    let all = |a: RuleSnapshot| a.decisions(Allowed) + a.decisions(ShadowDenied);
    eventually("answers", async || all(counted(limits)) >= number).await;
    counted(limits)
}

#[tokio::test]
async fn a_shadow_rule_changes_nothing_and_counts_what_it_would_deny() {
    for store in &Stores::start().await.all {
        let limits = limits_of(&per_minute("a", 3).into_shadow(), store);
        let layer = limits
            .layer("a")
            .wait(WINDOW)
            .degrade(async |_: Denied| -> StatusCode { unreachable!("it never denies") });
        let app = app(layer);
        for number in 1..=8 {
            let response = send(&app, "/").await;
            assert_eq!(response.status(), OK);
            assert!(is_untouched(&response));
            counted_up_to(&limits, number).await;
        }
        let a = counted(&limits);
        assert_eq!((a.decisions(Allowed), a.decisions(ShadowDenied)), (3, 5));
        assert_eq!((a.units, a.waited), (3, 0));
        assert_eq!(a.shadow_denials, [("a".to_owned(), 5)]);
        assert_eq!(a.denials, [("a".to_owned(), 0)]);
    }
}

/// Quotas that are tried in a second rule, whose layer stands outside: it is asked for every
/// request, also a denied one, and neither rule is charged by the other.
#[tokio::test]
async fn a_second_rule_sees_what_the_first_one_denies() {
    let stores = Stores::start().await;
    let with_algorithms = |store| Algorithm::ALL.map(|algorithm| (store, algorithm));
    for (store, algorithm) in stores.all.iter().flat_map(with_algorithms) {
        let of = |path, max| {
            let rule = per_minute(path, max).with_algorithm(algorithm);
            rule.with_prefix(format!("{algorithm:?}:"))
        };
        let limits = Limits::new([of("a", 5), of("a-next", 2).into_shadow()]);
        let limits = limits.store(Arc::clone(store));
        let app = app(limits.layer("a")).layer(limits.layer("a-next"));
        for expected in [200, 200, 200, 200, 200, 429, 429, 429] {
            assert_eq!(status(&app, "/").await, expected, "{algorithm:?}");
        }
        let a = counted(&limits);
        assert_eq!((a.decisions(Allowed), a.denials[0].1), (5, 3));
        let next = || crate::counted(&limits, "a-next");
        let decided = async || next().decisions(Allowed) + next().decisions(ShadowDenied) == 8;
        eventually("answers", decided).await;
        let denied = (next().decisions(ShadowDenied), next().shadow_denials[0].1);
        assert_eq!(denied, (6, 6), "{algorithm:?}");
    }
}

/// Neither a store that hangs nor a missing key costs a response anything.
#[tokio::test]
async fn an_error_of_a_shadow_rule_costs_nobody_a_response() {
    let server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(store_on(&server).await);
    let limits = limits_of(&per_minute("a", 1).into_shadow(), &store);
    let failing = |_: Failed| async { Recovery::Respond(StatusCode::IM_A_TEAPOT.into_response()) };
    let hanging = app(limits.layer("a").on_error(failing));
    // Nobody waits for an answer: there is none before the server goes on.
    server.signal("STOP");
    let statuses = join_all((0..20).map(|_| status(&hanging, "/"))).await;
    assert_eq!(statuses, [OK; 20]);
    let a = counted(&limits);
    assert_eq!((a.decisions(Allowed), a.shadow_errors), (0, 0));
    server.signal("CONT");

    let required = Header::new("x-tenant");
    let layer = limits.layer("a").key(required).on_error(failing);
    assert_eq!(status(&app(layer), "/").await, OK);
    let panicking = limits.layer("a").cost(|_| panic!("no cost"));
    assert_eq!(status(&app(panicking), "/").await, OK);
}
