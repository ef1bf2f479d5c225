//! A key that is let through: obeyed everywhere, not charged, and over in time.

use tidegate::Resilient;
use tidegate::rule::Plan;

use super::*;

/// "Obeys within 2 s".
pub(super) const OBEYS: Duration = Duration::from_secs(2);

/// Until a request of this user gets this status; at most as long as is promised.
pub(super) async fn obeys(app: &App, name: &str, status: u16) -> Duration {
    let began = Instant::now();
    while app.search(name).await != status {
        assert!(began.elapsed() < OBEYS + SLACK, "not {status} for {name}");
        sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

pub(super) async fn two(server: &Redis) -> [App; 2] {
    let apps = [
        App::on(server, Page::allow_changes),
        App::on(server, Page::allow_changes),
    ];
    for app in &apps {
        app.in_fleet().await;
    }
    apps
}

/// In layers and in `check`, where the denial is cached, and in a process without a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_obey_within_two_seconds_and_charge_nothing() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    let joined = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
    joined.join_fleet();
    for app in [&here, &there] {
        app.use_up("alice").await;
    }
    assert!(joined.check("search", user("alice")).await.is_err());
    let ends = here
        .let_through("alice", 600)
        .await
        .expect_ok("let through");
    assert_eq!(ends, json!({"ends_in_s": 600.0}));
    let took = [
        obeys(&here, "alice", 200).await,
        obeys(&there, "alice", 200).await,
    ];
    let began = Instant::now();
    while joined.check("search", user("alice")).await.is_err() {
        assert!(began.elapsed() < OBEYS + SLACK);
        sleep(Duration::from_millis(20)).await;
    }
    println!("obeyed after {took:?}");

    let before = there
        .limits
        .snapshot()
        .rule("search")
        .expect("a rule")
        .clone();
    for _ in 0..50 {
        assert_eq!(there.search("alice").await, 200);
        let checked = there
            .limits
            .check("search", user("alice"))
            .cost(1_000)
            .await;
        assert!(checked.expect("whatever it costs").decision.is_none());
        let joined = joined
            .check("search", user("alice"))
            .await
            .expect("let through");
        assert!(joined.decision.is_none());
    }
    assert_eq!(there.used("alice").await, 2, "nothing is charged");
    let after = there
        .limits
        .snapshot()
        .rule("search")
        .expect("a rule")
        .clone();
    assert_eq!(after.let_through - before.let_through, 100);
    use tidegate::metrics::DecisionOutcome::Allowed;
    assert_eq!(
        after.decisions(Allowed),
        before.decisions(Allowed),
        "counted apart"
    );
    // Nobody else is let through: not another key, not a part of it, not another rule.
    for name in ["alic", "alice2", "Alice", "bob"] {
        there.use_up(name).await;
    }
    let answer = there
        .post("key", json!({"rule": "search", "key": "alice"}))
        .await;
    let left = answer.expect_ok("look it up");
    let ends = left["let_through_in_s"]
        .as_f64()
        .expect("it is let through");
    assert!((500.0..=600.0).contains(&ends), "{left}");

    // It ends early, everywhere.
    there.let_through("alice", 0).await.expect_ok("ended");
    obeys(&there, "alice", 429).await;
    obeys(&here, "alice", 429).await;
    let began = Instant::now();
    while joined.check("search", user("alice")).await.is_ok() {
        assert!(began.elapsed() < OBEYS + SLACK);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_by_itself_in_all_processes() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    here.use_up("alice").await;
    let began = Instant::now();
    here.let_through("alice", 8).await.expect_ok("let through");
    obeys(&there, "alice", 200).await;
    if began.elapsed() < Duration::from_secs(7) {
        assert_eq!(here.search("alice").await, 200);
    }
    sleep(Duration::from_secs(8).saturating_sub(began.elapsed())).await;
    for app in [&here, &there] {
        obeys(app, "alice", 429).await;
        app.wait("limited", OBEYS + SLACK, |it| {
            it["let_through"] == json!([])
        })
        .await;
    }
    println!("over after {:?} of 8 s", began.elapsed());
    // A longer one is a longer one, and a shorter one shorter.
    here.let_through("alice", 600)
        .await
        .expect_ok("let through");
    here.let_through("alice", 3).await.expect_ok("shortened");
    sleep(Duration::from_secs(3)).await;
    obeys(&here, "alice", 429).await;
    obeys(&there, "alice", 429).await;
}

/// Two processes fill the list at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_lets_no_more_than_a_thousand_through() {
    let server = Redis::start();
    let apps = two(&server).await;
    let mut accepted = 0;
    for from in (0..1_400).step_by(100) {
        let asked = (from..from + 100).map(async |at| {
            let app = &apps[at % 2];
            app.let_through(&format!("user{at}"), 600).await
        });
        for answer in futures_util::future::join_all(asked).await {
            match answer.status {
                200 => accepted += 1,
                _ => drop(answer.expect_refusal("one more")),
            }
        }
    }
    assert_eq!(accepted, 1_000);
    for app in &apps {
        let full = |it: &Value| it["let_through"].as_array().map(Vec::len) == Some(1_000);
        app.wait("limited", PATIENT, full).await;
    }
}

/// A rule that has left the file while a key of it was let through.
#[tokio::test(start_paused = true)]
async fn a_key_of_a_rule_that_is_gone_can_be_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let rule = |name| format!("[rules.{name}]\nmax-count = 2\nwindow = \"1h\"\n");
    std::fs::write(&file, rule("search") + &rule("gone")).expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let app = App::of(limits.clone(), |page| page.allow_changes().show_keys());
    let body = json!({"rule": "gone", "key": "alice", "seconds": 600});
    app.post("let-through", body).await.expect_ok("let through");
    std::fs::write(&file, rule("search")).expect("is written");
    limits.reload(&file).expect("valid");
    sleep(Duration::from_secs(2)).await;
    let list = app.view("limited").await["let_through"].clone();
    assert_eq!(list[0]["key"], "alice");
    let by_row = json!({"rule": "gone", "row": list[0]["row"], "seconds": 0});
    app.post("let-through", by_row)
        .await
        .expect_ok("it is ended");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(app.view("limited").await["let_through"], json!([]));
}

