//! Requests under rules of several subjects: what is given back, what a shadow rule
//! counts, what a store has to be able to do, and what clients are not told.

use axum::routing::get;

use crate::joint::user;
use crate::*;

fn everyone(quota: impl Into<Policy>) -> Subject {
    Subject::new("everyone", Everyone).limit(quota)
}

fn per_hour(max: u32) -> Quota {
    Quota::per_hour(max)
}

fn joint(path: &str, subjects: impl IntoIterator<Item = Subject>) -> Rule {
    Rule::joint(path, subjects).expect("a valid rule")
}

/// Nine an hour for each user, so many for everyone.
fn of_two(of_user: u32, of_everyone: u32) -> Rule {
    let of_everyone = everyone(per_hour(of_everyone));
    joint("p", [user(per_hour(of_user)), of_everyone])
}

/// `/` answers what the decision says that remains, `/fails` is no success, and `/settles` used 3.
fn app(layer: RateLimitLayer) -> Router {
    let remaining = async |decision: Option<Decision>| {
        decision.map_or_else(String::new, |it| it.remaining().to_string())
    };
    let settles = async |charges: Charges| {
        let settled = charges.settle(3).await.expect("an answer");
        settled.given_back.to_string()
    };
    Router::new()
        .route("/", get(remaining))
        .route("/fails", get(async || StatusCode::BAD_GATEWAY))
        .route("/settles", get(settles))
        .layer(layer)
}

async fn of_alice(app: &Router, path: &str) -> Answer {
    ask(app, path, "x-user: alice").await
}

/// A plan that does not fit its rule is counted, and told once; the rule's own quotas decide.
#[tokio::test]
async fn a_plan_from_code_that_does_not_fit() {
    let ours = Plan::of([Policy::from(per_hour(9)).with_subject("nobody")]).expect("valid");
    let limits = Limits::new([of_two(2, 9)]);
    let app = app(limits.layer("p").plan_value(move |_| Some(ours.clone())));
    for expected in [200, 200, 429] {
        assert_eq!(of_alice(&app, "/").await.status, expected);
    }
    assert_eq!(counted(&limits, "p").unknown_plans, 3);
    let warnings = limits.warnings();
    let kinds: Vec<_> = warnings.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [WarningKind::UnfitPlan]);
    assert!(warnings[0].to_string().contains("no subject \"nobody\""));
}

/// A store that cannot decide several counts together is not asked to.
#[tokio::test]
async fn a_store_without_joint_takes_is_a_mistake_in_the_set_up() {
    let store = Stub::listening(MemoryStore::new());
    let limits = Limits::new([of_two(2, 9)]).store(store.clone());
    assert_eq!(of_alice(&app(limits.layer("p")), "/").await.status, 503);
    let keys = [("user", "alice"), ("everyone", "")];
    let refused = limits.check("p", keys).await.expect_err("it cannot");
    let error = refused.error().expect("the store's");
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("memory"), "{error}");
    assert!(store.takes().is_empty());
}

/// Wherever the decision comes from: a store, the cache of denials, or a fallback.
#[tokio::test]
async fn hidden_quotas_are_marked_in_each_decision() {
    let stores = Stores::start().await;
    let cached = Resilient::new(MemoryStore::new()).build();
    let fallback = Resilient::new(Stub::down().capabilities_fn(|inner| inner.capabilities()));
    let fallback = fallback.processes(1).build();
    let hidden = |name, quota| Policy::new(name, quota).hidden();
    let plain = |path, policies: &[Policy]| Rule::with_policies(path, policies.to_vec());
    let shown = Policy::new("shown", per_hour(9));
    let two = [shown, hidden("hidden", Quota::per_day(2))];
    let two = plain("plain", &two).expect("valid");
    let of_everyone = Policy::from(per_hour(2)).hidden();
    let joint = joint("joint", [user(per_hour(9)), everyone(of_everyone)]);
    let only = plain("only", &[hidden("only", per_hour(9))]).expect("valid");
    for store in stores.all.iter().chain([&cached, &fallback]) {
        for rule in [&two, &joint] {
            let path = rule.path();
            let app = app(limits_of(rule, store).layer(path));
            for left in ["8", "7"] {
                assert_eq!(of_alice(&app, "/").await.body, left, "{path}");
            }
            // The second denial may be the cache's.
            for _ in 0..2 {
                let denied = of_alice(&app, "/").await;
                assert_eq!(denied.status, 429);
                let states = denied.decision().quotas().iter();
                let states = states.map(|it| (it.is_hidden(), it.is_exceeded()));
                assert!(states.eq([(false, false), (true, true)]));
                assert_eq!(denied.decision().remaining(), 7);
            }
        }
        let answer = ask(&app(limits_of(&only, store).layer("only")), "/", "").await;
        assert_eq!(answer.status, 200);
        assert!(answer.decision().quotas()[0].is_hidden());
    }
}
