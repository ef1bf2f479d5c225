//! The page: its views, its operations, and who may use them.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tidegate::{Header, Limits, Page, Quota, Rule};
use tokio::time::sleep;
use tower::ServiceExt;

/// Users may send two requests a minute to `/search`, and the page is at `/limits`.
struct App {
    limits: Limits,
    router: Router,
}

impl App {
    fn new(page: impl FnOnce(Page) -> Page) -> Self {
        let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
        Self::of(Limits::new([rule]).key(Header::new("x-user")), page)
    }

    fn of(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        let router = Router::new()
            .route("/search", get("found").layer(limits.layer("search")))
            .nest_service("/limits", page(limits.page()).router());
        Self { limits, router }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let answered = self.router.clone().oneshot(request).await;
        answered.expect("routers do not fail")
    }

    async fn search(&self, user: &str) -> StatusCode {
        let request = Request::get("/search").header("x-user", user);
        let request = request.body(Body::empty()).expect("a request");
        self.send(request).await.status()
    }

    async fn view(&self, view: &str) -> Value {
        let request = Request::get(format!("/limits/api/{view}"));
        let response = self
            .send(request.body(Body::empty()).expect("a request"))
            .await;
        assert_eq!(response.status(), StatusCode::OK, "{view}");
        body(response).await
    }

    async fn post(&self, what: &str, value: Value) -> (StatusCode, Value) {
        let response = self.send(posted(what, &value)).await;
        (response.status(), body(response).await)
    }
}

fn posted(what: &str, value: &Value) -> Request<Body> {
    Request::post(format!("/limits/api/{what}"))
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", "127.0.0.1:3000")
        .header("origin", "http://127.0.0.1:3000")
        .body(Body::from(value.to_string()))
        .expect("a request")
}

async fn body(response: Response<Body>) -> Value {
    let bytes = to_bytes(response.into_body(), 1 << 24)
        .await
        .expect("a body");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn rates_are_shown_by_the_second() {
    let app = App::new(|page| page);
    sleep(Duration::from_millis(1_500)).await;
    for _ in 0..5 {
        app.search("alice").await;
    }
    sleep(Duration::from_secs(2)).await;
    let now = app.view("now").await;
    let rule = &now["rules"][0];
    assert_eq!(rule["rule"], "search");
    assert_eq!(rule["total"]["allowed"], 2, "{rule}");
    assert_eq!(rule["total"]["denied"], 3);
    let seconds = |name: &str| rule[name].as_array().expect("an array").clone();
    assert_eq!(seconds("allowed"), [json!(0), json!(2), json!(0)]);
    assert_eq!(seconds("denied"), [json!(0), json!(3), json!(0)]);
    assert_eq!((&now["first"], &now["tick"]), (&json!(1), &json!(3)));

    let later = app.view("now?after=2").await;
    assert_eq!(later["rules"][0]["denied"], json!([0]));
    assert_eq!(later["first"], 3);
}

/// All requests since the page is there are shown, also those before its task ran.
#[tokio::test(start_paused = true)]
async fn the_first_requests_are_shown() {
    let app = App::new(|page| page);
    app.search("alice").await;
    sleep(Duration::from_millis(2_500)).await;
    let now = app.view("now").await;
    assert_eq!(now["rules"][0]["allowed"], json!([1, 0]), "{now}");
}

/// The task that watches ends with its runtime. The next one goes on with the seconds.
#[test]
fn a_page_in_a_second_runtime_goes_on() {
    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let limits = Limits::new([rule]).key(Header::new("x-user"));
    let allowed_after = |seconds: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let app = App::of(limits.clone(), |page| page);
            app.search("alice").await;
            sleep(Duration::from_millis(seconds * 1_000 + 500)).await;
            let now = app.view("now").await;
            now["rules"][0]["allowed"].clone()
        })
    };
    let of_first = allowed_after(130);
    assert_eq!(of_first.as_array().map(Vec::len), Some(130));
    let of_both = allowed_after(2);
    assert_eq!(of_both.as_array().map(Vec::len), Some(132), "{of_both}");
    let sum = of_both
        .as_array()
        .map(|all| all.iter().filter_map(Value::as_u64).sum());
    assert_eq!(sum, Some(2_u64));
}

/// A name that stands twice in an object of JSON would hide what stood there first.
#[tokio::test(start_paused = true)]
async fn a_shadow_rule_is_named_as_one() {
    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let limits = Limits::new([rule.into_shadow()]).key(Header::new("x-user"));
    let app = App::of(limits, |page| page);
    sleep(Duration::from_millis(1_500)).await;
    for _ in 0..5 {
        assert_eq!(app.search("alice").await, StatusCode::OK);
    }
    sleep(Duration::from_secs(1)).await;
    let rule = &app.view("now").await["rules"][0];
    assert_eq!(rule["is_shadow"], true);
    assert_eq!(rule["total"]["shadow"], 3, "{rule}");
    assert_eq!(rule["shadow"], json!([0, 3]));
}