/// Law 5: a request without its key is not admitted, whichever key is let through.
#[tokio::test(start_paused = true)]
async fn a_request_without_its_key_is_not_let_through() {
    let app = App::new(Page::allow_changes);
    for key in ["", ":", "-"] {
        app.let_through(key, 600).await;
        let answer = app.send(empty(Method::GET, "/search")).await;
        assert_eq!(answer.status, 400, "{key:?}: {answer:?}");
    }
    app.use_up("alice").await;
}

/// A request that waits for units is a request, too.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_let_through() {
    let limits = Limits::new([hourly("search", 2)]).key(Header::new("x-user"));
    let app = App::of(limits, Page::allow_changes);
    let layer = app.limits.layer("search").wait(Duration::from_secs(4_000));
    let router = Router::new().route("/search", get("found").layer(layer));
    app.use_up("alice").await;
    let ask = async || {
        let request = Request::get("/search").header("x-user", "alice");
        let began = Instant::now();
        let answer = send(&router, request.body(Body::empty()).expect("a request")).await;
        (answer.status, began.elapsed())
    };
    let let_through = async {
        sleep(Duration::from_secs(5)).await;
        app.let_through("alice", 600).await.expect_ok("let through");
        assert_eq!(ask().await, (200, Duration::ZERO), "who asks now");
    };
    let ((status, took), ()) = tokio::join!(ask(), let_through);
    assert_eq!(status, 200);
    assert!(took < Duration::from_secs(5) + OBEYS, "after {took:?}");
}

/// In memory: the page's own process, at once.
#[tokio::test(start_paused = true)]
async fn without_redis_the_process_obeys_and_ends_on_time() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    app.let_through("alice", 60).await.expect_ok("let through");
    for _ in 0..59 {
        assert_eq!(app.search("alice").await, 200);
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_millis(1_010)).await;
    assert_eq!(app.search("alice").await, 429);
    app.let_through("alice", 86_400).await.expect_ok("a day");
    sleep(Duration::from_secs(4_000)).await;
    assert_eq!(app.search("alice").await, 200);
}

