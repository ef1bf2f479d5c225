//! What customers are shown of what they have left.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use kit::Redis;
use serde_json::{Value, json};
use tidegate::key::{Everyone, Header};
use tidegate::rule::{RuleError, Subject};
use tidegate::store::StoreFuture;
use tidegate::{FailOpen, Limits, MemoryStore, Quota, Rule, Rules};
use tokio::sync::Barrier;
use tokio::time::{advance, timeout};
use tower::ServiceExt;

use crate::{Stores, store_on, text};
use kit::per_minute;
use kit::stub::Stub;

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
    let app = Router::new().route("/rate_limit", get(usage));
    paths.iter().enumerate().fold(app, |app, (at, path)| {
        let handler = get("1").layer(limits.layer(path));
        app.route(&format!("/{at}"), handler)
    })
}

/// A request of a user, whose plan stands in a field that is as good as authentication here.
async fn send(app: &Router, uri: &str, user: &str) -> (StatusCode, HeaderMap, String) {
    let (user, plan) = user.split_once(' ').unwrap_or((user, ""));
    let request = Request::get(uri).header("x-plan", plan);
    let request = match user {
        "" => request,
        _ => request.header("x-user", user),
    };
    let request = request.body(Body::empty()).expect("valid");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let (status, fields) = (response.status(), response.headers().clone());
    (status, fields, text(response).await)
}

async fn shown(app: &Router, user: &str) -> (HeaderMap, Value) {
    let (status, fields, body) = send(app, "/rate_limit", user).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    (fields, serde_json::from_str(&body).expect("JSON"))
}

/// What remains of the first policy of each rule.
async fn left(app: &Router, user: &str) -> Vec<u64> {
    let (_, body) = shown(app, user).await;
    let rules = body["rules"].as_array().expect("rules").iter();
    rules
        .map(|rule| rule["policies"][0]["remaining"].as_u64().expect("a number"))
        .collect()
}

fn plan_of(head: &http::request::Parts) -> Option<&str> {
    let plan = head.headers.get("x-plan")?.to_str().ok()?;
    (!plan.is_empty()).then_some(plan)
}

/// A rule that counts users.
fn of_users(rule: Rule) -> Rule {
    rule.with_key(Header::new("x-user"))
}

#[tokio::test]
async fn it_shows_what_is_left_and_charges_nothing() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
        let limits = limits.store(Arc::clone(store));
        let paths = ["api", TOKENS];
        for uri in ["/0", "/0", "/1"] {
            let status = send(&app(&limits, &paths), uri, "alice").await.0;
            assert_eq!(status, StatusCode::OK);
        }
        for _ in 0..3 {
            // Another handler remembers nothing.
            let (fields, body) = shown(&app(&limits, &paths), "alice").await;
            let (api, tokens) = (&body["rules"][0], &body["rules"][1]);
            assert_eq!(api["path"], "api");
            assert_eq!(api["plan"], Value::Null);
            let reset = api["policies"][0]["reset"].as_u64().expect("a number");
            assert!((1..=60).contains(&reset), "{reset}");
            let used_up =
                json!({"name": "api-1m", "limit": 2, "remaining": 0, "reset": reset, "window": 60});
            let permits = json!({"name": "api-concurrent", "limit": 4, "remaining": 4});
            assert_eq!(api["policies"], json!([used_up, permits]));
            assert_eq!(tokens["path"], TOKENS);
            assert_eq!(tokens["policies"][0]["remaining"], 59);
            assert_eq!(tokens["policies"][0]["window"], 3_600);
            assert_eq!(fields["cache-control"], "no-store");
            assert_eq!(fields["content-type"], "application/json");
            let of_api = "\"api-1m\";q=2;w=60,\"api-concurrent\";q=4;qu=\"concurrent-requests\"";
            let policies = fields
                .get_all("ratelimit-policy")
                .iter()
                .collect::<Vec<_>>();
            assert_eq!(policies, [of_api, "\"to%22kens\";q=60;w=3600"]);
            let lists = fields.get_all("ratelimit").iter().collect::<Vec<_>>();
            let begins = lists[0]
                .to_str()
                .expect("text")
                .starts_with("\"api-1m\";r=0;t=");
            assert!(begins && lists.len() == 2, "{lists:?}");
            assert_eq!(fields.get("retry-after"), None);
        }
        let (fields, body) = shown(&app(&limits, &paths), "alice pro").await;
        let often = json!({
            "name": "often", "limit": 600, "remaining": 598,
            "reset": body["rules"][0]["policies"][0]["reset"], "window": 90.5,
        });
        let of_plan = json!({"path": "api", "plan": "pro", "policies": [often]});
        assert_eq!(body["rules"][0], of_plan);
        assert_eq!(fields["ratelimit-policy"], "\"often\";q=600");
        assert_eq!(left(&app(&limits, &paths), "bob").await, [2, 60]);
        // What was asked has left no trace.
        assert_eq!(
            send(&app(&limits, &paths), "/0", "bob").await.0,
            StatusCode::OK
        );
        stores.flush();
    }
}

