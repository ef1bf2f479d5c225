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

/// The rule that decides is not charged by the candidate, nor the other way around.
#[tokio::test]
async fn a_candidate_beside_a_rule_has_keys_of_its_own() {
    let stores = Stores::start().await;
    let with_algorithms = |store| Algorithm::ALL.map(|algorithm| (store, algorithm));
    for (store, algorithm) in stores.all.iter().flat_map(with_algorithms) {
        let of = |max| per_minute("a", max).with_algorithm(algorithm);
        let rule = of(5).with_prefix(format!("{algorithm:?}:"));
        let limits = limits_of(&rule.with_shadow(of(2)), store);
        let app = app(limits.layer("a"));
        for expected in [200, 200, 200, 200, 200, 429, 429, 429] {
            assert_eq!(status(&app, "/").await, expected, "{algorithm:?}");
        }
        let a = counted(&limits);
        assert_eq!(a.decisions(Allowed), 5);
        // The candidate is asked for every request, also a denied one.
        assert_eq!(a.decisions(ShadowDenied), 6);
        assert_eq!((a.denials[0].1, a.shadow_denials[0].1), (3, 6));
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

/// Both takes of a request travel in the same flight, usually in the same call.
#[tokio::test]
async fn a_candidate_costs_no_round_trip() {
    const REQUESTS: u64 = 100;
    let server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(store_on(&server).await);
    let rule = per_minute("a", 1_000_000).with_shadow(per_minute("a", 10));
    let limits = limits_of(&rule, &store);
    let app = app(limits.layer("a"));
    let before = server.script_calls();
    for _ in 0..REQUESTS {
        assert_eq!(status(&app, "/").await, OK);
    }
    let a = counted_up_to(&limits, 2 * REQUESTS - 10).await;
    assert_eq!(a.decisions(ShadowDenied), REQUESTS - 10);
    let calls = server.script_calls() - before;
    assert!(calls <= REQUESTS + REQUESTS / 10, "{calls} calls");
}

#[test]
fn in_a_file() {
    let login = |text: &str| {
        let rules = of_toml(text).rules().load();
        Arc::clone(rules.get("login").expect("a rule"))
    };
    let base = "[rules.login]\nmax-count = 5\nwindow = \"1m\"\nalgorithm = \"gcra\"\n";
    assert!(!login(base).is_shadow());
    assert!(!login(&format!("{base}shadow = false")).is_shadow());
    assert!(login(&format!("{base}shadow = true")).is_shadow());
    assert!(login(&format!("shadow = true\n{base}")).is_shadow());
    let with = login(&format!(
        "prefix = \"p:\"\n{base}[rules.login.shadow]\nmax-count = 3\nwindow = \"1s\"\nburst = 2"
    ));
    assert!(!with.is_shadow());
    let shadow = with.shadow().expect("a candidate");
    assert_eq!(shadow.id(), "login~gcra~shadow");
    let quota = shadow.quotas()[0];
    assert_eq!((quota.max(), quota.burst()), (3, 2));
    assert_eq!((shadow.path(), shadow.prefix()), ("login", Some("p:")));
}

/// After a reset, a candidate with the rule's quotas denies what the rule denies, and nothing else.
/// So do the quotas of a plan.
#[tokio::test]
async fn a_reset_reaches_the_candidate_and_the_plans() {
    for store in &Stores::start().await.all {
        let pro = Quotas::new([Quota::per_minute(4)]).expect("valid");
        let rule = per_minute("a", 3).with_shadow(per_minute("a", 3));
        let limits = limits_of(&rule.with_plan("pro", pro).expect("valid"), store);
        for (plan, max) in [("", 3), ("", 3), ("pro", 4), ("pro", 4)] {
            for _ in 0..max {
                let check = limits.check("a", "alice").plan(plan);
                check.await.expect("allowed");
            }
            assert!(limits.reset("a", "alice").await.expect("an answer"));
        }
        for number in 1..=4 {
            let check = limits.check("a", "alice").await;
            assert_eq!(check.is_ok(), number <= 3);
        }
        let denials = || counted(&limits).shadow_denials[0].1;
        eventually("a denial", async || denials() > 0).await;
        assert_eq!(denials(), 1);
    }
}