/// Joined keys, rules without a key, plans, shadow rules, candidates and leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_rule_obeys() {
    let server = Redis::start();
    let file = r#"
        [rules.joined]
        max-count = 1
        window = "1h"
        key = ["header:x-user", "header:x-tenant | everyone"]
        [rules.all]
        max-count = 1
        window = "1h"
        key = "everyone"
        [rules.leased]
        max-count = 20
        window = "1h"
        lease = "50ms"
        [rules.planned]
        max-count = 1
        window = "1h"
        [rules.planned.plans.pro]
        max-count = 2
        window = "1h"
        [rules.shady]
        max-count = 1
        window = "1h"
        shadow = true
        [rules.tried]
        max-count = 20
        window = "1h"
        [rules.tried.shadow]
        max-count = 1
        window = "1h"
    "#;
    let limits = Limits::from_toml(file).expect("valid");
    let limits = limits
        .store(Resilient::bare(store(&server.url, "shop")))
        .key(Header::new("x-user"));
    let mut router = Router::new();
    let paths = ["joined", "all", "leased", "planned", "shady", "tried"];
    for path in paths {
        let layer = limits.layer(path);
        router = router.route(&format!("/{path}"), get(path).layer(layer));
    }
    let page = limits.page().allow_changes().show_keys().router();
    let app = App {
        limits,
        router: router.nest_service("/limits", page),
    };
    app.in_fleet().await;
    let ask = async |path: &str| {
        let request = Request::get(format!("/{path}"))
            .header("x-user", "alice")
            .header("x-tenant", "a:b");
        let mut request = request.body(Body::empty()).expect("a request");
        request.extensions_mut().insert(Plan::new("pro"));
        app.send(request).await
    };
    for (path, key) in [
        ("joined", "alice:header.x-tenant|a%3Ab"),
        ("all", ""),
        ("leased", "alice"),
        ("planned", "alice"),
        ("shady", "alice"),
        ("tried", "alice"),
    ] {
        for _ in 0..3 {
            ask(path).await;
        }
        let body = json!({"rule": path, "key": key, "seconds": 600});
        app.post("let-through", body).await.expect_ok(path);
        let counted = || app.limits.snapshot().rule(path).expect("counted").clone();
        let keys = || {
            let mut admin = server.connection();
            let mut all: Vec<(String, Vec<u8>)> = Vec::new();
            let names: Vec<String> = redis::cmd("KEYS")
                .arg("shop:*")
                .query(&mut admin)
                .expect("names");
            for name in names.into_iter().filter(|name| name.contains(path)) {
                let value = redis::cmd("DUMP")
                    .arg(&name)
                    .query(&mut admin)
                    .expect("a value");
                all.push((name, value));
            }
            all.sort();
            all
        };
        // Leases end, and what is left of them is given back.
        let began = Instant::now();
        let (before, stored) = loop {
            let seen = (counted(), keys());
            sleep(Duration::from_millis(200)).await;
            if seen == (counted(), keys()) {
                break seen;
            }
            assert!(began.elapsed() < PATIENT, "{path} does not come to rest");
        };
        for _ in 0..40 {
            let answer = ask(path).await;
            assert_eq!(
                (answer.status, answer.field("ratelimit")),
                (200, ""),
                "{path}: {answer:?}"
            );
        }
        let after = counted();
        assert_eq!(after.let_through - before.let_through, 40, "{path}");
        assert_eq!(
            after,
            {
                let mut it = before.clone();
                it.let_through += 40;
                it
            },
            "{path} counts apart"
        );
        assert!(stored == keys(), "{path}: nothing in Redis changes");
        let body = json!({"rule": path, "key": key, "seconds": 0});
        app.post("let-through", body).await.expect_ok(path);
    }
}