/// A request in progress holds its permit.
#[tokio::test]
async fn permits_show_how_many_are_free() {
    let limits = Limits::from_toml(FILE).expect("valid");
    let running = get(pending::<()>).layer(limits.layer("api"));
    let running = Router::new().route("/", running);
    let task = tokio::spawn(async move { send(&running, "/", "alice").await });
    let permits = async || {
        let (_, body) = shown(&app(&limits, &["api"]), "alice").await;
        body["rules"][0]["policies"][1]["remaining"].clone()
    };
    while permits().await != 3 {
        tokio::task::yield_now().await;
    }
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
        let names_and_left = async |user: &str| {
            let (_, body) = shown(&app(&limits, &["api"]), user).await;
            let policies = body["rules"][0]["policies"].as_array().expect("policies");
            let policies = policies.iter();
            let each = policies.map(|it| (it["name"].to_string(), it["remaining"].clone()));
            each.collect::<Vec<_>>()
        };
        let of_all = ("\"api-all\"".to_owned(), json!(6));
        let of_user = ("\"api-user\"".to_owned(), json!(1));
        assert_eq!(names_and_left("alice").await, [of_user, of_all.clone()]);
        assert_eq!(names_and_left("").await, [of_all]);
    }
}

#[tokio::test]
async fn failures_are_answered_as_by_a_layer() {
    let rules = || Limits::new([of_users(per_minute("api", 2))]);
    let (status, _, body) = send(&app(&rules(), &["api"]), "/rate_limit", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("x-user"), "{body}");
    let down = rules().store(Stub::down());
    let (status, fields, _) = send(&app(&down, &["api"]), "/rate_limit", "alice").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fields["content-type"], "application/problem+json");

    let said = rules().on_error_fn(async |failed| format!("{:?}", failed.kind()));
    let body = send(&app(&said, &["api"]), "/rate_limit", "").await.2;
    assert_eq!(body, "Key(Absent)");
    let said = said.store(Stub::down());
    let body = send(&app(&said, &["api"]), "/rate_limit", "alice").await.2;
    assert_eq!(body, "Store(Unavailable)");
    // A request that would pass has nothing to show.
    let open = rules().store(Stub::down()).on_error(FailOpen);
    let (status, ..) = send(&app(&open, &["api"]), "/rate_limit", "alice").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn to_a_client_that_is_exempt_all_is_left() {
    let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
    let exempt = limits.exempt(|head| head.headers["x-user"] == "root");
    let (fields, body) = shown(&app(&exempt, &["api"]), "root pro").await;
    let whole =
        json!({"name": "often", "limit": 600, "remaining": 600, "reset": 0, "window": 90.5});
    let rule = json!({"path": "api", "plan": "pro", "policies": [whole]});
    assert_eq!(body, json!({"rules": [rule]}));
    assert_eq!(fields.get("ratelimit"), None, "nothing limits it");
}

