//! The page of a joint rule: its rows and its operations are about one subject.

use std::ops::Deref;

use kit::page;
use tidegate::Page;

use super::{address, call, everyone, keys, rule, user};
use crate::*;

/// An app of the rule `api` with the page.
struct App(page::App);

impl Deref for App {
    type Target = page::App;

    fn deref(&self) -> &page::App {
        &self.0
    }
}

impl App {
    fn of(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        let layer = limits.layer("api").wait(100 * SECOND);
        let router = Router::new()
            .route("/api", any(async || "1").layer(layer))
            .nest_service("/limits", page(limits.page()).router());
        Self(page::App { limits, router })
    }

    fn open(rule: Rule) -> Self {
        Self::of(Limits::new([rule]), open)
    }

    async fn call(&self, user: &str, address: &str) -> StatusCode {
        call(&self.router, user, address).await.status()
    }

    /// Rule, subject, key and denials of each row, in alphabetical order.
    async fn rows(&self) -> Vec<String> {
        // A view is made once a second.
        sleep(SECOND).await;
        let limited = self.view("limited").await;
        let rows = limited["rows"].as_array().expect("rows").iter();
        let names = ["rule", "subject", "key", "denials"];
        let row = |row: &Value| names.map(|name| row[name].to_string()).join(" ");
        let mut rows: Vec<_> = rows.map(row).collect();
        rows.sort();
        rows
    }

    /// Those that are let through.
    async fn listed(&self) -> Value {
        self.view("limited").await["let_through"].clone()
    }

    async fn set(&self, what: &str, subject: &str, key: &str, seconds: u64) {
        let one = json!({"rule": "api", "subject": subject, "key": key, "seconds": seconds});
        self.done(what, one).await;
    }

    /// What is left of each quota of a subject, and whether a request has room.
    async fn left(&self, subject: &str, key: &str) -> (Vec<(String, u64)>, bool) {
        let of = json!({"rule": "api", "subject": subject, "key": key});
        let seen = self.done("key", of).await;
        assert_eq!(seen["subject"], subject);
        let quotas = seen["quotas"].as_array().expect("quotas").iter();
        let quotas = quotas.map(|quota| {
            let name = quota["name"].as_str().expect("a name").to_owned();
            (name, quota["remaining"].as_u64().expect("a number"))
        });
        (quotas.collect(), seen["allowed"] == true)
    }
}

/// What [`App::left`] finds of a subject of one quota.
fn left(name: &str, units: u64) -> (Vec<(String, u64)>, bool) {
    (vec![(name.to_owned(), units)], units > 0)
}

fn open(page: Page) -> Page {
    page.allow_changes().show_keys()
}

/// Denied are the subjects that have no room, each by itself, also those that are hidden.
#[tokio::test(start_paused = true)]
async fn rows_are_of_the_subjects_that_denied() {
    let app = App::open(rule());
    sleep(millis(1_100)).await;
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
    assert_eq!(app.done("reset", bob).await, json!({"found": true}));
    assert_eq!(app.rows().await, [everyone, alice]);
    assert_eq!(app.left("address", "here").await, left("secret", 3));
    assert_eq!(app.left("user", "alice").await, left("api-user", 0));
    assert_eq!(app.left("everyone", "").await, left("api-everyone", 0));
}

/// Of two subjects that deny a request, each has the end of its own limit.
#[tokio::test(start_paused = true)]
async fn a_row_ends_with_the_limit_of_its_subject() {
    let subjects = [user(quota(2, 200 * SECOND)), everyone(2)];
    let rule = Rule::joint("api", subjects).expect("a rule");
    let app = App::open(rule);
    sleep(millis(1_100)).await;
    for _ in 0..3 {
        app.call("alice", "").await;
    }
    sleep(SECOND).await;
    let limited = app.view("limited").await;
    let rows = limited["rows"].as_array().expect("rows").iter();
    let ends = rows.map(|row| (row["subject"].as_str(), row["until_in_s"].as_f64()));
    let ends: HashMap<_, _> = ends.collect();
    for (subject, end) in [("user", 200.0), ("everyone", 3_600.0)] {
        let seconds = ends[&Some(subject)].expect("a number");
        assert!((end - 3.0..=end).contains(&seconds), "{subject}: {seconds}");
    }
}