/// A row that only another process has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_another_process_works_here() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    there.use_up("alice").await;
    let seen = here
        .wait("limited", OBEYS + SLACK, |it| it["rows"] != json!([]))
        .await;
    assert_eq!(seen["of"], "fleet");
    let body = json!({"rule": "search", "row": seen["rows"][0]["row"], "seconds": 60});
    here.post("let-through", &body)
        .await
        .expect_ok("by its row");
    obeys(&there, "alice", 200).await;
    obeys(&here, "alice", 200).await;
    let body = json!({"rule": "search", "row": seen["rows"][0]["row"], "seconds": 0});
    here.post("let-through", &body)
        .await
        .expect_ok("by its row");
    obeys(&there, "alice", 429).await;
    let found = here.post("reset", &body).await.expect_ok("by its row");
    assert_eq!(found, json!({"found": true}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_service_in_the_same_redis_is_untouched() {
    let server = Redis::start();
    let here = App::on(&server, Page::allow_changes);
    let others = ["shop2", "sho", "SHOP", "shop.CurrentLimiter"];
    let others =
        others.map(|name| App::of_service(&server.url, name, |it| it.allow_changes().show_keys()));
    here.in_fleet().await;
    for other in &others {
        other.in_fleet().await;
        other.use_up("alice").await;
    }
    here.use_up("alice").await;
    here.let_through("alice", 60).await.expect_ok("let through");
    obeys(&here, "alice", 200).await;
    sleep(OBEYS + Duration::from_secs(1)).await;
    for other in &others {
        assert_eq!(other.search("alice").await, 429);
        let fleet = other.view("fleet").await;
        assert_eq!(
            fleet["processes"].as_array().map(Vec::len),
            Some(1),
            "{fleet}"
        );
        assert_eq!(other.view("limited").await["let_through"], json!([]));
    }
    here.post("reset", json!({"rule": "search", "key": "alice"}))
        .await
        .expect_ok("reset");
    for other in &others {
        assert_eq!(other.used("alice").await, 2);
    }
}

/// What is known holds until its end; what is new is refused with a 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_gone_what_is_known_holds_until_its_end() {
    let mut server = Redis::start();
    let [here, there] = two(&server).await;
    here.use_up("alice").await;
    here.use_up("bob").await;
    let began = Instant::now();
    let time = Duration::from_secs(12);
    here.let_through("alice", 12).await.expect_ok("let through");
    obeys(&there, "alice", 200).await;
    server.kill();
    while began.elapsed() + Duration::from_millis(500) < time {
        for app in [&here, &there] {
            let status = app.search("alice").await;
            assert!(status == 200 || began.elapsed() >= time, "{status}");
        }
        sleep(Duration::from_millis(100)).await;
    }
    for app in [&here, &there] {
        let answer = app.let_through("bob", 60).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        answer.json();
        let answer = app.let_through("alice", 0).await;
        assert_eq!(answer.status, 503, "an end, too: {answer:?}");
        let answer = app
            .post("reset", json!({"rule": "search", "key": "bob"}))
            .await;
        assert_eq!(answer.status, 503, "{answer:?}");
        let answer = app
            .post("key", json!({"rule": "search", "key": "bob"}))
            .await;
        assert_eq!(answer.status, 503, "{answer:?}");
        let fleet = app.view("fleet").await;
        assert_eq!(fleet["redis_answers"], false);
        assert_eq!(
            fleet["processes"].as_array().map(Vec::len),
            Some(1),
            "{fleet}"
        );
        assert_eq!(fleet["processes"][0]["this"], true);
    }
    sleep((time + Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    for app in [&here, &there] {
        assert_ne!(app.search("alice").await, 200, "it is over");
    }
    server.restart();
    for app in [&here, &there] {
        app.wait("fleet", PATIENT, |it| {
            it["processes"].as_array().map(Vec::len) == Some(2)
        })
        .await;
        app.use_up("bob").await;
    }
    here.let_through("bob", 60)
        .await
        .expect_ok("Redis is there again");
    obeys(&there, "bob", 200).await;
}

/// Redis has lost everything, and what it has now looks as new as what was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_after_a_loss_is_not_taken_for_the_one_before() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    for round in 0..4 {
        let (old, new) = (format!("old{round}"), format!("new{round}"));
        here.let_through(&old, 600).await.expect_ok("let through");
        here.use_up(&new).await;
        obeys(&there, &old, 200).await;
        kit::run(&server, "FLUSHALL");
        here.let_through(&new, 600).await.expect_ok("let through");
        for app in [&here, &there] {
            // Its count is lost, too: it is used up first.
            let body = json!({"rule": "search", "key": old});
            let began = Instant::now();
            loop {
                let left = app.post("key", &body).await.expect_ok("a look");
                if left["let_through_in_s"].is_null() {
                    break;
                }
                assert!(
                    began.elapsed() < OBEYS + SLACK,
                    "the list from before is believed: {left}"
                );
                sleep(Duration::from_millis(50)).await;
            }
            for _ in 0..5 {
                obeys(app, &new, 200).await;
            }
            let one = |it: &Value| it["let_through"].as_array().map(Vec::len) == Some(1);
            app.wait("limited", OBEYS + SLACK, one).await;
        }
        here.let_through(&new, 0).await.expect_ok("ended");
    }
    // Both have the same secret again.
    there.use_up("alice").await;
    let row = async |app: &App| {
        let body = json!({"rule": "search", "key": "alice"});
        app.post("key", body).await.expect_ok("look it up")["row"].clone()
    };
    let began = Instant::now();
    while row(&here).await != row(&there).await {
        assert!(began.elapsed() < PATIENT, "two secrets in one service");
        sleep(Duration::from_millis(100)).await;
    }
}

/// One of the fleet's keys on a server of its own, and two processes.
struct Foreign {
    server: Redis,
    apps: [App; 2],
    name: String,
    /// As the processes keep it.
    kind: String,
}

impl Foreign {
    /// The key whose name ends, but for a process's own number, like this.
    async fn new(end: &str) -> Self {
        let server = Redis::start();
        let apps = two(&server).await;
        for (what, key) in [("let-through", "zoe"), ("block", "yan")] {
            let body = json!({"rule": "search", "key": key, "seconds": 600});
            apps[0].post(what, body).await.expect_ok(what);
        }
        let mut admin = server.connection();
        let names: Vec<String> = redis::cmd("KEYS")
            .arg("*~fleet*")
            .query(&mut admin)
            .expect("names");
        let name = names.into_iter().find(|name| {
            let name =
                name.trim_end_matches(|it: char| it.is_ascii_hexdigit() && !end.ends_with(it));
            name.ends_with(end)
        });
        let name = name.unwrap_or_else(|| panic!("no {end}"));
        let kind = redis::cmd("TYPE")
            .arg(&name)
            .query(&mut admin)
            .expect("a type");
        Self {
            server,
            apps,
            name,
            kind,
        }
    }

    /// Puts this under the name, in place of what is there or beside it.
    fn put(&self, command: &str, values: &[&str], beside: bool) {
        let mut admin = self.server.connection();
        if !beside {
            redis::cmd("DEL")
                .arg(&self.name)
                .exec(&mut admin)
                .expect("is done");
        }
        let mut put = redis::cmd(command);
        let _ = put.arg(&self.name).arg(values).exec(&mut admin);
    }

    /// Requests are decided, and the page answers.
    async fn works(&self, case: &str) {
        let [here, there] = &self.apps;
        let began = Instant::now();
        let mut decided = 0;
        while began.elapsed() < Duration::from_millis(1_200) {
            for app in [here, there] {
                let status = app.search(&format!("user{}", decided % 50)).await;
                assert!(status == 200 || status == 429, "{case}: {status}");
                decided += 1;
                for view in GET_VIEWS {
                    app.view(view).await;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        for what in ["let-through", "block", "key", "reset"] {
            let body = json!({"rule": "search", "key": "bob", "seconds": 1});
            let answer = here.post(what, body).await;
            assert!(
                [200, 503].contains(&answer.status),
                "{what} {case}: {answer:?}"
            );
            answer.json();
        }
    }

    /// The fleet is whole, and a key can be let through.
    async fn heals(&self, most: Duration) -> bool {
        let [here, there] = &self.apps;
        let began = Instant::now();
        while began.elapsed() < most {
            let fleet = there.view("fleet").await;
            let both = fleet["processes"].as_array().map(Vec::len) == Some(2);
            let answer = here.let_through("carol", 1).await;
            if fleet["redis_answers"] == true && both && answer.status == 200 {
                return true;
            }
            sleep(Duration::from_millis(200)).await;
        }
        false
    }

    async fn check(&self) {
        let huge = "x".repeat(4_000_000);
        let text = |text| ("SET", vec![text], false);
        let mut cases = vec![
            text("garbage"),
            text(""),
            text(&huge),
            text("-1"),
            ("RPUSH", vec!["a", "b"], false),
            ("HSET", vec!["a", "b"], false),
            ("ZADD", vec!["1", "a", "-inf", "b", "2", ""], false),
        ];
        match &*self.kind {
            "hash" => cases.push(("HSET", vec!["garbage", &huge, "", "", "\0", "\n"], true)),
            "zset" => cases.push(("ZADD", vec!["1", "garbage", "-inf", "", "2", &huge], true)),
            _ => {}
        }
        for (command, values, beside) in cases {
            let short: Vec<_> = values.iter().map(|it| it.get(..20).unwrap_or(it)).collect();
            let case = format!("{} {command} {short:?}", self.name);
            self.put(command, &values, beside);
            let kind: String = redis::cmd("TYPE")
                .arg(&self.name)
                .query(&mut self.server.connection())
                .expect("a type");
            self.works(&case).await;
            // A value of another type is an error until it is gone.
            if kind != self.kind && kind != "none" {
                let mut admin = self.server.connection();
                redis::cmd("DEL")
                    .arg(&self.name)
                    .exec(&mut admin)
                    .expect("is done");
            }
            assert!(self.heals(PATIENT).await, "{case}");
        }
        let [here, there] = &self.apps;
        there.use_up("last").await;
        here.let_through("last", 60).await.expect_ok("let through");
        obeys(there, "last", 200).await;
    }
}

/// Somebody else's values under the names of the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_values_under_the_fleets_names_break_nothing_and_heal() {
    let ends = [
        ":processes",
        ":secret",
        ":version",
        ":let-through",
        ":blocked",
        ":process:",
    ];
    let checks = ends.map(async |end| Foreign::new(end).await.check().await);
    futures_util::future::join_all(checks).await;
}

/// Law 10: a value of the right type that is no version is no error for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_beyond_every_number_heals() {
    let foreign = Foreign::new(":version").await;
    for version in ["9223372036854775807", "99999999999999999999999999"] {
        foreign.put("SET", &[version], false);
        foreign.works(version).await;
        assert!(foreign.heals(Duration::from_secs(10)).await, "{version}");
    }
}

/// Law 10: entries that no process of this version has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_entries_of_the_list_are_in_nobodys_way() {
    foreign_entry("9000000000000").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_entry_that_never_ends_is_in_nobodys_way() {
    foreign_entry("+inf").await;
}

/// With an end that is to come.
async fn foreign_entry(end: &str) {
    let foreign = Foreign::new(":let-through").await;
    let [here, there] = &foreign.apps;
    there.use_up("zoe2").await;
    foreign.put("ZADD", &[end, "garbage", end, ""], true);
    sleep(OBEYS).await;
    here.let_through("alice", 60)
        .await
        .expect_ok("beside a foreign entry");
    for name in ["zoe", "alice"] {
        while there.used(name).await < 2 && there.search(name).await != 200 {}
        obeys(there, name, 200).await;
    }
    let both = |it: &Value| it["let_through"].as_array().map(Vec::len) >= Some(2);
    there.wait("limited", OBEYS + SLACK, both).await;
}

/// What the page shows as a key can be written into its form.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_shown_can_be_looked_up() {
    let file = r#"
        [rules.search]
        max-count = 2
        window = "1h"
        key = ["header:x-user | method", "header:x-tenant | everyone", "header:authorization | bearer"]
    "#;
    let limits = Limits::from_toml(file).expect("valid");
    let app = App::of(limits, |page| page.allow_changes().show_keys());
    let ask = async |user: &str| {
        let request = Request::get("/search")
            .header("x-user", user)
            .header("x-tenant", "a:b {}|%\u{e9}");
        let request = request
            .header("authorization", "Bearer x")
            .body(Body::empty());
        app.send(request.expect("a request")).await.status
    };
    sleep(Duration::from_millis(1_200)).await;
    let long = "k".repeat(500);
    for user in ["", "a b", "x|y", "x:y", "~^\"\\<>`", "%", "#", &long] {
        while ask(user).await != 429 {}
    }
    sleep(Duration::from_secs(2)).await;
    let seen = app.view("limited").await;
    assert_eq!(seen["rows"].as_array().map(Vec::len), Some(8), "{seen}");
    for row in seen["rows"].as_array().expect("rows") {
        let body = json!({"rule": "search", "key": row["key"]});
        let found = app
            .post("key", &body)
            .await
            .expect_ok(&row["key"].to_string());
        assert_eq!(
            (&found["row"], &found["allowed"]),
            (&row["row"], &json!(false)),
            "{row}"
        );
        assert_eq!(
            app.post("reset", body).await.expect_ok("it was found")["found"],
            true,
            "{row}"
        );
    }
}