#[tokio::test(start_paused = true)]
async fn to_a_client_that_is_let_through_all_is_left() {
    let limits = Limits::new([of_users(per_minute("api", 2))]);
    let app = app(&limits, &["api"]);
    send(&app, "/0", "alice").await;
    assert_eq!(left(&app, "alice").await, [1]);
    let page = limits.page().allow_changes();
    let page = page.router();
    let one = json!({"rule": "api", "key": "alice", "seconds": 60});
    let request = Request::post("/api/let-through")
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", "127.0.0.1:3000")
        .header("origin", "http://127.0.0.1:3000")
        .body(Body::from(one.to_string()));
    let answer = page.oneshot(request.expect("valid")).await;
    assert_eq!(answer.expect("infallible").status(), StatusCode::OK);
    assert_eq!(left(&app, "alice").await, [2], "and nothing is remembered");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_remembered_for_a_second() {
    let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
    let app = app(&limits, &["api"]);
    assert_eq!(left(&app, "alice").await, [2]);
    send(&app, "/0", "alice").await;
    send(&app, "/0", "bob").await;
    assert_eq!(left(&app, "alice").await, [2]);
    assert_eq!(left(&app, "bob").await, [1], "another key");
    assert_eq!(left(&app, "alice pro").await, [599], "another plan");
    assert_eq!(left(&app, "alice").await, [1]);
    send(&app, "/0", "alice").await;
    advance(Duration::from_millis(999)).await;
    assert_eq!(left(&app, "alice").await, [1]);
    advance(Duration::from_millis(1)).await;
    assert_eq!(left(&app, "alice").await, [0]);

    let larger = of_users(per_minute("api", 5));
    limits.rules().replace(Rules::from_iter([larger]));
    assert_eq!(left(&app, "alice").await, [3], "another rule");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_1_000_keys_are_remembered() {
    let store = Stub::listening(Stub::in_memory());
    let limits = Limits::new([of_users(per_minute("api", 2))]).store(store.clone());
    let app = app(&limits, &["api"]);
    for user in 0..1_001 {
        left(&app, &user.to_string()).await;
    }
    let asked = async |user: &str| {
        let before = store.takes().len();
        left(&app, user).await;
        store.takes().len() - before
    };
    assert_eq!([asked("999").await, asked("1000").await], [0, 1]);
    advance(Duration::from_secs(1)).await;
    assert_eq!([asked("1000").await, asked("1000").await], [1, 0]);
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
    let limits = Limits::from_toml(text).expect("valid");
    let said = |limits: &Limits, paths: &[&str]| {
        let error = limits.usage(paths.iter().copied()).err();
        error.map(|error| error.to_string())
    };
    assert_eq!(limits.usage([]).err(), Some(RuleError::NoPath));
    assert_eq!(
        said(&limits, &["api", "apo"]).as_deref(),
        Some("there is no rule \"apo\": correct the path, or add the rule")
    );
    assert_eq!(
        said(&limits, &["api", "tokens"]).as_deref(),
        Some(
            "nothing says whom the rule \"tokens\" counts, and a layer's own key is not known \
             here: give a key to the rule or to Limits, or \"everyone\" for one count of all \
             requests"
        )
    );
    let of_joint = limits.usage(["joint"]).err();
    assert_eq!(of_joint, Some(RuleError::NoKey("joint".to_owned())));
    assert_eq!(said(&limits, &["api"]), None);
    let limits = limits.key(Everyone);
    assert_eq!(said(&limits, &["api", "tokens", "joint"]), None);
    // It neither limits a path nor says that one is limited.
    let unlimited = limits.verify().expect_err("no layer").paths_without_layer;
    assert_eq!(unlimited.len(), 3);
}

/// The handler goes on, whatever becomes of its rules.
#[tokio::test]
async fn a_rule_that_is_gone_is_left_out() {
    let rule = |path| of_users(per_minute(path, 2));
    let limits = Limits::new([rule("api"), rule("tokens")]);
    let usage = limits.usage(["api", "tokens"]).expect("they are known");
    let app = Router::new().route("/rate_limit", get(usage));
    let paths = async |rules: Rules| {
        limits.rules().replace(rules);
        let (_, body) = shown(&app, "alice").await;
        let rules = body["rules"].as_array().expect("rules").iter();
        rules.map(|rule| rule["path"].clone()).collect::<Vec<_>>()
    };
    let both = || Rules::from_iter([rule("api"), rule("tokens")]);
    assert_eq!(paths(both()).await, ["api", "tokens"]);
    let mut one_is_off = both();
    one_is_off.disable("api");
    assert_eq!(paths(one_is_off).await, ["tokens"]);
    let in_shadow = rule("tokens").into_shadow();
    assert_eq!(
        paths(Rules::from_iter([rule("api"), in_shadow])).await,
        ["api"]
    );
    let without_key = per_minute("api", 2);
    assert_eq!(paths(Rules::from_iter([without_key])).await, [""; 0]);
    assert_eq!(paths(both().enabled(false)).await, [""; 0]);
    assert_eq!(paths(Rules::default()).await, [""; 0]);
    assert_eq!(paths(both()).await, ["api", "tokens"]);

    // A file that lacks a rule that nothing but this handler shows.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let text = "[rules.tokens]\nmax-count = 1\nwindow = '1m'\nkey = 'header:x-user'";
    std::fs::write(&file, text).expect("is written");
    limits.reload(&file).expect("valid");
    let (_, body) = shown(&app, "alice").await;
    assert_eq!(body["rules"].as_array().map(Vec::len), Some(1));
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
    let rules = ["api", "tokens"].map(|path| of_users(per_minute(path, 2)));
    let limits = Limits::new(rules).store(store);
    let app = app(&limits, &["api", "tokens"]);
    let seen = timeout(Duration::from_secs(60), left(&app, "alice")).await;
    assert_eq!(seen.expect("one does not wait for the other"), [2, 2]);
}

/// The first question departs by itself, and all others together beside it.
#[tokio::test]
async fn redis_is_asked_by_two_calls_about_four_rules() {
    let server = Redis::start();
    let paths = ["a", "b", "c", "d"];
    let rules = paths.map(|path| of_users(per_minute(path, 2)));
    let limits = Limits::new(rules).store(store_on(&server).await);
    let app = app(&limits, &paths);
    let before = calls(&server);
    assert_eq!(left(&app, "alice").await, [2; 4]);
    assert_eq!(calls(&server) - before, 2);
}

fn calls(server: &Redis) -> u64 {
    let info = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection());
    let info: redis::InfoDict = info.expect("stats");
    let stats: String = info.get("cmdstat_evalsha").unwrap_or_default();
    let calls = stats.split(['=', ',']).nth(1);
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}
