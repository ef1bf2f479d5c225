//! Quotas that depend on who asks.

use tidegate::rule::Plan;
use tidegate::warning::Warning;

use crate::*;

const FILE: &str = r#"
    [rules.api]
    max-count = 2
    window = "1m"
    key = "header:x-user"

    [rules.api.plans.pro]
    max-count = 5
    window = "1m"

    [rules.api.plans.unlimited-days]
    quotas = [{ max-count = 3, window = "1m" }, { max-count = 4, window = "1d", name = "daily" }]
"#;

/// The plan stands in a field that is as good as authentication here.
fn plan_of(head: &Parts) -> Option<&str> {
    head.headers.get("x-plan")?.to_str().ok()
}

fn limits() -> Limits {
    of_toml(FILE).plan(plan_of)
}

/// A request of this user, and of this plan if it is not empty.
async fn answer(app: &Router, user: &str, plan: &str) -> Answer {
    let plan = match plan.is_empty() {
        true => "",
        false => &format!(", x-plan: {plan}"),
    };
    ask(app, "/", &format!("x-user: {user}{plan}")).await
}

/// How many of ten requests are admitted.
async fn admitted(app: &Router, user: &str, plan: &str) -> usize {
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += usize::from(answer(app, user, plan).await.status == 200);
    }
    admitted
}

#[tokio::test]
async fn the_fields_show_the_plans_quotas() {
    let app = app(limits().layer("api"));
    let daily = answer(&app, "alice", "unlimited-days").await;
    let policy = "\"api-1m\";q=3;w=60,\"daily\";q=4;w=86400";
    assert_eq!(daily.field("ratelimit-policy"), Some(policy));
    let without = answer(&app, "alice", "").await;
    assert_eq!(without.field("ratelimit-policy"), Some("\"api\";q=2;w=60"));
    assert_eq!(without.field("ratelimit"), Some("\"api\";r=0;t=60"));
}

#[tokio::test]
async fn the_layers_closure_comes_before_that_of_limits_and_that_before_the_extension() {
    let by_extension = of_toml(FILE);
    let by_limits = of_toml(FILE).plan(|_| Some("pro"));
    let by_layer = by_limits.layer("api").plan(|_| None);
    for (layer, user, of_extension, left) in [
        (by_extension.layer("api"), "a", "pro", 4),
        (by_limits.layer("api"), "a", "unlimited-days", 4),
        (by_layer, "b", "pro", 1),
    ] {
        let mut request = request("/", &format!("x-user: {user}"));
        request.extensions_mut().insert(Plan::new(of_extension));
        let response = call(&app(layer), request).await;
        let expected = format!("\"api\";r={left};t=60");
        assert_eq!(response.headers()["ratelimit"], expected);
    }
}

#[tokio::test]
async fn an_unknown_plan_counts_as_none_and_is_counted() {
    let limits = limits();
    let app = app(limits.layer("api"));
    assert_eq!(admitted(&app, "alice", "enterprise").await, 2);
    assert_eq!(admitted(&app, "alice", "pro").await, 3);
    let rule = counted(&limits, "api");
    assert_eq!(rule.unknown_plans, 10);
    let plans = rule.plans.iter();
    let plans = plans.map(|plan| (&*plan.name, plan.allowed, plan.denied));
    assert!(plans.eq([("pro", 3, 7), ("unlimited-days", 0, 0)]));
    assert_eq!(rule.decisions(DecisionOutcome::Allowed), 5);
    let names = rule.denials.iter().map(|(name, _)| &**name);
    assert!(names.eq(["api", "api-1m", "daily"]));
}

#[tokio::test]
async fn checks_and_peeks_name_a_plan() {
    let limits = of_toml(FILE);
    let left = async |plan: &str| {
        let peek = limits.peek("api", "alice").plan(plan).await;
        peek.expect("an answer").expect("a rule").remaining()
    };
    assert!(limits.check("api", "alice").plan("pro").await.is_ok());
    assert!(limits.check("api", "alice").await.is_ok());
    assert!(limits.check("api", "alice").await.is_err());
    let refused = limits.check("api", "alice").plan("nobody's").await;
    assert_eq!(refused.expect_err("as without").rule().plan(), None);
    assert_eq!((left("pro").await, left("nobody's").await), (3, 0));
    assert!(limits.reset("api", "alice").await.expect("memory answers"));
    assert_eq!(left("pro").await, 5);
}

