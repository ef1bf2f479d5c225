//! The page of a joint rule: its rows and its operations are about one subject.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::any;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tidegate::decision::Source;
use tidegate::key::{Bearer, Everyone};
use tidegate::rule::{Policy, Quotas, Subject};
use tidegate::{Header, Limits, Page, Quota, Rule, Rules};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::{call, keys, rule};

struct App {
    limits: Limits,
    router: Router,
}

impl App {
    fn of(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        let layer = limits.layer("api").wait(Duration::from_secs(100));
        let router = Router::new()
            .route("/api", any(async || "1").layer(layer))
            .nest_service("/limits", page(limits.page()).router());
        Self { limits, router }
    }

    async fn call(&self, user: &str, address: &str) -> StatusCode {
        call(&self.router, user, address).await.status()
    }

    async fn answer(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answered = self.router.clone().oneshot(request).await;
        let response = answered.expect("routers do not fail");
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 1 << 24).await;
        let body = serde_json::from_slice(&bytes.expect("a body"));
        (status, body.expect("JSON"))
    }

    async fn limited(&self) -> Value {
        let request = Request::get("/limits/api/limited").body(Body::empty());
        let (status, limited) = self.answer(request.expect("a request")).await;
        assert_eq!(status, StatusCode::OK);
        limited
    }

    /// Rule, subject, key and denials of each row, in alphabetical order.
    async fn rows(&self) -> Vec<String> {
        // A view is made once a second.
        sleep(Duration::from_secs(1)).await;
        let limited = self.limited().await;
        let rows = limited["rows"].as_array().expect("rows").iter();
        let names = ["rule", "subject", "key", "denials"];
        let row = |row: &Value| names.map(|name| row[name].to_string()).join(" ");
        let mut rows: Vec<_> = rows.map(row).collect();
        rows.sort();
        rows
    }

    async fn post(&self, what: &str, value: Value) -> (StatusCode, Value) {
        let request = Request::post(format!("/limits/api/{what}"))
            .header("content-type", "application/json")
            .header("x-tidegate", "1")
            .header("host", "127.0.0.1:3000")
            .header("origin", "http://127.0.0.1:3000")
            .body(Body::from(value.to_string()))
            .expect("a request");
        self.answer(request).await
    }

    async fn let_through(&self, subject: &str, key: &str, seconds: u64) {
        self.set("let-through", subject, key, seconds).await;
    }

    async fn set(&self, what: &str, subject: &str, key: &str, seconds: u64) {
        let one = json!({"rule": "api", "subject": subject, "key": key, "seconds": seconds});
        let (status, answer) = self.post(what, one).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }

    /// What is left of each quota of a subject, and whether a request has room.
    async fn left(&self, subject: &str, key: &str) -> (Vec<(String, u64)>, bool) {
        let of = json!({"rule": "api", "subject": subject, "key": key});
        let (status, seen) = self.post("key", of).await;
        assert_eq!(status, StatusCode::OK, "{seen}");
        assert_eq!(seen["subject"], subject);
        let quotas = seen["quotas"].as_array().expect("quotas").iter();
        let quotas = quotas.map(|quota| {
            let name = quota["name"].as_str().expect("a name").to_owned();
            (name, quota["remaining"].as_u64().expect("a number"))
        });
        (quotas.collect(), seen["allowed"] == true)
    }
}

fn open(page: Page) -> Page {
    page.allow_changes().show_keys()
}

