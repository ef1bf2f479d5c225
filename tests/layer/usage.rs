//! What customers are shown of what they have left.

use std::future::pending;

use axum::routing::get;
use tidegate::key::Header;
use tokio::sync::Barrier;

use crate::*;

const FILE: &str = r#"
    [rules.api]
    key = "header:x-user"
    quotas = [
        { max-count = 2, window = "1m" },
        { max-count = 100, window = "1d", hidden = true },
        { max-concurrent = 4 },
    ]
    plans.pro = { quotas = [{ max-count = 600, window = "90500ms", name = "often" }] }

    [rules."to\"kens"]
    key = "header:x-user"
    algorithm = "gcra"
    max-count = 60
    window = "1h"
"#;
const TOKENS: &str = "to\"kens";

/// Routes behind the layers of these rules, and one that shows them.
fn app(limits: &Limits, paths: &[&str]) -> Router {
    let usage = limits.usage(paths.iter().copied()).expect("they are known");
    let app = Router::new().route("/rate_limit", get(usage.handler()));
    paths.iter().enumerate().fold(app, |app, (at, path)| {
        let handler = get("1").layer(limits.layer(path));
        app.route(&format!("/{at}"), handler)
    })
}

/// A request of a user, perhaps with a plan behind a blank. It stands in a field that is as good as
/// authentication here.
async fn send(app: &Router, uri: &str, user: &str) -> Answer {
    ask(app, uri, &fields(user)).await
}

fn fields(user: &str) -> String {
    match user.split_once(' ') {
        Some((user, plan)) => format!("x-user: {user}, x-plan: {plan}"),
        None if user.is_empty() => String::new(),
        None => format!("x-user: {user}"),
    }
}

async fn shown(app: &Router, user: &str) -> (Answer, Value) {
    let answer = send(app, "/rate_limit", user).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = serde_json::from_str(&answer.body).expect("JSON");
    (answer, body)
}

/// What remains of the first policy of each rule.
async fn left(app: &Router, user: &str) -> Vec<u64> {
    let (_, body) = shown(app, user).await;
    let rules = body["rules"].as_array().expect("rules").iter();
    let left = rules.map(|rule| rule["policies"][0]["remaining"].as_u64());
    left.map(|left| left.expect("a number")).collect()
}

/// The paths of the rules that are shown.
async fn paths(app: &Router) -> Vec<Value> {
    let (_, body) = shown(app, "alice").await;
    let rules = body["rules"].as_array().expect("rules").iter();
    rules.map(|rule| rule["path"].clone()).collect()
}

fn plan_of(head: &http::request::Parts) -> Option<&str> {
    head.headers.get("x-plan")?.to_str().ok()
}

/// The limits of the file, with plans.
fn of_file() -> Limits {
    of_toml(FILE).plan(plan_of)
}

/// What the file says of requests at a time, also under a plan.
fn permits() -> Value {
    json!({"name": "api-concurrent", "limit": 4, "remaining": 4})
}

/// A rule that counts users.
fn of_users(path: &str, max: u64) -> Rule {
    per_minute(path, max).with_key(Header::new("x-user"))
}

#[tokio::test]
async fn it_shows_what_is_left_and_charges_nothing() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let limits = of_file().store(Arc::clone(store));
        let paths = ["api", TOKENS];
        for uri in ["/0", "/0", "/1"] {
            let answer = send(&app(&limits, &paths), uri, "alice").await;
            assert_eq!(answer.status, 200);
        }
        for _ in 0..3 {
            // Another handler remembers nothing.
            let (answer, body) = shown(&app(&limits, &paths), "alice").await;
            let (api, tokens) = (&body["rules"][0], &body["rules"][1]);
            let reset = api["policies"][0]["reset"].as_u64().expect("a number");
            assert!((1..=60).contains(&reset), "{reset}");
            let used_up =
                json!({"name": "api-1m", "limit": 2, "remaining": 0, "reset": reset, "window": 60});
            let of_api = json!({"path": "api", "policies": [used_up, permits()]});
            assert_eq!(*api, of_api);
            assert_eq!(tokens["path"], TOKENS);
            assert_eq!(tokens["policies"][0]["remaining"], 59);
            assert_eq!(tokens["policies"][0]["window"], 3_600);
            assert_eq!(answer.field("cache-control"), Some("no-store"));
            assert_eq!(answer.field("content-type"), Some("application/json"));
            let of_api = "\"api-1m\";q=2;w=60,\"api-concurrent\";q=4;qu=\"concurrent-requests\"";
            let policies = answer.fields.get_all("ratelimit-policy").iter();
            assert!(policies.eq([of_api, "\"to%22kens\";q=60;w=3600"]));
            let lists = answer.fields.get_all("ratelimit").iter().count();
            let first = answer.field("ratelimit").expect("a list");
            let is_right = lists == 2 && first.starts_with("\"api-1m\";r=0;t=");
            assert!(is_right, "{first}");
            assert_eq!(answer.field("retry-after"), None);
        }
        let (answer, body) = shown(&app(&limits, &paths), "alice pro").await;
        let often = json!({
            "name": "often", "limit": 600, "remaining": 598,
            "reset": body["rules"][0]["policies"][0]["reset"], "window": 90.5,
        });
        let of_plan = json!({"path": "api", "plan": "pro", "policies": [often, permits()]});
        assert_eq!(body["rules"][0], of_plan);
        let of_plan = "\"often\";q=600,\"api-concurrent\";q=4;qu=\"concurrent-requests\"";
        assert_eq!(answer.field("ratelimit-policy"), Some(of_plan));
        assert_eq!(left(&app(&limits, &paths), "bob").await, [2, 60]);
        // What was asked has left no trace.
        assert_eq!(send(&app(&limits, &paths), "/0", "bob").await.status, 200);
        stores.flush();
    }
}

