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
    joint(
        "p",
        [user(per_hour(of_user)), everyone(per_hour(of_everyone))],
    )
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

/// A key of each of these subjects.
fn take(rule: &Arc<Rule>, keys: &[(&str, &str)]) -> Take {
    let keys = keys.iter().map(|(subject, text)| (*subject, key(text)));
    Take::of_subjects(Arc::clone(rule), keys).expect("subjects of the rule")
}

fn key(text: &str) -> Key {
    match text {
        "" => Key::default(),
        text => Key::from(text),
    }
}

/// What remains of each quota, at last. A shadow rule's answer may come after its request's.
async fn remains(store: &Arc<dyn Store>, take: &Take, expected: &[u64]) {
    let what = format!("{expected:?} of {take:?}");
    let is_so = async || {
        let decision = store.peek(take).await.expect("an answer");
        let found = decision.quotas().iter().map(|it| it.remaining());
        found.eq(expected.iter().copied())
    };
    eventually(&what, is_so).await;
}

#[tokio::test]
async fn outcomes_give_back_in_all_counts() {
    for store in &Stores::start().await.all {
        let requests = Policy::new("requests", per_hour(5)).with_cost(1);
        let rule = joint(
            "p",
            [user(per_hour(50)).limit(requests), everyone(per_hour(90))],
        );
        let rule = rule.with_cost(10).with_refund_on(["5xx"]).expect("valid");
        let take = take(
            &Arc::new(rule.clone()),
            &[("user", "alice"), ("everyone", "")],
        );
        let limits = limits_of(&rule, store);
        let app = app(limits.layer("p"));
        for _ in 0..6 {
            assert_eq!(of_alice(&app, "/fails").await.status, 502);
            assert!(limits.flush(WINDOW).await);
        }
        remains(store, &take, &[50, 5, 90]).await;
        assert_eq!(of_alice(&app, "/settles").await.status, 200);
        remains(store, &take, &[47, 4, 87]).await;
        let p = counted(&limits, "p");
        assert_eq!((p.refunded_units, p.refunds_lost), (67, 0));
        assert_eq!(of_alice(&app, "/").await.status, 200);
        assert_eq!(of_alice(&app, "/").await.status, 200);
    }
}

#[tokio::test]
async fn a_joint_shadow_rule_denies_nobody() {
    for store in &Stores::start().await.all {
        let rule = of_two(9, 2).into_shadow().with_refund_on(["5xx"]);
        let rule = rule.expect("valid");
        let take = take(
            &Arc::new(rule.clone()),
            &[("user", "alice"), ("everyone", "")],
        );
        let app = app(limits_of(&rule, store).layer("p").wait(WINDOW));
        assert_eq!(of_alice(&app, "/fails").await.status, 502);
        remains(store, &take, &[9, 2]).await;
        for _ in 0..4 {
            assert_eq!(of_alice(&app, "/").await.status, 200);
        }
        remains(store, &take, &[7, 0]).await;
    }
}

/// A plan from code replaces the quotas of the subjects that it names; others keep the rule's.
#[tokio::test]
async fn a_plan_from_code_is_of_subjects() {
    let of = |subject| Policy::from(per_hour(3)).with_subject(subject);
    for store in &Stores::start().await.all {
        for (plan, expected) in [
            (Plan::of([of("user").with_cost(1)]), [200, 200, 200, 429]),
            (Plan::of([of("user"), of("everyone")]), [200, 200, 200, 429]),
            (Plan::of([of("everyone")]), [200, 200, 429, 429]),
        ] {
            let limits = limits_of(&of_two(2, 9), store);
            let plan = plan.expect("valid");
            let app = app(limits.layer("p").plan_value(move |_| Some(plan.clone())));
            for expected in expected {
                assert_eq!(of_alice(&app, "/").await.status, expected);
            }
            limits
                .reset(
                    "p",
                    [("user", Key::from("alice")), ("everyone", Key::default())],
                )
                .await
                .expect("an answer");
        }
    }
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
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("no subject \"nobody\""));
}

/// A store that cannot decide several counts together is not asked to.
#[tokio::test]
async fn a_store_without_joint_takes_is_a_mistake_in_the_set_up() {
    let store = Stub::listening(MemoryStore::new());
    let limits = Limits::new([of_two(2, 9)]).store(store.clone());
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&found);
    let layer = limits.layer("p").on_error_fn(move |failed: Failed| {
        let error = failed.downcast_ref::<StoreError>().expect("the store's");
        let error = (error.kind(), error.to_string());
        told.lock().expect("no panic").push(error);
        async { Recovery::Propagate }
    });
    assert_eq!(of_alice(&app(layer), "/").await.status, 503);
    let found = found.lock().expect("no panic").clone();
    let [(kind, text)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(*kind, StoreErrorKind::Configuration);
    assert!(text.contains("memory"), "{text}");
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