/// A plan from code may count what its rule does not: a reset knows of it.
#[tokio::test]
async fn a_reset_forgets_what_only_a_plan_from_code_counts() {
    let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(100));
    let all = Subject::new("all", Everyone).limit(Quota::per_hour(100));
    let limits = Limits::new([Rule::joint("api", [user, all]).expect("valid")]);
    let few = Policy::new("few", Quota::per_hour(2)).with_cost(1);
    let plan = Plan::of([few.with_subject("user")]).expect("valid");
    let keys = [("user", Key::from("alice")), ("all", Key::default())];
    let admitted = async || {
        let call = limits.check("api", keys.clone()).plan_value(plan.clone());
        call.await.is_ok()
    };
    assert!(admitted().await && admitted().await && !admitted().await);
    let reset = limits.reset("api", keys.clone()).await;
    assert!(reset.expect("memory answers"));
    assert!(admitted().await);
}

/// The recipe of docs/cookbook.md: one customer has a plan, and nothing is said of the others.
#[tokio::test]
async fn an_override_for_one_customer() {
    let file = "[rules.api]\nmax-count = 2\nwindow = \"1m\"\nkey = \"header:x-user\"\n\
        plans.acme = { max-count = 5, window = \"1m\" }";
    fn customer(head: &Parts) -> Option<&str> {
        head.headers.get("x-user")?.to_str().ok()
    }
    let limits = of_toml(file).plan(|head| customer(head).filter(|it| ["acme"].contains(it)));
    let app = app(limits.layer("api"));
    for (user, expected) in [("acme", 5), ("other", 2), ("last", 2)] {
        assert_eq!(admitted(&app, user, "").await, expected, "{user}");
    }
    assert_eq!(limits.warnings(), []);
    assert_eq!(counted(&limits, "api").unknown_plans, 0);
}

#[tokio::test]
async fn a_panic_is_a_500_for_this_request_alone() {
    let limits = of_toml(FILE);
    let plan = limits.layer("api").plan(|head| match plan_of(head) {
        Some("broken") => panic!("a plan that panics"),
        plan => plan,
    });
    let quotas = limits.layer("api").plan_value(|head| match plan_of(head) {
        Some("broken") => panic!("quotas that panic"),
        _ => None,
    });
    for layer in [plan, quotas] {
        let app = app(layer);
        assert_eq!(answer(&app, "x", "broken").await.status, 500);
        assert_eq!(answer(&app, "x", "").await.status, 200);
    }
}

/// A plan by value is for one path: what acme bought of `api` lets it neither guess more passwords
/// nor run more exports.
#[tokio::test]
async fn a_plan_by_value_is_of_its_path() {
    const OTHERS: &str = r#"
        [rules.login]
        max-count = 5
        window = "1m"
        key = "header:x-user"

        [rules.export]
        max-count = 7
        max-concurrent = 4
        window = "1m"
        key = "header:x-user"
    "#;
    let text = format!("{FILE}{OTHERS}");
    let acme = plan_value([Quota::per_minute(9)]);
    let bought = acme.clone();
    let limits = of_toml(&text)
        .plan_value("api", move |head| plan_of(head).map(|_| bought.clone()))
        .plan_value("export", |_| None);
    let usage = limits.usage(["api", "login"]).expect("they have keys");
    let layers = ["api", "login", "export"].map(|path| limits.layer(path));
    let usage = Router::new().route("/", axum::routing::get(usage.handler()));
    let shown = answer(&usage, "acme", "table").await.body;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let left = |at: usize| shown["rules"][at]["policies"][0]["remaining"].clone();
    assert_eq!([left(0), left(1)], [json!(9), json!(5)]);
    for (layer, expected) in layers.into_iter().zip([9, 5, 7]) {
        let app = app(layer);
        assert_eq!(admitted(&app, "acme", "table").await, expected);
    }
    let unused = limits.clone().plan_value("apo", |_| None).verify();
    let unused = unused.expect_err("a misspelt path");
    assert_eq!(unused.paths_without_rule, ["apo"]);
    // A call says its path.
    let refused = limits.check("api", "ajax").plan_value(acme).await;
    assert!(refused.is_ok());
}