/// A request in progress holds its permit.
#[tokio::test]
async fn permits_show_how_many_are_free() {
    let limits = of_toml(FILE);
    let running = get(pending::<()>).layer(limits.layer("api"));
    let running = Router::new().route("/", running);
    let task = start(&running, 0, "/", "x-user: alice");
    let is_held = async || {
        let (_, body) = shown(&app(&limits, &["api"]), "alice").await;
        body["rules"][0]["policies"][1]["remaining"] == 3
    };
    eventually("it holds a permit", is_held).await;
    task.abort();
}

#[tokio::test]
async fn a_joint_rule_shows_the_subjects_of_the_request() {
    let user = Subject::new("user", Header::new("x-user")).skip_absent();
    let user = user.limit(Quota::per_minute(2));
    let all = Subject::new("all", Everyone).limit(Quota::per_minute(9));
    let stores = Stores::start().await;
    for store in &stores.all {
        let rule = Rule::joint("api", [user.clone(), all.clone()]).expect("valid");
        let limits = Limits::new([rule]).store(Arc::clone(store));
        for user in ["alice", "bob", ""] {
            send(&app(&limits, &["api"]), "/0", user).await;
        }
        let app = app(&limits, &["api"]);
        assert_eq!(told(&app, "alice").await, ["api-user 1", "api-all 6"]);
        assert_eq!(told(&app, "").await, ["api-all 6"]);
    }
}

/// What the first rule tells a user: each policy with what remains of it.
async fn told(app: &Router, user: &str) -> Vec<String> {
    let (_, body) = shown(app, user).await;
    let policies = body["rules"][0]["policies"].as_array().expect("policies");
    let told = policies.iter().map(|it| {
        let name = it["name"].as_str().expect("a name");
        format!("{name} {}", it["remaining"])
    });
    told.collect()
}

/// Whatever an operator does: those of the request, and no others.
#[tokio::test(start_paused = true)]
async fn a_joint_rule_shows_subjects_that_are_let_through_and_blocked() {
    let user = Subject::new("user", Header::new("x-user")).skip_absent();
    let user = user.limit(Quota::per_minute(2));
    let all = Subject::new("all", Everyone).limit(Quota::per_minute(9));
    let limits = Limits::new([Rule::joint("api", [user, all]).expect("valid")]);
    let app = app(&limits, &["api"]);
    send(&app, "/0", "alice").await;
    let minute = Duration::from_secs(60);
    let (alice, all) = ([("user", "alice")], [("all", "")]);
    let operated = limits.let_through("api", alice, minute, "").await;
    operated.expect("let through");
    assert_eq!(told(&app, "alice").await, ["api-user 2", "api-all 8"]);
    assert_eq!(told(&app, "bob").await, ["api-user 2", "api-all 8"]);
    assert_eq!(told(&app, "").await, ["api-all 8"]);
    let operated = limits.let_through("api", all, minute, "").await;
    operated.expect("let through");
    assert_eq!(told(&app, "alice").await, ["api-user 2", "api-all 9"]);
    assert_eq!(told(&app, "").await, ["api-all 9"]);
    limits.block("api", all, minute, "").await.expect("blocked");
    assert_eq!(told(&app, "alice").await, ["api-user 0", "api-all 0"]);
    assert_eq!(told(&app, "").await, ["api-all 0"]);
    let denied = send(&app, "/0", "").await;
    assert_eq!(denied.field("ratelimit"), Some("\"api-all\";r=0;t=60"));
}