/// Without `show_keys` a row has no key, and helps: it knows its subject.
#[tokio::test(start_paused = true)]
async fn a_row_is_helped_by_its_hash() {
    let user = Subject::new("user", Bearer).limit(Quota::per_hour(1));
    let rule = Rule::joint("api", [user, everyone(9)]).expect("a rule");
    let app = App::of(Limits::new([rule]), Page::allow_changes);
    sleep(millis(1_100)).await;
    let call = async || {
        let request = request("/api", "authorization: Bearer alices-secret");
        kit::http::call(&app.router, request).await.status()
    };
    call().await;
    assert_eq!(call().await, DENIED);
    let limited = app.view("limited").await;
    let row = &limited["rows"][0];
    let got = (row["subject"].as_str(), &row["key"]);
    assert_eq!(got, (Some("user"), &Value::Null));
    for told in ["secret", "#13a5ebd9bb9e3a6f"] {
        assert!(!limited.to_string().contains(told), "{limited}");
    }
    let of_row = |seconds: u64| json!({"rule": "api", "row": row["row"], "seconds": seconds});
    let seen = app.done("key", of_row(0)).await;
    assert_eq!(seen["subject"], "user");
    assert_eq!(seen["quotas"][0]["remaining"], 0);
    // The text of the secret is that of the same key.
    let typed = json!({"rule": "api", "subject": "user", "key": "alices-secret"});
    assert_eq!(app.done("key", typed).await["row"], row["row"]);

    app.done("let-through", of_row(60)).await;
    assert_eq!(call().await, OK);
    let listed = &app.listed().await[0];
    assert_eq!(listed["row"], row["row"]);
    assert_eq!(listed["subject"], "user");
    app.done("let-through", of_row(0)).await;
    assert_eq!(call().await, DENIED);
    assert_eq!(app.done("reset", of_row(0)).await, json!({"found": true}));
    assert_eq!(call().await, OK);
}

/// It is as if the request had no such key: the others decide, and are charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_let_through_is_left_out() {
    let app = App::open(rule());
    for _ in 0..2 {
        app.call("alice", "here").await;
    }
    assert_eq!(app.call("alice", "here").await, DENIED);
    app.set("let-through", "user", "alice", 3_600).await;
    assert_eq!(app.call("alice", "here").await, OK);
    let denied = app.limits.check("api", keys("alice", "here")).await;
    let denied = denied.expect_err("the address has no room");
    let states = denied.decision().expect("a denial").quotas();
    let hidden = states[0].is_hidden() && states[1].is_exceeded();
    assert!(hidden, "{states:?}");
    assert_eq!(app.left("everyone", "").await, left("api-everyone", 7));
    let (of_alice, _) = left("api-user", 0);
    assert_eq!(app.left("user", "alice").await, (of_alice, true));
    let through = || counted(&app.limits, "api").let_through;
    assert_eq!(through(), 0, "others were asked");
    // Nobody else is: neither another user nor the same text of another subject.
    for _ in 0..2 {
        assert_eq!(app.call("bob", "there").await, OK);
    }
    assert_eq!(app.call("bob", "alice").await, DENIED);

    // Where all are let through, nobody is asked.
    app.set("let-through", "address", "here", 3_600).await;
    app.set("let-through", "everyone", "whatever", 3_600).await;
    for _ in 0..20 {
        assert_eq!(app.call("alice", "here").await, OK);
    }
    let passed = app.limits.check("api", keys("alice", "here")).await;
    assert!(passed.expect("let through").decision.is_none());
    assert_eq!(through(), 21);
    assert_eq!(app.left("everyone", "").await, left("api-everyone", 5));
}

