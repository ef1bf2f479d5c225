//! The page: its views, its operations, and who may use them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tidegate::rule::Quotas;
use tidegate::{Header, Limits, Page, Quota, Rule, Rules};
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

/// A row says how many requests of its key were denied in each of the last five whole seconds, on
/// average.
#[tokio::test(start_paused = true)]
async fn the_denials_of_the_last_seconds_are_shown() {
    let app = App::new(Page::allow_changes);
    sleep(Duration::from_millis(1_500)).await;
    let row = async || app.view("limited").await["rows"][0].clone();
    for _ in 0..12 {
        app.search("alice").await;
    }
    // That second has not ended yet.
    assert_eq!(row().await["denials_per_s"], 0.0, "{}", row().await);
    // 10 in the second that began 1 s after the start, and 5 in the one that began 3 s after it.
    let mut seen = Vec::new();
    for second in 2..=10 {
        sleep(Duration::from_secs(1)).await;
        if second == 3 {
            for _ in 0..5 {
                app.search("alice").await;
            }
        }
        seen.push(row().await["denials_per_s"].clone());
    }
    assert_eq!(seen, [2.0, 2.0, 3.0, 3.0, 3.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!(row().await["denials"], 15);

    for _ in 0..10 {
        app.search("alice").await;
    }
    let reset = json!({"rule": "search", "key": "alice"});
    assert_eq!(app.post("reset", reset).await.0, StatusCode::OK);
    for _ in 0..3 {
        app.search("alice").await;
    }
    sleep(Duration::from_secs(1)).await;
    let row = row().await;
    assert_eq!(
        (&row["denials"], &row["denials_per_s"]),
        (&json!(1), &json!(0.2)),
        "the denials before the reset are forgotten"
    );
}

/// The plan of a key is that of its last denial.
#[tokio::test(start_paused = true)]
async fn the_plan_of_a_denied_key_is_shown() {
    use tidegate::rule::Quotas;

    let quotas = Quotas::new([Quota::per_minute(3)]).expect("quotas");
    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let rule = rule.with_plan("pro", quotas).expect("a plan");
    let limits = Limits::new([rule])
        .key(Header::new("x-user"))
        .plan(|head| head.headers.get("x-plan")?.to_str().ok());
    let app = App::of(limits, |page| page);
    sleep(Duration::from_millis(1_100)).await;
    for (plan, shown) in [
        (None, Value::Null),
        (Some("pro"), json!("pro")),
        (None, Value::Null),
    ] {
        for _ in 0..4 {
            let mut request = Request::get("/search").header("x-user", "alice");
            if let Some(plan) = plan {
                request = request.header("x-plan", plan);
            }
            app.send(request.body(Body::empty()).expect("a request"))
                .await;
        }
        sleep(Duration::from_secs(1)).await;
        let row = app.view("limited").await["rows"][0].clone();
        assert_eq!(row.get("plan"), Some(&shown), "{row}");
    }
}

/// Whoever needs no help any more stands behind those who do.
#[tokio::test(start_paused = true)]
async fn who_is_let_through_stands_behind_the_others() {
    let app = App::new(|page| page.allow_changes().show_keys());
    sleep(Duration::from_millis(1_100)).await;
    for (user, requests) in [("alice", 9), ("bob", 8), ("carol", 7), ("dave", 6)] {
        for _ in 0..requests {
            app.search(user).await;
        }
    }
    for user in ["alice", "bob"] {
        let body = json!({"rule": "search", "key": user, "seconds": 60});
        assert_eq!(app.post("let-through", body).await.0, StatusCode::OK);
    }
    sleep(Duration::from_secs(1)).await;
    let keys = async || {
        let view = app.view("limited").await;
        let rows = view["rows"].as_array().expect("rows").clone();
        let keys = rows
            .iter()
            .map(|row| row["key"].as_str().expect("a key").to_owned());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys().await, ["carol", "dave", "alice", "bob"]);

    let body = json!({"rule": "search", "key": "alice", "seconds": 0});
    assert_eq!(app.post("let-through", body).await.0, StatusCode::OK);
    assert_eq!(keys().await, ["alice", "carol", "dave", "bob"]);
}

/// The log names the key that was helped, where the page may, and the row of the page always.
#[tokio::test(start_paused = true)]
async fn the_log_names_the_key_where_the_page_shows_keys() {
    let bodies = [
        (
            "let-through",
            json!({"rule": "search", "key": "alice", "seconds": 60}),
        ),
        (
            "let-through",
            json!({"rule": "search", "key": "alice", "seconds": 0}),
        ),
        ("reset", json!({"rule": "search", "key": "alice"})),
    ];
    let hidden = App::new(Page::allow_changes);
    let shown = App::new(|page| page.allow_changes().show_keys());
    for (app, is_shown) in [(hidden, false), (shown, true)] {
        let (_, left) = app.post("key", bodies[2].1.clone()).await;
        let row = left["row"].as_str().expect("a row");
        for (what, body) in &bodies {
            let log = kit::log::Log::start();
            assert_eq!(app.post(what, body.clone()).await.0, StatusCode::OK);
            let lines = log.lines();
            let [line] = &*lines else {
                panic!("{lines:?}");
            };
            assert!(line.contains("path=\"search\""), "{line}");
            assert!(line.contains(&format!("row=\"{row}\"")), "{line}");
            assert_eq!(line.contains("key=\"alice\""), is_shown, "{line}");
            assert_eq!(line.contains("alice"), is_shown, "{line}");
        }
    }
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
    for what in ["reset", "let-through", "block"] {
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

/// What people write of somebody finds what the layers of the path count for them, wherever the key
/// is set, and lets them through.
#[tokio::test(start_paused = true)]
async fn what_people_write_is_the_key_of_the_layers() {
    use tidegate::key::{Bearer, Cookie, Everyone, PeerAddr};
    use tidegate::{ClientIp, KeyExtractor, PeerIp, RateLimitLayer};

    type Case = (
        &'static str,
        std::sync::Arc<dyn KeyExtractor>,
        &'static [&'static str],
    );
    let client = |bits| ClientIp::behind([]).ipv6_prefix(bits);
    let user = || Header::new("x-user");
    const ADDRESS: &str = "2001:db8:1:2:3::4";
    let cases: [Case; 15] = [
        (
            "prefix 48",
            std::sync::Arc::new(client(48)),
            &[ADDRESS, "2001:db8:1::/48", "2001%3Adb8%3A1%3A%3A/48"],
        ),
        (
            "prefix 56",
            std::sync::Arc::new(client(56)),
            &[ADDRESS, "2001:db8:1::/56"],
        ),
        (
            "prefix 64",
            std::sync::Arc::new(PeerIp),
            &[ADDRESS, "2001:db8:1:2::/64"],
        ),
        ("prefix 128", std::sync::Arc::new(client(128)), &[ADDRESS]),
        (
            "or 48",
            std::sync::Arc::new(Header::new("x-absent").or(client(48))),
            &[ADDRESS, "2001:db8:1::/48"],
        ),
        (
            "first 48",
            std::sync::Arc::new(client(48).or(Everyone)),
            &[ADDRESS],
        ),
        ("bearer", std::sync::Arc::new(Bearer), &["t0ken/+="]),
        (
            "or bearer",
            std::sync::Arc::new(Header::new("x-absent").or(Bearer)),
            &["bearer|t0ken/+="],
        ),
        (
            "cookie",
            std::sync::Arc::new(Cookie::new("sid")),
            &["a:b", "a%3Ab", "\"a%3ab\""],
        ),
        (
            "or cookie",
            std::sync::Arc::new(Header::new("x-absent").or(Cookie::new("sid"))),
            &["cookie.sid|a:b", "cookie.sid|a%3Ab"],
        ),
        (
            "secret",
            std::sync::Arc::new(user().secret()),
            &["2001:db8::7"],
        ),
        (
            "a field",
            std::sync::Arc::new(user()),
            &["2001:db8::7", "2001%3Adb8%3A%3A7"],
        ),
        (
            "or a field",
            std::sync::Arc::new(user().or(PeerIp)),
            &[
                "header.x-user|2001:db8::7",
                "header.x-user|2001%3Adb8%3A%3A7",
            ],
        ),
        ("everyone", std::sync::Arc::new(Everyone), &[""]),
        (
            "or everyone",
            std::sync::Arc::new(Header::new("x-absent").or(Everyone)),
            &["everyone"],
        ),
    ];
    let head = || {
        Request::get("/search")
            .extension(PeerAddr(format!("[{ADDRESS}]:80").parse().expect("one")))
            .header("authorization", "Bearer t0ken/+=")
            .header("cookie", "sid=a:b")
            .header("x-user", "2001:db8::7")
    };
    for (name, own, texts) in cases {
        for place in ["default", "rule", "layer", "layer beside a default"] {
            let rule = Rule::new("search", [Quota::per_hour(2)]).expect("a rule");
            let limits = match place {
                "default" => Limits::new([rule]).key(std::sync::Arc::clone(&own)),
                "rule" => Limits::new([rule.with_key(std::sync::Arc::clone(&own))]),
                "layer" => Limits::new([rule]),
                _ => Limits::new([rule]).key(Header::new("x-absent").secret()),
            };
            let layer: RateLimitLayer = match place.starts_with("layer") {
                true => limits.layer("search").key(std::sync::Arc::clone(&own)),
                false => limits.layer("search"),
            };
            let page = limits.page().allow_changes().show_keys().router();
            let router = Router::new()
                .route("/search", get("found").layer(layer))
                .nest_service("/limits", page);
            let app = App { limits, router };
            let search = async || {
                let request = head().body(Body::empty()).expect("a request");
                app.send(request).await.status().as_u16()
            };
            // Also the text of the key itself, which is a hash of what is secret.
            let head = head().body(()).expect("a request").into_parts().0;
            let whole = own.extract(&head).expect("a key").to_string();
            for text in texts.iter().copied().chain([&*whole]) {
                let case = format!("{name} {place} {text}");
                while search().await != 429 {}
                let body =
                    |seconds: u64| json!({"rule": "search", "key": text, "seconds": seconds});
                let seen = app.post("key", body(0)).await.1;
                assert_eq!(seen["allowed"], false, "{case}: {seen}");
                assert_eq!(seen["hint"], Value::Null, "{case}: {seen}");
                assert_eq!(app.post("let-through", body(60)).await.0, 200, "{case}");
                assert_eq!(search().await, 200, "{case}");
                assert_eq!(app.post("let-through", body(0)).await.0, 200, "{case}");
                assert_eq!(search().await, 429, "{case}");
                let found = app.post("reset", body(0)).await.1;
                assert_eq!(found, json!({"found": true}), "{case}");
            }
        }
    }
}

/// A field that is there and empty has a key of its own, which is not that of everyone.
#[tokio::test(start_paused = true)]
async fn an_empty_value_is_looked_up() {
    use tidegate::KeyExtractor;
    use tidegate::key::Everyone;

    let user = || Header::new("x-user");
    let rule = || Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    for (limits, text) in [
        (Limits::new([rule()]).key(user()), ""),
        (
            Limits::new([rule()]).key(user().or(Everyone)),
            "header.x-user|",
        ),
    ] {
        let app = App::of(limits, |page| page.allow_changes().show_keys());
        sleep(Duration::from_millis(1_200)).await;
        while app.search("").await != StatusCode::TOO_MANY_REQUESTS {}
        sleep(Duration::from_secs(2)).await;
        let row = app.view("limited").await["rows"][0].clone();
        for body in [
            json!({"rule": "search", "key": text}),
            json!({"rule": "search", "key": row["key"]}),
            json!({"rule": "search", "row": row["row"]}),
        ] {
            while app.search("").await != StatusCode::TOO_MANY_REQUESTS {}
            let seen = app.post("key", body.clone()).await.1;
            assert_eq!(
                (&seen["allowed"], &seen["row"]),
                (&json!(false), &row["row"]),
                "{body}"
            );
            assert_eq!(
                app.post("reset", body.clone()).await.1,
                json!({"found": true}),
                "{body}"
            );
            assert_eq!(app.search("").await, StatusCode::OK, "{body}");
        }
    }
}

/// The hint says how keys of the rule are written, and only to whoever wrote none.
#[tokio::test(start_paused = true)]
async fn a_hint_names_the_forms_of_the_keys() {
    use tidegate::key::Everyone;
    use tidegate::{KeyExtractor, PeerIp};

    let rule = || Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let hint = async |key: std::sync::Arc<dyn KeyExtractor>, text: &str| {
        let app = App::of(Limits::new([rule()]).key(key), |page| page);
        let body = json!({"rule": "search", "key": text});
        let hint = app.post("key", body).await.1["hint"].clone();
        hint.as_str().map(str::to_owned)
    };
    let tenant = || std::sync::Arc::new(Header::new("x-tenant").or(Everyone));
    let told = hint(tenant(), "alice").await.expect("a hint");
    assert!(told.contains("header.x-tenant|"), "{told}");
    assert!(
        told.contains("everyone") && !told.contains("everyone|"),
        "{told}"
    );
    assert!(!told.contains("address"), "{told}");
    for text in ["everyone", "header.x-tenant|alice", "header.x-tenant|"] {
        assert_eq!(hint(tenant(), text).await, None, "{text}");
    }
    for text in [
        "everyone|",
        "everyone|alice",
        "203.0.113.7",
        "header.x-tenantalice",
        "header.x-tenant",
        "",
    ] {
        assert_eq!(hint(tenant(), text).await.as_ref(), Some(&told), "{text}");
    }
    // A field whose name looks like an address's.
    let real = || std::sync::Arc::new(Header::new("x-real-ip").or(PeerIp));
    let told = hint(real(), "alice").await.expect("a hint");
    assert!(
        told.contains("header.x-real-ip|") && told.contains("an address"),
        "{told}"
    );
    assert_eq!(hint(real(), "2001:db8::7").await, None);
    assert_eq!(hint(real(), "header.x-real-ip|alice").await, None);
}

/// A site that a browser has no origin for, and what only begins as one of the page's hosts.
#[tokio::test(start_paused = true)]
async fn an_origin_is_a_host_and_a_port() {
    let app = App::new(|page| {
        page.allow_changes()
            .hosts(["admin.example.com", "ops.example.com:8443"])
    });
    let status = async |origin: &str, host: &str| {
        let mut request = posted("reset", &json!({"rule": "search", "key": "alice"}));
        for (name, value) in [("origin", origin), ("host", host)] {
            request
                .headers_mut()
                .insert(name, value.parse().expect("a value"));
        }
        let response = app.send(request).await;
        (
            response.status().as_u16(),
            body(response).await["error"].clone(),
        )
    };
    for origin in [
        "https://admin.example.com",
        "http://admin.example.com",
        "https://admin.example.com:8443",
        "https://admin.example.com:65535",
        "https://ADMIN.example.com:1",
        "https://ops.example.com:8443",
        "http://127.0.0.1:3000",
        "http://localhost",
        "http://localhost:3000",
        "http://[::1]",
        "http://[::1]:3000",
    ] {
        let host = origin.split_once("://").expect("one").1;
        assert_eq!(status(origin, host).await.0, 200, "{origin}");
    }
    let long = "a".repeat(4_000);
    for authority in [
        "admin.example.com:8443.evil.com",
        "admin.example.com:x",
        "admin.example.com:99999999",
        "admin.example.com:65536",
        "admin.example.com:",
        "admin.example.com:+80",
        "admin.example.com:-1",
        "admin.example.com:080",
        "admin.example.com:0x50",
        "admin.example.com:80:80",
        "admin.example.com:80.",
        "admin.example.com::80",
        "admin.example.com.",
        "admin.example.com.evil.com",
        "admin.example.com,evil.com",
        "admin.example.com;evil.com",
        "admin.example.com%3A80",
        "admin.example.com%00.evil.com",
        "admin.example.com/",
        "admin.example.com/.evil.com",
        "admin.example.com?evil.com",
        "admin.example.com#evil.com",
        "admin.example.com\\.evil.com",
        "admin.example.com@evil.com",
        "evil.com@admin.example.com",
        "evil.com:80@admin.example.com",
        "@admin.example.com",
        ":@admin.example.com",
        "[admin.example.com]",
        "[admin.example.com]:80",
        "admin.example.com[::1]",
        "[::1]admin.example.com",
        "[::1].evil.com",
        "[::1]:80.evil.com",
        "[::1]:x",
        "[::1]:",
        "[::1",
        "::1",
        "127.0.0.1:80.evil.com",
        "127.0.0.1:x",
        "127.0.0.1:",
        "127.0.0.1:+80",
        "127.0.0.1.evil.com",
        "localhost:x",
        "localhost:80.evil.com",
        "localhost:",
        "localhost.evil.com",
        "ops.example.com:8443.evil.com",
        "ops.example.com:08443",
        "ops.example.com",
        ":3000",
        ":",
        "",
        "*",
        "null",
        &long,
    ] {
        for scheme in ["https", "http"] {
            let origin = format!("{scheme}://{authority}");
            for host in [authority, "admin.example.com", "127.0.0.1:3000", "internal"] {
                let (status, error) = status(&origin, host).await;
                assert_eq!(status, 403, "{origin} {host}");
                let error = error.as_str().expect("a reason");
                assert!(error.len() <= 500, "{} bytes", error.len());
            }
        }
    }
    for origin in [
        "ftp://admin.example.com",
        "https:admin.example.com",
        "https:///admin.example.com",
        "//admin.example.com",
        "admin.example.com",
        "https://https://admin.example.com",
        "https://admin.example.com https://evil.com",
        " https://evil.com, https://admin.example.com",
    ] {
        assert_eq!(status(origin, "admin.example.com").await.0, 403, "{origin}");
    }
}

/// A refusal repeats no more of a request than shows what is meant.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_short() {
    let app = App::new(|page| page.allow_changes().show_keys());
    let long = "<&\u{7f}".repeat(4_000);
    let text = json!(long).to_string();
    for body in [
        text.clone(),
        format!("[{text}]"),
        format!("{{\"rule\": {text}, \"key\": \"alice\"}}"),
        format!("{{\"rule\": \"search\", \"key\": {text}}}"),
        format!("{{\"rule\": \"search\", \"key\": \"alice\", \"plan\": {text}}}"),
        format!("{{\"rule\": \"search\", \"row\": {text}}}"),
        format!("{{\"rule\": \"search\", \"key\": {{{text}: 1}}}}"),
        format!("{{{text}: 1, \"rule\": \"search\"}}"),
        format!("{{{text}"),
        text[..text.len() - 1].to_owned(),
        "1".repeat(16_000),
        "x".repeat(16_000),
        "[".repeat(16_000),
        "17".to_owned(),
        "\"x\"".to_owned(),
        "null".to_owned(),
    ] {
        for what in ["key", "reset", "let-through"] {
            let mut request = posted(what, &Value::Null);
            *request.body_mut() = Body::from(body.clone());
            let response = app.send(request).await;
            let error = to_bytes(response.into_body(), 1 << 20).await.expect("one");
            let case: String = body.chars().take(40).collect();
            assert!(error.len() < 1_500, "{what} {case}: {} bytes", error.len());
        }
    }
}

/// Without a plan, the rule's own quotas are looked at.
#[tokio::test(start_paused = true)]
async fn the_plans_of_a_rule_are_told() {
    let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
    let rule = rule
        .with_plan("pro", Quotas::new([Quota::per_minute(9)]).expect("valid"))
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

/// A key is looked at by the plan, or the quotas from code, of its last request, also after a
/// reload.
#[tokio::test(start_paused = true)]
async fn a_key_is_looked_at_as_it_was_decided() {
    let rule = |pro| {
        let quotas = |max| Quotas::new([Quota::per_minute(max)]).expect("valid");
        let rule = Rule::new("search", [Quota::per_minute(2)]).expect("a rule");
        rule.with_plan("pro", quotas(pro)).expect("a plan")
    };
    let limits = Limits::new([rule(9)]);
    let app = App::of(limits.clone(), |page| page);
    let look = async |key: &str| {
        app.post("key", json!({"rule": "search", "key": key}))
            .await
            .1
    };
    let seen = async |key: &str| {
        let seen = look(key).await;
        let max = seen["quotas"][0]["max"].clone();
        (seen["allowed"].clone(), seen["plan"].clone(), max)
    };
    let table = Arc::new(Quotas::new([Quota::per_minute(50)]).expect("valid"));
    for _ in 0..5 {
        limits.check("search", "pro").plan("pro").await.expect("9");
        let of_table = limits.check("search", "tabled").quotas(Arc::clone(&table));
        of_table.await.expect("50");
        let _ = limits.check("search", "plain").await;
    }
    assert_eq!(seen("pro").await, (json!(true), json!("pro"), json!(9)));
    assert_eq!(seen("tabled").await, (json!(true), Value::Null, json!(50)));
    assert_eq!(seen("plain").await, (json!(false), Value::Null, json!(2)));
    assert_eq!(look("pro").await["hint"], Value::Null);
    limits.rules().replace(Rules::from_iter([rule(5)]));
    assert_eq!(seen("pro").await, (json!(false), json!("pro"), json!(5)));
    // Without its plan, the key has the rule's own quotas.
    let _ = limits.check("search", "pro").await;
    assert_eq!(seen("pro").await, (json!(false), Value::Null, json!(2)));
}

/// Two processes of a service over one Redis: each has limits of its own.
mod fleet {
    use std::future::Future;
    use std::time::Instant;

    use kit::Redis;
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

    /// A row of another process is its key, also of an empty value.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_empty_value_of_another_process_is_helped_by_its_row() {
        let redis = Redis::start();
        let app = App::of(limits(&redis, "shop"), Page::allow_changes);
        let other = App::of(limits(&redis, "shop"), Page::show_keys);
        while other.search("").await != StatusCode::TOO_MANY_REQUESTS {}
        let row = within(10, "a row", async || {
            app.view("limited").await["rows"].get(0).cloned()
        });
        let row = row.await["row"].clone();
        let body = |seconds| json!({"rule": "search", "row": row, "seconds": seconds});
        let seen = app.post("key", body(0)).await.1;
        assert_eq!((&seen["row"], &seen["allowed"]), (&row, &json!(false)));
        let found = app.post("reset", body(0)).await.1;
        assert_eq!(found, json!({"found": true}));
        while other.search("").await != StatusCode::TOO_MANY_REQUESTS {}
        assert_eq!(app.post("let-through", body(60)).await.0, StatusCode::OK);
        within(5, "let through", async || {
            (other.search("").await == StatusCode::OK).then_some(())
        })
        .await;
    }

    /// A process has a name beside its number: its own, or that of its host.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_are_named() {
        let redis = Redis::start();
        let host = [
            std::env::var("HOSTNAME").ok(),
            std::fs::read_to_string("/etc/hostname").ok(),
        ];
        let mut host = host.into_iter().flatten().map(|it| it.trim().to_owned());
        let host = host.find(|it| !it.is_empty()).unwrap_or_default();
        let app = App::of(limits(&redis, "shop"), |page| page);
        let others = ["web-7", "", "   ", &"\u{202e}<b>".repeat(1_000)];
        let others = others.map(|name| {
            let limits = limits(&redis, "shop").process_name(name);
            limits.join_fleet();
            limits
        });
        let names = within(5, "five processes", async || {
            let fleet = app.view("fleet").await;
            let processes = fleet["processes"].as_array().expect("processes");
            let names = processes.iter().map(|it| it["name"].as_str());
            let names: Option<Vec<_>> = names.map(|it| it.map(str::to_owned)).collect();
            names.filter(|names| names.len() == 5)
        });
        let mut names = names.await;
        let long = "\u{202e}<b>".repeat(16);
        let mut wanted = ["", "", "web-7", &long, &host].map(str::to_owned);
        names.sort();
        wanted.sort();
        assert_eq!(names, wanted);
        assert_eq!(app.view("now").await["process_name"], host);
        // A clone is the same process, whenever it is named.
        let _ = app.limits.clone().process_name("web-1");
        assert_eq!(app.view("now").await["process_name"], "web-1");
        drop(others);
    }

    /// Whoever writes to Redis may claim anything of a process.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_other_processes_claim_is_bounded() {
        let redis = Redis::start();
        let app = App::of(limits(&redis, "shop"), |page| page);
        let long = "<script>\u{1f}".repeat(5_000);
        let text = |name: Value| {
            json!({
                "facts": {
                    "started_ago_s": 1.0, "name": name, "content_hash": long[..2_000],
                    "last_error": {"kind": long[..2_000], "ago_s": 1.0},
                    "warnings": [long[..10_000]],
                },
                "limited": [["search", "eve", 3, 0, 1.0, 2.0, 5, long[..2_000]]],
            })
            .to_string()
        };
        let mut connection = redis.connection();
        let mut claim = |process: &str, text: String| {
            let key = format!("{{shop:CurrentLimiter:~fleet}}:process:{process}");
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
            let now = since.expect("a clock").as_millis() as u64;
            redis::pipe()
                .set_ex(key, text, 60)
                .zadd("{shop:CurrentLimiter:~fleet}:processes", process, now)
                .exec(&mut connection)
                .expect("is written");
        };
        claim("a", text(json!(long[..10_000])));
        claim("b", text(json!(7)));
        claim(&"c".repeat(1_000), text(Value::Null));
        claim("d", "{".to_owned());
        let fleet = within(5, "the claims", async || {
            let fleet = app.view("fleet").await;
            (fleet["processes"].as_array()?.len() > 1).then_some(fleet)
        });
        let fleet = fleet.await;
        let processes = fleet["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 3, "{fleet:#}");
        for process in &processes[1..] {
            assert!(process.to_string().len() < 4_000, "{process:#}");
        }
        let row = app.view("limited").await["rows"][0].clone();
        assert!(row.to_string().len() < 4_000, "{row:#}");
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