#[tokio::test]
async fn failures_are_answered_as_by_a_layer() {
    let limits = || Limits::new([of_users("api", 2)]);
    let shows =
        async |limits: &Limits, user| send(&app(limits, &["api"]), "/rate_limit", user).await;
    let without = shows(&limits(), "").await;
    assert_eq!(without.status, 400);
    assert!(without.body.contains("x-user"), "{}", without.body);
    let down = shows(&limits().store(Stub::down()), "alice").await;
    assert_eq!(down.status, 503);
    assert_eq!(down.field("content-type"), Some("application/problem+json"));

    let said = limits().on_error_fn(async |failed| format!("{:?}", failed.kind()));
    assert_eq!(shows(&said, "").await.body, "Key(Absent)");
    let said = said.store(Stub::down());
    assert_eq!(shows(&said, "alice").await.body, "Store(Unavailable)");
    // A request that would pass has nothing to show.
    let open = limits().store(Stub::down()).on_error(FailOpen);
    assert_eq!(shows(&open, "alice").await.status, 503);
}

#[tokio::test]
async fn to_a_client_that_is_exempt_all_is_left() {
    let exempt = of_file().exempt(|head| head.headers["x-user"] == "root");
    let (answer, body) = shown(&app(&exempt, &["api"]), "root pro").await;
    let whole =
        json!({"name": "often", "limit": 600, "remaining": 600, "reset": 0, "window": 90.5});
    let rule = json!({"path": "api", "plan": "pro", "policies": [whole, permits()]});
    assert_eq!(body, json!({"rules": [rule]}));
    assert_eq!(answer.field("ratelimit"), None, "nothing limits it");
}

#[tokio::test(start_paused = true)]
async fn to_a_client_that_is_let_through_all_is_left_and_nothing_to_a_blocked_one() {
    for (what, expected) in [("let-through", 2), ("block", 0)] {
        let limits = Limits::new([of_users("api", 2)]);
        let app = app(&limits, &["api"]);
        send(&app, "/0", "alice").await;
        assert_eq!(left(&app, "alice").await, [1]);
        let one = json!({"rule": "api", "key": "alice", "seconds": 60});
        let page = limits.page().allow_changes().router();
        let (status, _) = operate(&page, &format!("/api/{what}"), &one.to_string()).await;
        assert_eq!(status, 200);
        assert_eq!(
            left(&app, "alice").await,
            [expected],
            "and nothing is remembered"
        );
    }
}

fn is_root(head: &http::request::Parts) -> bool {
    head.headers.get("x-user").is_some_and(|it| it == "root")
}

/// Whatever a subject is called, the answer is JSON.
#[tokio::test(start_paused = true)]
async fn odd_names_of_subjects() {
    for name in ["us\"er", "a\\b", "a\nb", "\u{1}"] {
        let odd = Subject::new(name, Header::new("x-user")).limit(Quota::per_minute(5));
        let all = Subject::new("all", Everyone).limit(Quota::per_minute(9));
        let limits = Limits::new([Rule::joint("api", [odd, all]).expect("valid")]);
        let usage = limits.usage(["api"]).expect("it is known");
        let head = http::Request::builder().header("x-user", "alice").body(());
        let read = usage.read(head.expect("valid").into_parts().0).await;
        let json = read.expect("an answer").to_json();
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let shown = name.replace(char::is_control, " ");
        assert_eq!(json["rules"][0]["policies"][0]["subject"], shown);
    }
}

/// Nothing is remembered, and code reads the same without a response.
#[tokio::test(start_paused = true)]
async fn code_reads_what_is_left() {
    let user = Subject::new("user", Header::new("x-user"));
    let user = user.limit(Quota::per_minute(2));
    let all = Subject::new("all", Everyone).limit(Quota::per_minute(9));
    let rule = Rule::joint("api", [user, all]).expect("valid");
    let limits = Limits::new([rule]).exempt(is_root);
    let usage = limits.usage(["api"]).expect("they are known");
    let app = app(&limits, &["api"]);
    let head = |user: &str| {
        let request = http::Request::builder().header("x-user", user).body(());
        request.expect("valid").into_parts().0
    };
    for expected in [2, 1, 0] {
        let read = usage.read(head("alice")).await.expect("an answer");
        let rule = &read.rules[0];
        assert_eq!(rule.rule.path(), "api");
        assert!(rule.is_limited);
        let left = rule
            .policies()
            .map(|(policy, state)| (policy.subject(), state.remaining()));
        let left: Vec<_> = left.collect();
        assert_eq!(
            left,
            [(Some("user"), expected), (Some("all"), 7 + expected)]
        );
        let json: Value = serde_json::from_str(&read.to_json()).expect("JSON");
        assert_eq!(json["rules"][0]["policies"][0]["subject"], "user");
        send(&app, "/0", "alice").await;
    }
    let read = usage.read(head("root")).await.expect("an answer");
    assert!(!read.rules[0].is_limited);
    let without = limits.usage(["api"]).expect("it is known");
    let without = without.read(http::Request::new(()).into_parts().0).await;
    assert_eq!(without.expect_err("no key").status(), 400);
}