/// One blocked subject denies the request, whoever else is let through, and nobody is charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_blocked_denies_the_whole() {
    let app = App::open(rule());
    app.set("let-through", "address", "here", 3_600).await;
    app.set("block", "user", "alice", 600).await;
    app.set("block", "user", "carol", 60).await;
    for _ in 0..3 {
        let denied = app.limits.check("api", keys("alice", "here")).await;
        let denied = denied.expect_err("alice is blocked");
        let denial = denied.decision().expect("a denial");
        assert_eq!(denial.source(), Source::Operator);
        assert_eq!(denial.retry_after(), Some(600 * SECOND));
        assert_eq!(app.call("alice", "there").await, DENIED);
    }
    let counted = counted(&app.limits, "api");
    assert_eq!((counted.blocked, counted.let_through), (6, 0));
    let everyone = async || app.left("everyone", "").await.0[0].1;
    let whole = everyone().await;
    assert_eq!(app.call("bob", "there").await, OK);
    assert_eq!(everyone().await, whole - 1);
    // The same text of another subject is not blocked.
    assert_eq!(app.call("bob", "alice").await, OK);
    assert!(app.rows().await.is_empty());
    // Of two blocks the longer one counts.
    app.set("block", "address", "there", 1_200).await;
    let denied = app.limits.check("api", keys("alice", "there")).await;
    let retry_after = denied.expect_err("both are blocked").retry_after();
    assert_eq!(retry_after, Some(1_200 * SECOND));
}