/// Denied are the subjects that have no room, each by itself, also those that are hidden.
#[tokio::test(start_paused = true)]
async fn rows_are_of_the_subjects_that_denied() {
    let app = App::of(Limits::new([rule()]), open);
    sleep(Duration::from_millis(1_100)).await;
    for _ in 0..3 {
        app.call("alice", "here").await;
    }
    app.call("alice", "there").await;
    let alice = r#""api" "user" "alice" 2"#;
    assert_eq!(app.rows().await, [alice]);
    app.call("bob", "here").await;
    app.call("bob", "here").await;
    let here = r#""api" "address" "here" 1"#;
    assert_eq!(app.rows().await, [here, alice]);
    for at in 0..8 {
        app.call("", &format!("h{at}")).await;
    }
    let everyone = r#""api" "everyone" "" 1"#;
    assert_eq!(app.rows().await, [here, everyone, alice]);

    // A reset of one forgets its row, and its count alone.
    let bob = json!({"rule": "api", "subject": "address", "key": "here"});
    assert_eq!(app.post("reset", bob).await.1, json!({"found": true}));
    assert_eq!(app.rows().await, [everyone, alice]);
    let (left, _) = app.left("address", "here").await;
    assert_eq!(left, [("secret".to_owned(), 3)]);
    let (left, has_room) = app.left("user", "alice").await;
    assert_eq!((left, has_room), (vec![("api-user".to_owned(), 0)], false));
    let (left, has_room) = app.left("everyone", "").await;
    assert_eq!(
        (left, has_room),
        (vec![("api-everyone".to_owned(), 0)], false)
    );
}

/// Of two subjects that deny a request, each has the end of its own limit.
#[tokio::test(start_paused = true)]
async fn a_row_ends_with_the_limit_of_its_subject() {
    let seconds = |seconds| Quota::new(Duration::from_secs(seconds), 2).expect("a quota");
    let user = Subject::new("user", Header::new("x-user")).limit(seconds(200));
    let all = Subject::new("everyone", Everyone).limit(seconds(3_600));
    let rule = Rule::joint("api", [user, all]).expect("a rule");
    let app = App::of(Limits::new([rule]), open);
    sleep(Duration::from_millis(1_100)).await;
    for _ in 0..3 {
        app.call("alice", "").await;
    }
    sleep(Duration::from_secs(1)).await;
    let limited = app.limited().await;
    let rows = limited["rows"].as_array().expect("rows").iter();
    let ends = rows.map(|row| {
        let seconds = row["until_in_s"].as_f64().expect("a number");
        (row["subject"].to_string(), seconds)
    });
    let ends: HashMap<_, _> = ends.collect();
    for (subject, end) in [("user", 200.0), ("everyone", 3_600.0)] {
        let seconds = ends[&format!("\"{subject}\"")];
        assert!((end - 3.0..=end).contains(&seconds), "{subject}: {seconds}");
    }
}

