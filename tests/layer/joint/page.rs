//! The page of a joint rule: its rows and its operations are about one subject.

use std::ops::Deref;

use kit::page;
use kit::page_steps::play;
use tidegate::Page;

use super::{address, everyone, fields, keys, rule, user};
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

    /// Plays steps, in which users ask as `alice@here`.
    async fn play(&self, steps: &str) {
        play(&[("", &self.0)], by, steps).await;
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
}

/// The request of a user from an address.
fn by(user_at_address: &str) -> Request<Body> {
    let (user, address) = user_at_address.split_once('@').expect("both");
    request("/api", &fields(user, address))
}

fn open(page: Page) -> Page {
    page.allow_changes().show_keys()
}

/// Denied are the subjects that have no room, each by itself, also those that are hidden.
#[tokio::test(start_paused = true)]
async fn rows_are_of_the_subjects_that_denied() {
    let app = App::open(rule());
    app.play("wait 1100; ask alice@here x3; ask alice@there")
        .await;
    let alice = r#""api" "user" "alice" 2"#;
    assert_eq!(app.rows().await, [alice]);
    app.play("ask bob@here x2").await;
    let here = r#""api" "address" "here" 1"#;
    assert_eq!(app.rows().await, [here, alice]);
    for at in 0..8 {
        app.play(&format!("ask @h{at}")).await;
    }
    let everyone = r#""api" "everyone" "" 1"#;
    assert_eq!(app.rows().await, [here, everyone, alice]);

    // A reset of one forgets its row, and its count alone.
    app.play(r#"reset api>address/here = {"found": true}"#)
        .await;
    assert_eq!(app.rows().await, [everyone, alice]);
    let steps = r#"
        key api>address/here; /subject = "address"; /allowed = true
        /quotas # 1; /quotas/0/name = "secret"; /quotas/0/remaining = 3
        key api>user/alice; /subject = "user"; /allowed = false
        /quotas # 1; /quotas/0/name = "api-user"; /quotas/0/remaining = 0
        key api>everyone/; /subject = "everyone"; /allowed = false
        /quotas # 1; /quotas/0/name = "api-everyone"; /quotas/0/remaining = 0"#;
    app.play(steps).await;
}

/// Of two subjects that deny a request, each has the end of its own limit.
#[tokio::test(start_paused = true)]
async fn a_row_ends_with_the_limit_of_its_subject() {
    let subjects = [user(quota(2, 200 * SECOND)), everyone(2)];
    let rule = Rule::joint("api", subjects).expect("a rule");
    let app = App::open(rule);
    app.play("wait 1100; ask alice@ x3; wait 1000").await;
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
    let bearer = |token: &str| request("/api", &format!("authorization: Bearer {token}"));
    let steps = r#"
        wait 1100; ask alices-secret x2 = 200 429
        limited; . lacks secret; . lacks #13a5ebd9bb9e3a6f
        /rows/0/subject = "user"; /rows/0/key = null; keep row /rows/0/row
        key {"rule": "api", "row": $row, "seconds": 0}
        /subject = "user"; /quotas/0/remaining = 0
        // The text of the secret is that of the same key.
        key {"rule": "api", "subject": "user", "key": "alices-secret"}; /row = $row
        let-through {"rule": "api", "row": $row, "seconds": 60}; ask alices-secret = 200
        limited /let_through/0; /row = $row; /subject = "user"
        let-through {"rule": "api", "row": $row, "seconds": 0}; ask alices-secret = 429
        reset {"rule": "api", "row": $row, "seconds": 0} = {"found": true}; ask alices-secret = 200"#;
    play(&[("", &app.0)], bearer, steps).await;
}

/// It is as if the request had no such key: the others decide, and are charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_let_through_is_left_out() {
    let app = App::open(rule());
    let steps =
        "ask alice@here x3 = 200 200 429; let-through api>user/alice 3600; ask alice@here = 200";
    app.play(steps).await;
    let denied = app.limits.check("api", keys("alice", "here")).await;
    let denied = denied.expect_err("the address has no room");
    let states = denied.decision().expect("a denial").quotas();
    let hidden = states[0].is_hidden() && states[1].is_exceeded();
    assert!(hidden, "{states:?}");
    let through = || counted(&app.limits, "api").let_through;
    assert_eq!(through(), 0, "others were asked");
    let steps = r#"
        key api>everyone/; /quotas # 1; /quotas/0/name = "api-everyone"; /quotas/0/remaining = 7
        /allowed = true
        key api>user/alice; /quotas # 1; /quotas/0/name = "api-user"; /quotas/0/remaining = 0
        /subject = "user"; /allowed = true
        // Nobody else is: neither another user nor the same text of another subject.
        ask bob@there x2 = 200; ask bob@alice = 429
        // Where all are let through, nobody is asked.
        let-through api>address/here 3600; let-through api>everyone/whatever 3600
        ask alice@here x20 = 200"#;
    app.play(steps).await;
    let passed = app.limits.check("api", keys("alice", "here")).await;
    assert!(passed.expect("let through").decision.is_none());
    assert_eq!(through(), 21);
    app.play("key api>everyone/; /quotas/0/remaining = 5; /allowed = true")
        .await;
}