/// A request that waits does not wait for a subject that is let through meanwhile.
#[tokio::test(start_paused = true)]
async fn what_waits_is_decided_by_the_others_from_then_on() {
    let subjects = [user(quota(1, 20 * SECOND)), address(quota(1, 40 * SECOND))];
    let rule = Rule::joint("api", subjects).expect("a rule");
    for (through, after) in [
        (&["user"][..], 40),
        (&["address"], 20),
        (&["user", "address"], 6),
    ] {
        let app = App::open(rule.clone());
        assert_eq!(app.call("alice", "here").await, OK);
        let began = Instant::now();
        let waits = async {
            assert_eq!(app.call("alice", "here").await, OK);
            began.elapsed().as_secs_f64()
        };
        let operates = async {
            sleep(5 * SECOND).await;
            for subject in through {
                let key = if *subject == "user" { "alice" } else { "here" };
                app.set("let-through", subject, key, 600).await;
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
    let app = App::of(Limits::new([rule(), per_hour("plain", 1)]), open);
    let refused = async |what: &str, value: Value| {
        let answer = app.post(what, value).await;
        let error = answer.json()["error"].clone();
        (answer.status, error.as_str().unwrap_or_default().to_owned())
    };
    let of_three = "subject is missing or wrong, expected one of: user, address, everyone";
    let of_none = "the rule has no subjects, expected a key alone";
    for what in ["key", "reset", "let-through"] {
        for (rule, subject, expected) in [
            ("api", Some(Value::Null), of_three),
            ("api", Some(json!("tenant")), of_three),
            ("api", None, of_three),
            ("plain", Some(json!("user")), of_none),
        ] {
            let mut value = json!({"rule": rule, "key": "alice", "seconds": 60});
            if let Some(subject) = subject {
                value["subject"] = subject;
            }
            assert_eq!(refused(what, value).await, (400, expected.to_owned()));
        }
    }
    assert_eq!(app.listed().await, json!([]));

    // What was begun can be ended when the rule is another one, or gone.
    app.set("let-through", "user", "alice", 60).await;
    app.set("let-through", "user", "bob", 60).await;
    let plain = Rules::from_iter([per_hour("api", 1)]);
    app.limits.rules().replace(plain);
    for (seconds, expected) in [(60, 400), (0, 200)] {
        let row = &app.listed().await[0]["row"];
        let of_row = json!({"rule": "api", "row": row, "seconds": seconds});
        assert_eq!(refused("let-through", of_row).await.0, expected);
    }
    app.limits.rules().replace(Rules::default());
    app.set("let-through", "user", "bob", 0).await;
    assert_eq!(app.listed().await, json!([]));
}

/// The plan of a subject's last request, and its quotas of that plan alone.
#[tokio::test(start_paused = true)]
async fn one_key_has_the_quotas_of_its_plan() {
    let requests = Policy::new("requests", Quota::per_hour(7)).with_cost(1);
    let plan = [Policy::new("units", Quota::per_hour(50)), requests];
    let plan = plan.map(|policy| policy.with_subject("user")).into_iter();
    let all = Policy::new("all", Quota::per_hour(900)).with_subject("everyone");
    let plan = Quotas::with_policies(plan.chain([all])).expect("quotas");
    let plan = plan.unlimited(["address"]);
    let rule = rule().with_plan("pro", plan).expect("a plan");
    let app = App::open(rule);
    sleep(millis(1_100)).await;
    let check = app.limits.check("api", keys("alice", "here"));
    check.cost(50).plan("pro").await.expect("room");
    let (left, has_room) = app.left("user", "alice").await;
    assert_eq!(left, [("units".to_owned(), 0), ("requests".to_owned(), 6)]);
    assert!(!has_room);
    // The plan leaves addresses without quotas: nothing limits them.
    let of = json!({"rule": "api", "subject": "address", "key": "here", "plan": "pro"});
    let seen = app.done("key", of).await;
    assert_eq!(seen["quotas"], json!([]));
    assert_eq!(seen["allowed"], true);
}

mod fleet {
    use kit::{PATIENT, Redis, eventually};
    use tidegate::Resilient;

    use super::*;

    fn app(redis: &Redis, rule: Rule) -> App {
        let store = Resilient::redis(&*redis.url, "shop").expect("an address");
        App::of(Limits::new([rule]).store(store.timeout(PATIENT)), open)
    }

    /// Another process shows the rows, and obeys. A process that knows no subjects, as one of an
    /// earlier version or with an earlier file, lets nobody through.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_fleet_obeys_by_subject() {
        let redis = Redis::start();
        let (one, other) = (app(&redis, rule()), app(&redis, rule()));
        let plain = per_hour("api", 1).with_key(Header::new("x-user"));
        let plain = app(&redis, plain);
        for _ in 0..3 {
            one.call("alice", "here").await;
            plain.call("alice", "here").await;
            plain.call("user>alice", "here").await;
        }
        let alice = r#""api" "user" "alice" 1"#.to_owned();
        eventually("a row", async || other.rows().await.contains(&alice)).await;
        let rows = other.view("limited").await["rows"].clone();
        let mut rows = rows.as_array().expect("rows").iter();
        let row = rows.find(|row| row["subject"] == "user").expect("a row")["row"].clone();

        // The other process reads the key from the report of the first one.
        let of_row = |seconds: u64| json!({"rule": "api", "row": row, "seconds": seconds});
        let seen = other.done("key", of_row(0)).await;
        assert_eq!(seen["subject"], "user");
        assert_eq!(seen["key"], "alice");
        other.done("let-through", of_row(600)).await;
        let is_ok = async |address: &str| one.call("alice", address).await == OK;
        eventually("let through", async || is_ok("there").await).await;
        let listed = async || plain.listed().await[0]["subject"] == "user";
        eventually("the list", listed).await;
        for user in ["alice", "user>alice", "user"] {
            plain.call(user, "here").await;
            assert_eq!(plain.call(user, "here").await, DENIED, "{user}");
        }
        let list: Vec<String> = redis::cmd("ZRANGE")
            .arg("{shop:CurrentLimiter:~fleet}:let-through")
            .arg(&[0, -1])
            .query(&mut redis.connection())
            .expect("the list");
        assert_eq!(list, ["user>alice 3 api"]);

        other.done("let-through", of_row(0)).await;
        let is_empty = async || one.listed().await == json!([]);
        eventually("limited again", is_empty).await;
        assert_eq!(one.call("alice", "elsewhere").await, DENIED);
        let reset = other.done("reset", of_row(0)).await;
        assert_eq!(reset, json!({"found": true}));
        // The first process may have kept the denial for a moment.
        eventually("reset", async || is_ok("elsewhere").await).await;
    }
}