/// Without `show_keys` a row has no key, and helps: it knows its subject.
#[tokio::test(start_paused = true)]
async fn a_row_is_helped_by_its_hash() {
    let user = Subject::new("user", Bearer).limit(Quota::per_hour(1));
    let all = Subject::new("everyone", Everyone).limit(Quota::per_hour(9));
    let rule = Rule::joint("api", [user, all]).expect("a rule");
    let app = App::of(Limits::new([rule]), Page::allow_changes);
    sleep(Duration::from_millis(1_100)).await;
    let call = async || {
        let request = Request::get("/api").header("authorization", "Bearer alices-secret");
        let request = request.body(Body::empty()).expect("a request");
        let answered = app.router.clone().oneshot(request).await;
        answered.expect("routers do not fail").status()
    };
    call().await;
    assert_eq!(call().await, StatusCode::TOO_MANY_REQUESTS);
    let limited = app.limited().await;
    let row = &limited["rows"][0];
    assert_eq!(
        (&row["subject"], &row["key"]),
        (&json!("user"), &Value::Null)
    );
    let hash = "#13a5ebd9bb9e3a6f";
    let texts = limited.to_string();
    assert!(
        !texts.contains("secret") && !texts.contains(hash),
        "{limited}"
    );
    let of_row = |seconds: u64| json!({"rule": "api", "row": row["row"], "seconds": seconds});
    let (_, seen) = app.post("key", of_row(0)).await;
    assert_eq!(seen["subject"], "user");
    assert_eq!(seen["quotas"][0]["remaining"], 0);
    // The text of the secret is that of the same key.
    let typed = json!({"rule": "api", "subject": "user", "key": "alices-secret"});
    assert_eq!(app.post("key", typed).await.1["row"], row["row"]);

    assert_eq!(app.post("let-through", of_row(60)).await.0, StatusCode::OK);
    assert_eq!(call().await, StatusCode::OK);
    let listed = &app.limited().await["let_through"][0];
    assert_eq!(
        (&listed["row"], &listed["subject"]),
        (&row["row"], &json!("user"))
    );
    assert_eq!(app.post("let-through", of_row(0)).await.0, StatusCode::OK);
    assert_eq!(call().await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(app.post("reset", of_row(0)).await.1, json!({"found": true}));
    assert_eq!(call().await, StatusCode::OK);
}

/// It is as if the request had no such key: the others decide, and are charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_let_through_is_left_out() {
    let app = App::of(Limits::new([rule()]), open);
    for _ in 0..2 {
        app.call("alice", "here").await;
    }
    assert_eq!(
        app.call("alice", "here").await,
        StatusCode::TOO_MANY_REQUESTS
    );
    app.let_through("user", "alice", 3_600).await;
    assert_eq!(app.call("alice", "here").await, StatusCode::OK);
    let denied = app.limits.check("api", keys("alice", "here")).await;
    let denied = denied.expect_err("the address has no room");
    let states = denied.decision().expect("a denial").quotas();
    assert!(
        states[0].is_hidden() && states[1].is_exceeded(),
        "{states:?}"
    );
    assert_eq!(
        app.left("everyone", "").await.0,
        [("api-everyone".to_owned(), 7)]
    );
    assert_eq!(
        app.left("user", "alice").await,
        (vec![("api-user".to_owned(), 0)], true)
    );
    let counted = |limits: &Limits| limits.snapshot().rule("api").expect("a rule").let_through;
    assert_eq!(counted(&app.limits), 0, "others were asked");
    // Nobody else is: neither another user nor the same text of another subject.
    for _ in 0..2 {
        assert_eq!(app.call("bob", "there").await, StatusCode::OK);
    }
    assert_eq!(
        app.call("bob", "alice").await,
        StatusCode::TOO_MANY_REQUESTS
    );

    // Where all are let through, nobody is asked.
    app.let_through("address", "here", 3_600).await;
    app.let_through("everyone", "whatever", 3_600).await;
    for _ in 0..20 {
        assert_eq!(app.call("alice", "here").await, StatusCode::OK);
    }
    let passed = app.limits.check("api", keys("alice", "here")).await;
    assert!(passed.expect("let through").decision.is_none());
    assert_eq!(counted(&app.limits), 21);
    assert_eq!(
        app.left("everyone", "").await.0,
        [("api-everyone".to_owned(), 5)]
    );
}

/// One blocked subject denies the request, whoever else is let through, and nobody is charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_blocked_denies_the_whole() {
    let app = App::of(Limits::new([rule()]), open);
    app.let_through("address", "here", 3_600).await;
    app.set("block", "user", "alice", 600).await;
    app.set("block", "user", "carol", 60).await;
    for _ in 0..3 {
        let denied = app.limits.check("api", keys("alice", "here")).await;
        let denied = denied.expect_err("alice is blocked");
        let denial = denied.decision().expect("a denial");
        assert_eq!(denial.source(), Source::Operator);
        assert_eq!(denial.retry_after(), Some(Duration::from_secs(600)));
        assert_eq!(
            app.call("alice", "there").await,
            StatusCode::TOO_MANY_REQUESTS
        );
    }
    let counted = app.limits.snapshot().rule("api").expect("a rule").clone();
    assert_eq!((counted.blocked, counted.let_through), (6, 0));
    let everyone = async || app.left("everyone", "").await.0[0].1;
    let whole = everyone().await;
    assert_eq!(app.call("bob", "there").await, StatusCode::OK);
    assert_eq!(everyone().await, whole - 1);
    // The same text of another subject is not blocked.
    assert_eq!(app.call("bob", "alice").await, StatusCode::OK);
    assert!(app.rows().await.is_empty());
    // Of two blocks the longer one counts.
    app.set("block", "address", "there", 1_200).await;
    let denied = app.limits.check("api", keys("alice", "there")).await;
    let retry_after = denied.expect_err("both are blocked").retry_after();
    assert_eq!(retry_after, Some(Duration::from_secs(1_200)));
}