#[tokio::test]
async fn mistakes_are_told_at_the_start() {
    let text = "
        [rules.api]
        max-count = 2
        window = '1m'
        key = 'header:x-user'
        [rules.tokens]
        max-count = 2
        window = '1m'
        [rules.joint]
        quotas = [
            { max-count = 1, window = '1m', key = 'header:x-user' },
            { max-count = 9, window = '1m', subject = 'tenant' },
        ]";
    let limits = of_toml(text);
    let said = |limits: &Limits, paths: &[&str]| {
        let error = limits.usage(paths.iter().copied()).err();
        error.map(|error| error.to_string())
    };
    assert_eq!(limits.usage([]).err(), Some(RuleError::NoPath));
    let no_rule = "there is no rule \"apo\": correct the path, or add the rule";
    assert_eq!(said(&limits, &["api", "apo"]).as_deref(), Some(no_rule));
    let no_key = "nothing says whom the rule \"tokens\" counts, and a layer's own key is not \
         known here: give a key to the rule or to Limits, or \"everyone\" for one count of all \
         requests";
    assert_eq!(said(&limits, &["api", "tokens"]).as_deref(), Some(no_key));
    let of_joint = limits.usage(["joint"]).err();
    assert_eq!(of_joint, Some(RuleError::NoKey("joint".to_owned())));
    assert_eq!(said(&limits, &["api"]), None);
    let limits = limits.key(Everyone);
    assert_eq!(said(&limits, &["api", "tokens", "joint"]), None);
    // It neither limits a path nor says that one is limited.
    let unlimited = limits.verify().expect_err("no layer").paths_without_layer;
    assert_eq!(unlimited.len(), 3);
    let _ = limits.layer("api").plan_value(|_| None);
    let found = limits
        .verify()
        .expect_err("what it shows is not what denies");
    assert_eq!(found.paths_shown_otherwise, ["api"]);
    let _ = limits.layer("tokens").exempt(|_| false);
    let found = limits
        .verify()
        .expect_err("it shows quotas of who is exempt");
    assert_eq!(found.paths_shown_otherwise, ["api", "tokens"]);
    assert!(
        found.to_string().contains(".exempt(..) of Limits"),
        "{found}"
    );
}

/// The handler goes on, whatever becomes of its rules.
#[tokio::test]
async fn a_rule_that_is_gone_is_left_out() {
    let both = || ["api", "tokens"].map(|path| of_users(path, 2));
    let limits = Limits::new(both());
    let usage = limits.usage(["api", "tokens"]).expect("they are known");
    let app = Router::new().route("/rate_limit", get(usage.handler()));
    let mut one_is_off = Rules::from(both());
    one_is_off.disable("api");
    let [api, tokens] = both();
    for (rules, expected) in [
        (both().into(), &["api", "tokens"][..]),
        (one_is_off, &["tokens"]),
        (Rules::from([api, tokens.into_shadow()]), &["api"]),
        // Without a key.
        (Rules::from([per_minute("api", 2)]), &[]),
        (Rules::from(both()).enabled(false), &[]),
        (Rules::default(), &[]),
        (both().into(), &["api", "tokens"]),
    ] {
        limits.rules().replace(rules);
        assert_eq!(paths(&app).await, expected);
    }
    // A file that lacks a rule that nothing but this handler shows.
    let text = "[rules.tokens]\nmax-count = 1\nwindow = '1m'\nkey = 'header:x-user'";
    LimitsFile::new("").reload(&limits, text);
    assert_eq!(paths(&app).await, ["tokens"]);
}

#[tokio::test(start_paused = true)]
async fn all_rules_are_asked_about_at_the_same_time() {
    let all_are_there = Arc::new(Barrier::new(2));
    let store = Stub::around(MemoryStore::new()).take_fn(move |inner, take| {
        let (answer, barrier) = (inner.take(take), Arc::clone(&all_are_there));
        StoreFuture::boxed(async move {
            barrier.wait().await;
            answer.await
        })
    });
    let rules = ["api", "tokens"].map(|path| of_users(path, 2));
    let limits = Limits::new(rules).store(store);
    let app = app(&limits, &["api", "tokens"]);
    let seen = timeout(WINDOW, left(&app, "alice")).await;
    assert_eq!(seen.expect("one does not wait for the other"), [2, 2]);
}