#[tokio::test(start_paused = true)]
async fn who_is_limited_is_shown_by_a_hash_and_helped_by_it() {
    let app = App::new(Page::allow_changes);
    sleep(Duration::from_millis(1_100)).await;
    for _ in 0..5 {
        app.search("alice").await;
    }
    app.search("bob").await;
    sleep(Duration::from_millis(1_000)).await;
    let limited = app.view("limited").await;
    let rows = limited["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{limited}");
    assert_eq!(
        (&rows[0]["denials"], &rows[0]["key"]),
        (&json!(3), &Value::Null)
    );
    assert!(!limited.to_string().contains("alice"));

    let (status, answer) = app
        .post(
            "let-through",
            json!({"rule": "search", "row": rows[0]["row"], "seconds": 60}),
        )
        .await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({"ends_in_s": 60.0}))
    );
    assert_eq!(app.search("alice").await, StatusCode::OK);
    let allowed = app
        .limits
        .check("search", Header::new("x-user").key("alice"))
        .await;
    assert!(allowed.expect("it is let through").decision.is_none());
    let snapshot = app.limits.snapshot();
    let counted = snapshot.rule("search").expect("a layer uses it");
    assert_eq!(counted.let_through, 2);

    let (_, left) = app
        .post("key", json!({"rule": "search", "key": "alice"}))
        .await;
    assert_eq!(
        left["quotas"][0]["remaining"], 0,
        "nothing was charged: {left}"
    );

    // By its own end, or because an operator ends it.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(app.search("alice").await, StatusCode::OK);
    let ended = json!({"rule": "search", "key": "alice", "seconds": 0});
    assert_eq!(app.post("let-through", ended).await.0, StatusCode::OK);
    assert_eq!(app.search("alice").await, StatusCode::TOO_MANY_REQUESTS);

    let reset = json!({"rule": "search", "key": "alice"});
    assert_eq!(
        app.post("reset", reset).await,
        (StatusCode::OK, json!({"found": true}))
    );
    assert_eq!(app.search("alice").await, StatusCode::OK);
}

/// Whoever types `alice` would look at a key that nobody has.
#[tokio::test(start_paused = true)]
async fn a_key_without_its_mark_is_told() {
    use tidegate::{KeyExtractor, PeerIp};

    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let key = Header::new("x-user").or(PeerIp);
    let app = App::of(Limits::new([rule]).key(key), Page::allow_changes);
    let hint = async |key: &str| {
        let body = json!({"rule": "search", "key": key});
        app.post("key", body).await.1["hint"].clone()
    };
    let told = hint("alice").await;
    let told = told.as_str().expect("a hint");
    assert!(told.contains("header.x-user|"), "{told}");
    for right in ["header.x-user|alice", "203.0.113.7", "2001:db8::7"] {
        assert_eq!(hint(right).await, Value::Null, "{right}");
    }
    for what in ["reset", "let-through"] {
        let hint = async |key: &str| {
            let body = json!({"rule": "search", "key": key, "seconds": 60});
            app.post(what, body).await.1["hint"].clone()
        };
        assert_eq!(hint("alice").await, told, "{what}");
        assert_eq!(hint("header.x-user|alice").await, Value::Null, "{what}");
    }
}

/// What is stored as a hash only can be looked up by its value, and by its hash.
#[tokio::test(start_paused = true)]
async fn a_secret_is_looked_up_by_its_value() {
    use tidegate::key::Bearer;
    use tidegate::{KeyExtractor, PeerIp};

    let rules = || [Rule::new("search", [Quota::per_minute(2)]).expect("a rule")];
    let token = Header::new("x-api-key");
    let hash = Bearer.key("a+b/c==").as_str().to_owned();
    let several = token.clone().or(Bearer).or(PeerIp);
    for (limits, mark) in [
        (Limits::new(rules()).key(Bearer), ""),
        (Limits::new(rules()).key(several), "bearer|"),
    ] {
        let app = App::of(limits, Page::allow_changes);
        let key = match mark {
            "" => Bearer.key("a+b/c=="),
            _ => Bearer.marked(Bearer.key("a+b/c==")),
        };
        app.limits.check("search", key).await.expect("room");
        for text in ["a+b/c==", &hash] {
            let body = json!({"rule": "search", "key": format!("{mark}{text}")});
            let left = app.post("key", body).await.1;
            assert_eq!(left["quotas"][0]["remaining"], 1, "{left}");
        }
        let body = json!({"rule": "search", "key": format!("{mark}a+b/c==")});
        assert_eq!(app.post("reset", body).await.1, json!({"found": true}));
    }
}