/// A request that waits does not wait for a subject that is let through meanwhile.
#[tokio::test(start_paused = true)]
async fn what_waits_is_decided_by_the_others_from_then_on() {
    let quota = |seconds| Quota::new(Duration::from_secs(seconds), 1).expect("a quota");
    let subjects = [
        Subject::new("user", Header::new("x-user")).limit(quota(20)),
        Subject::new("address", Header::new("x-address")).limit(quota(40)),
    ];
    let rule = Rule::joint("api", subjects).expect("a rule");
    for (through, after) in [
        (&["user"][..], 40),
        (&["address"], 20),
        (&["user", "address"], 6),
    ] {
        let app = App::of(Limits::new([rule.clone()]), open);
        assert_eq!(app.call("alice", "here").await, StatusCode::OK);
        let began = Instant::now();
        let waits = async {
            assert_eq!(app.call("alice", "here").await, StatusCode::OK);
            began.elapsed().as_secs_f64()
        };
        let operates = async {
            sleep(Duration::from_secs(5)).await;
            for subject in through {
                let key = if *subject == "user" { "alice" } else { "here" };
                app.let_through(subject, key, 600).await;
            }
        };
        let (waited, ()) = tokio::join!(waits, operates);
        assert!(waited <= f64::from(after) + 1.0, "{through:?}: {waited}");
        assert!(waited >= f64::from(after.min(5)), "{through:?}: {waited}");
        if through.len() == 1 {
            assert!(waited >= f64::from(after), "{through:?}: {waited}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subject_is_one_of_the_rule() {
    let plain = Rule::new("plain", [Quota::per_hour(1)]).expect("a rule");
    let app = App::of(Limits::new([rule(), plain]), open);
    let refused = async |what: &str, value: Value| {
        let (status, answer) = app.post(what, value).await;
        (
            status.as_u16(),
            answer["error"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let expected = "subject is missing or wrong, expected one of: user, address, everyone";
    for what in ["key", "reset", "let-through"] {
        for of in [
            json!({"subject": null}),
            json!({"subject": "tenant"}),
            json!({}),
        ] {
            let mut value = json!({"rule": "api", "key": "alice", "seconds": 60});
            value
                .as_object_mut()
                .expect("an object")
                .extend(of.as_object().expect("one").clone());
            assert_eq!(refused(what, value).await, (400, expected.to_owned()));
        }
        let value = json!({"rule": "plain", "subject": "user", "key": "alice", "seconds": 60});
        let (status, error) = refused(what, value).await;
        assert_eq!(
            (status, &*error),
            (400, "the rule has no subjects, expected a key alone")
        );
    }
    assert_eq!(app.limited().await["let_through"], json!([]));

    // What was begun can be ended when the rule is another one, or gone.
    app.let_through("user", "alice", 60).await;
    app.let_through("user", "bob", 60).await;
    let row = async || app.limited().await["let_through"][0]["row"].clone();
    let plain = Rule::new("api", [Quota::per_hour(1)]).expect("a rule");
    app.limits.rules().replace(Rules::from_iter([plain]));
    let of_row = json!({"rule": "api", "row": row().await, "seconds": 60});
    assert_eq!(refused("let-through", of_row).await.0, 400);
    let of_row = json!({"rule": "api", "row": row().await, "seconds": 0});
    assert_eq!(refused("let-through", of_row).await.0, 200);
    app.limits.rules().replace(Rules::default());
    app.let_through("user", "bob", 0).await;
    assert_eq!(app.limited().await["let_through"], json!([]));
}

/// The plan of a subject's last request, and its quotas of that plan alone.
#[tokio::test(start_paused = true)]
async fn one_key_has_the_quotas_of_its_plan() {
    let requests = Policy::new("requests", Quota::per_hour(7)).with_cost(1);
    let plan = [Policy::new("units", Quota::per_hour(50)), requests];
    let plan = plan.map(|policy| policy.of_subject("user"));
    let plan = Quotas::with_policies(plan).expect("quotas");
    let rule = rule().with_plan("pro", plan).expect("a plan");
    let app = App::of(Limits::new([rule]), open);
    sleep(Duration::from_millis(1_100)).await;
    let check = app.limits.check("api", keys("alice", "here"));
    check.cost(50).plan("pro").await.expect("room");
    let (left, has_room) = app.left("user", "alice").await;
    assert_eq!(left, [("units".to_owned(), 0), ("requests".to_owned(), 6)]);
    assert!(!has_room);
    // The plan has no quota of addresses: nothing limits them.
    let of = json!({"rule": "api", "subject": "address", "key": "here", "plan": "pro"});
    let (status, seen) = app.post("key", of).await;
    assert_eq!((status, &seen["quotas"]), (StatusCode::OK, &json!([])));
    assert_eq!(seen["allowed"], true);
}

mod fleet {
    use kit::Redis;
    use tidegate::Resilient;

    use super::*;

    fn app(redis: &Redis, rule: Rule) -> App {
        let store = Resilient::redis(&*redis.url, "shop").expect("an address");
        let store = store.timeout(Duration::from_secs(20));
        App::of(Limits::new([rule]).store(store), open)
    }

    async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Another process shows the rows, and obeys. A process that knows no subjects, as one of an
    /// earlier version or with an earlier file, lets nobody through.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_fleet_obeys_by_subject() {
        let redis = Redis::start();
        let (one, other) = (app(&redis, rule()), app(&redis, rule()));
        let plain = Rule::new("api", [Quota::per_hour(1)]).expect("a rule");
        let plain = app(&redis, plain.with_key(Header::new("x-user")));
        for _ in 0..3 {
            one.call("alice", "here").await;
            plain.call("alice", "here").await;
            plain.call("user>alice", "here").await;
        }
        let alice = r#""api" "user" "alice" 1"#.to_owned();
        until("a row", async || other.rows().await.contains(&alice)).await;
        let rows = other.limited().await["rows"].clone();
        let mut rows = rows.as_array().expect("rows").iter();
        let row = rows.find(|row| row["subject"] == "user").expect("a row")["row"].clone();

        // The other process reads the key from the report of the first one.
        let of_row = |seconds: u64| json!({"rule": "api", "row": row, "seconds": seconds});
        let (_, seen) = other.post("key", of_row(0)).await;
        assert_eq!(
            (&seen["subject"], &seen["key"]),
            (&json!("user"), &json!("alice"))
        );
        let (status, _) = other.post("let-through", of_row(600)).await;
        assert_eq!(status, StatusCode::OK);
        until("let through", async || {
            one.call("alice", "there").await == StatusCode::OK
        })
        .await;
        let listed = async || plain.limited().await["let_through"][0].clone();
        until("the list", async || listed().await["subject"] == "user").await;
        for user in ["alice", "user>alice", "user"] {
            plain.call(user, "here").await;
            let status = plain.call(user, "here").await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{user}");
        }
        let mut connection = redis.connection();
        let list: Vec<String> = redis::cmd("ZRANGE")
            .arg("{shop:CurrentLimiter:~fleet}:let-through")
            .arg(0)
            .arg(-1)
            .query(&mut connection)
            .expect("the list");
        assert_eq!(list, ["user>alice 3 api"]);

        assert_eq!(other.post("let-through", of_row(0)).await.0, StatusCode::OK);
        until("limited again", async || {
            one.limited().await["let_through"] == json!([])
        })
        .await;
        let status = one.call("alice", "elsewhere").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            other.post("reset", of_row(0)).await.1,
            json!({"found": true})
        );
        // The first process may have kept the denial for a moment.
        until("reset", async || {
            one.call("alice", "elsewhere").await == StatusCode::OK
        })
        .await;
    }
}