/// Nor does one among the extensions, whose path nobody knows: the line that mends it is shown.
#[tokio::test]
async fn a_value_among_the_extensions_is_told_of() {
    let (is_bound, is_not) = (true, false);
    for (is_bound, expected) in [(is_not, 2), (is_bound, 9)] {
        let mut limits = of_toml(&format!("{FILE}{}", FILE.replace("api", "other")));
        if is_bound {
            limits = limits.plan_value("api", |head| head.extensions.get::<Plan>().cloned());
        }
        let authenticated = |mut request: Request<Body>, next: axum::middleware::Next| {
            let plan = plan_value([Quota::per_minute(9)]);
            request.extensions_mut().insert(plan);
            next.run(request)
        };
        for (path, expected) in [("api", expected), ("other", 2)] {
            let app = app(limits.layer(path));
            let app = app.layer(axum::middleware::from_fn(authenticated));
            assert_eq!(admitted(&app, "acme", "").await, expected);
            let warnings = limits.warnings();
            let told = |it: &&Warning| it.kind == WarningKind::UnfitPlan;
            let told: Vec<_> = warnings.iter().filter(told).collect();
            assert_eq!(
                told.len(),
                usize::from(!is_bound) * (1 + usize::from(path == "other"))
            );
            let line =
                format!(".plan_value({path:?}, |head| head.extensions.get::<Plan>().cloned())");
            assert!(is_bound || told.iter().any(|it| it.to_string().contains(&line)));
        }
    }
}

/// A plan with a window of its own begins empty, beside as many quotas as there may be; under the
/// log it counts what still counts for one of them.
#[tokio::test(start_paused = true)]
async fn a_plan_with_another_window_begins_empty() {
    for algorithm in Algorithm::ALL {
        let seconds = |number| quota(90, number * SECOND);
        let rule = Rule::new("api", (1..=16).map(seconds)).expect("valid");
        let long = Quotas::new([Quota::per_day(9)]).expect("valid");
        let rule = rule.with_algorithm(algorithm).with_plan("long", long);
        let layer = RateLimitLayer::from_rule(rule.expect("valid"));
        let app = app(layer.store(paused()).plan(plan_of));
        assert_eq!(admitted(&app, "alice", "").await, 10);
        tokio::time::advance(10 * SECOND).await;
        let admitted = admitted(&app, "alice", "long").await;
        let is_log = algorithm == Algorithm::SlidingLog;
        assert_eq!(admitted, if is_log { 0 } else { 9 }, "{algorithm:?}");
    }
}

/// As in a file, a cost above a quota is a mistake that is told; a quota of 0 is none.
#[tokio::test]
async fn a_cost_above_a_quota_from_code_is_a_warning() {
    for (max, expected) in [
        (0, vec![]),
        (10, vec![]),
        (4, vec![WarningKind::CostAboveQuota]),
    ] {
        let limits = Limits::new([kit::per_minute("p", 50).with_cost(5)]).key(Everyone);
        let quotas = plan_value([quota(max, WINDOW)]);
        let layer = limits.layer("p").plan_value(move |_| Some(quotas.clone()));
        let app = app(layer);
        for _ in 0..3 {
            let is_denied = status(&app, "/").await == 429;
            assert!(is_denied || max == 10);
        }
        let found: Vec<_> = limits.warnings().iter().map(|it| it.kind).collect();
        assert_eq!(found, expected, "{max}");
        // A quota of requests lacks a cost of its own, and is no too small one.
        for told in limits.warnings().iter().map(ToString::to_string) {
            assert!(told.contains("needs the cost 1: .with_cost(1)"), "{told}");
        }
    }
}