/// Without a plan, the rule's own quotas are looked at.
#[tokio::test(start_paused = true)]
async fn the_plans_of_a_rule_are_told() {
    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let rule = rule
        .with_plan(
            "pro",
            tidegate::rule::Quotas::new([Quota::per_minute(9)]).expect("valid"),
        )
        .expect("a plan");
    let app = App::of(Limits::new([rule]), |page| page);
    let look = async |plan: Option<&str>| {
        let body = json!({"rule": "search", "key": "", "plan": plan});
        app.post("key", body).await.1
    };
    let (own, pro) = (look(None).await, look(Some("pro")).await);
    assert_eq!(
        (&own["quotas"][0]["max"], &pro["quotas"][0]["max"]),
        (&json!(2), &json!(9))
    );
    assert!(
        own["hint"].as_str().is_some_and(|it| it.contains("pro")),
        "{own}"
    );
    assert_eq!(pro["hint"], Value::Null);
}

/// Two processes of a service over one Redis: each has limits of its own.
#[cfg(feature = "redis")]
mod fleet {
    use std::future::Future;
    use std::time::Instant;

    use test_support::Redis;
    use tidegate::Resilient;

    use super::*;

    fn limits(redis: &Redis, service: &str) -> Limits {
        let store = Resilient::redis(&*redis.url, service).expect("an address");
        let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
        let limits = Limits::new([rule]).key(Header::new("x-user"));
        limits.store(store.timeout(Duration::from_secs(2)))
    }

    /// The first such view within a time.
    async fn within<T, Asked: Future<Output = Option<T>>>(
        seconds: u64,
        what: &str,
        mut ask: impl FnMut() -> Asked,
    ) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(seconds), "{what}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_see_each_other_and_obey() {
        let redis = Redis::start();
        let app = App::of(limits(&redis, "shop"), Page::allow_changes);
        let other = App::of(limits(&redis, "shop"), Page::show_keys);
        let stranger = App::of(limits(&redis, "shop2"), Page::show_keys);
        let processes = async || {
            let fleet = app.view("fleet").await;
            fleet["processes"].as_array().expect("processes").len()
        };
        within(5, "two processes", async || {
            (processes().await == 2).then_some(())
        })
        .await;

        // Denied by the other process, shown by this one.
        for _ in 0..5 {
            other.search("alice").await;
        }
        let row = within(5, "a row", async || {
            let row = app.view("limited").await["rows"].get(0).cloned();
            row.filter(|row| row["denials"] == 3)
        });
        let row = row.await;
        let of_other = within(5, "a row", async || {
            other.view("limited").await["rows"].get(0).cloned()
        });
        let of_other = of_other.await;
        assert_eq!(
            (&of_other["row"], &of_other["key"]),
            (&row["row"], &json!("alice"))
        );
        for _ in 0..3 {
            stranger.search("alice").await;
        }
        let of_stranger = within(5, "a row", async || {
            stranger.view("limited").await["rows"].get(0).cloned()
        });
        assert_ne!(of_stranger.await["row"], row["row"], "another secret");

        // Let through by this process, obeyed by the other one.
        let body = json!({"rule": "search", "row": row["row"], "seconds": 600});
        assert_eq!(app.post("let-through", body).await.0, StatusCode::OK);
        within(5, "let through", async || {
            (other.search("alice").await == StatusCode::OK).then_some(())
        })
        .await;
        assert_eq!(
            stranger.search("alice").await,
            StatusCode::TOO_MANY_REQUESTS
        );

        // Every key of the fleet expires.
        let mut connection = redis.connection();
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("{shop:*~fleet}:*")
            .query(&mut connection)
            .expect("keys");
        assert_eq!(keys.len(), 6, "{keys:?}");
        for key in keys {
            let left: i64 = redis::cmd("PTTL")
                .arg(&key)
                .query(&mut connection)
                .expect("a time");
            assert!(left > 0, "{key}: {left}");
        }

        drop(other);
        within(12, "one process", async || {
            (processes().await == 1).then_some(())
        })
        .await;

        // Its name is gone from the index, and so is one that a clock ahead has written.
        let index = "{shop:CurrentLimiter:~fleet}:processes";
        redis::cmd("ZADD")
            .arg(index)
            .arg("9e15")
            .arg("ghost")
            .exec(&mut connection)
            .expect("is added");
        within(10, "one name", || {
            let known = redis::cmd("ZCARD").arg(index).query::<u64>(&mut connection);
            std::future::ready((known == Ok(1)).then_some(()))
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_let_through_stays_so_while_redis_is_gone() {
        let mut redis = Redis::start();
        let app = App::of(limits(&redis, "shop"), Page::allow_changes);
        let user = |user: &str, seconds: u64| {
            app.post(
                "let-through",
                json!({"rule": "search", "key": user, "seconds": seconds}),
            )
        };
        within(5, "let through", async || {
            (user("alice", 600).await.0 == StatusCode::OK).then_some(())
        })
        .await;
        redis.kill();
        let (status, answer) = user("bob", 600).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
        within(5, "Redis is gone", async || {
            let fleet = app.view("fleet").await;
            (fleet["redis_answers"] == false).then_some(())
        })
        .await;
        for _ in 0..3 {
            assert_eq!(app.search("alice").await, StatusCode::OK);
        }
        assert_eq!(app.search("bob").await, StatusCode::SERVICE_UNAVAILABLE);
    }
}