/// One blocked subject denies the request, whoever else is let through, and nobody is charged.
#[tokio::test(start_paused = true)]
async fn a_subject_that_is_blocked_denies_the_whole() {
    let app = App::open(rule());
    let steps =
        "let-through api>address/here 3600; block api>user/alice 600; block api>user/carol 60";
    app.play(steps).await;
    let denied = async |user, address| {
        let denied = app.limits.check("api", keys(user, address)).await;
        denied.expect_err("it is blocked")
    };
    for _ in 0..3 {
        let denied = denied("alice", "here").await;
        let denial = denied.decision().expect("a denial");
        assert_eq!(denial.source(), Source::Operator);
        assert_eq!(denial.retry_after(), Some(600 * SECOND));
        app.play("ask alice@there = 429").await;
    }
    let counted = counted(&app.limits, "api");
    assert_eq!((counted.blocked, counted.let_through), (6, 0));
    let steps = r#"
        key api>everyone/; /quotas/0/remaining = 10; ask bob@there = 200
        key api>everyone/; /quotas/0/remaining = 9
        // The same text of another subject is not blocked.
        ask bob@alice = 200; wait 1000; limited; /rows = []
        // Of two blocks the longer one counts.
        block api>address/there 1200"#;
    app.play(steps).await;
    let retry_after = denied("alice", "there").await.retry_after();
    assert_eq!(retry_after, Some(1_200 * SECOND));
}

/// A request that waits does not wait for a subject that is let through meanwhile.
#[tokio::test(start_paused = true)]
async fn what_waits_is_decided_by_the_others_from_then_on() {
    let subjects = [user(quota(1, 20 * SECOND)), address(quota(1, 40 * SECOND))];
    let rule = Rule::joint("api", subjects).expect("a rule");
    for (through, after) in [
        (&["user/alice"][..], 40),
        (&["address/here"], 20),
        (&["user/alice", "address/here"], 6),
    ] {
        let app = App::open(rule.clone());
        app.play("ask alice@here = 200").await;
        let began = Instant::now();
        let waits = async {
            app.play("ask alice@here = 200").await;
            began.elapsed().as_secs_f64()
        };
        let operates = async {
            sleep(5 * SECOND).await;
            for who in through {
                app.play(&format!("let-through api>{who} 600")).await;
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
    // What was begun can be ended when the rule is another one, or gone.
    let steps = r#"
        limited; /let_through = []
        let-through api>user/alice 60; let-through api>user/bob 60"#;
    app.play(steps).await;
    let plain = Rules::from_iter([per_hour("api", 1)]);
    app.limits.rules().replace(plain);
    for (seconds, expected) in [(60, 400), (0, 200)] {
        let row = &app.view("limited").await["let_through"][0]["row"];
        let of_row = json!({"rule": "api", "row": row, "seconds": seconds});
        assert_eq!(refused("let-through", of_row).await.0, expected);
    }
    app.limits.rules().replace(Rules::default());
    app.play("let-through api>user/bob 0; limited; /let_through = []")
        .await;
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
    let steps = r#"
        key api>user/alice; /subject = "user"; /allowed = false; /quotas # 2
        /quotas/0/name = "units"; /quotas/0/remaining = 0
        /quotas/1/name = "requests"; /quotas/1/remaining = 6
        // The plan leaves addresses without quotas: nothing limits them.
        key api>address/here {"plan": "pro"}; /quotas = []; /allowed = true"#;
    app.play(steps).await;
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
        one.play("ask alice@here x3").await;
        plain.play("ask alice@here x3").await;
        plain.play("ask user>alice@here x3").await;
        let alice = r#""api" "user" "alice" 1"#.to_owned();
        eventually("a row", async || other.rows().await.contains(&alice)).await;
        let rows = other.view("limited").await["rows"].clone();
        let mut rows = rows.as_array().expect("rows").iter();
        let row = rows.find(|row| row["subject"] == "user").expect("a row")["row"].clone();

        // The other process reads the key from the report of the first one.
        let of_row = |seconds: u64| json!({"rule": "api", "row": row, "seconds": seconds});
        let seen = other.done("key", of_row(0)).await;
        let expected = (&json!("user"), &json!("alice"));
        assert_eq!((&seen["subject"], &seen["key"]), expected);
        other.done("let-through", of_row(600)).await;
        let is_ok = async |who: &str| one.send(by(who)).await.status == 200;
        eventually("let through", async || is_ok("alice@there").await).await;
        let steps = r#"
            until limited /let_through/0/subject = "user"
            ask alice@here; ask alice@here = 429; ask user>alice@here; ask user>alice@here = 429
            ask user@here; ask user@here = 429"#;
        plain.play(steps).await;
        let list: Vec<String> = redis::cmd("ZRANGE")
            .arg("{shop:CurrentLimiter:~fleet}:let-through")
            .arg(&[0, -1])
            .query(&mut redis.connection())
            .expect("the list");
        assert_eq!(list, ["user>alice 3 api"]);

        other.done("let-through", of_row(0)).await;
        one.play("until limited /let_through = []; ask alice@elsewhere = 429")
            .await;
        let reset = other.done("reset", of_row(0)).await;
        assert_eq!(reset, json!({"found": true}));
        // The first process may have kept the denial for a moment.
        eventually("reset", async || is_ok("alice@elsewhere").await).await;
    }
}
