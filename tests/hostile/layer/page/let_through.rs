//! A key that is let through: obeyed everywhere, not charged, and over in time.

use tidegate::metrics::DecisionOutcome::Allowed;
use tidegate::rule::Plan;

use super::*;

/// "Obeys within 2 s".
pub(super) const OBEYS: Duration = Duration::from_secs(2);

/// Until a request of this user gets this status; at most as long as is promised.
pub(super) async fn obeys(app: &App, name: &str, status: u16) -> Duration {
    in_time(name, async || app.search(name).await == status).await
}

/// Until it is so; at most 250 looks: 5 s, and longer on a busy machine.
pub(super) async fn in_time(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let (began, mut looks) = (Instant::now(), 0);
    while !is_so().await {
        looks += 1;
        assert!(looks < 250, "not in time: {what}");
        sleep(millis(20)).await;
    }
    began.elapsed()
}

pub(super) fn counted(app: &App) -> RuleSnapshot {
    kit::counters(&app.limits, "search")
}

pub(super) async fn two(server: &Redis) -> [App; 2] {
    let apps = [0, 1].map(|_| App::on(server, Page::allow_changes));
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
    let joined = shop(&server);
    joined.join_fleet();
    for app in [&here, &there] {
        app.use_up("alice").await;
    }
    let check = async || joined.check("search", user("alice")).await;
    assert!(check().await.is_err());
    let ends = here.let_through("alice", 600).await;
    assert_eq!(ends, json!({"ends_in_s": 600.0}));
    for app in [&here, &there] {
        println!("obeyed after {:?}", obeys(app, "alice", 200).await);
    }
    in_time("no page", async || check().await.is_ok()).await;

    let before = counted(&there);
    for _ in 0..50 {
        assert_eq!(there.search("alice").await, 200);
        let costly = there.limits.check("search", user("alice")).cost(1_000);
        assert!(costly.await.expect("whatever it costs").decision.is_none());
        assert!(check().await.expect("let through").decision.is_none());
    }
    assert_eq!(there.used("alice").await, 2, "nothing is charged");
    let after = counted(&there);
    assert_eq!(after.let_through - before.let_through, 100);
    let allowed = [&after, &before].map(|it| it.decisions(Allowed));
    assert_eq!(allowed[0], allowed[1], "counted apart");
    // Nobody else is let through: not another key, not a part of it, not another rule.
    for name in ["alic", "alice2", "Alice", "bob"] {
        there.use_up(name).await;
    }
    let left = there.look("alice").await;
    let ends = left["let_through_in_s"].as_f64();
    assert!((500.0..=600.0).contains(&ends.expect("an end")), "{left}");

    // It ends early, everywhere.
    there.let_through("alice", 0).await;
    obeys(&there, "alice", 429).await;
    obeys(&here, "alice", 429).await;
    in_time("ended", async || check().await.is_err()).await;
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
            app.post("let-through", about(&format!("user{at}"), 600))
                .await
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
        let full = |it: &Value| count(&it["let_through"]) == Some(1_000);
        app.until("limited", full).await;
    }
}

/// A rule that has left the file while a key of it was let through.
#[tokio::test(start_paused = true)]
async fn a_key_of_a_rule_that_is_gone_can_be_ended() {
    let rule = |name| format!("[rules.{name}]\nmax-count = 2\nwindow = \"1h\"\n");
    let file = LimitsFile::new(&(rule("search") + &rule("gone")));
    let limits = file.limits();
    let app = App::keyed(limits.clone(), |page| page.allow_changes().show_keys());
    app.play("let-through gone/alice 600").await;
    file.reload(&limits, rule("search"));
    let steps = r#"
        wait 2000; limited /let_through; /0/key = "alice"; keep row /0/row
        let-through {"rule": "gone", "row": $row, "seconds": 0}
        wait 2000; limited; /let_through = []"#;
    app.play(steps).await;
}

/// Law 5: a request without its key is not admitted, whichever key is let through.
#[tokio::test(start_paused = true)]
async fn a_request_without_its_key_is_not_let_through() {
    let app = App::new(Page::allow_changes);
    for key in ["", ":", "-"] {
        app.post("let-through", about(key, 600)).await;
        let answer = app.send(empty(Method::GET, "/search")).await;
        assert_eq!(answer.status, 400, "{key:?}: {answer:?}");
    }
    app.use_up("alice").await;
}

/// A request that waits for units is a request, too: it goes on when its key is let through, and
/// stops waiting when it is blocked.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_obeys() {
    for (what, status) in [("let-through", 200), ("block", 429)] {
        let app = App::new(Page::allow_changes);
        let layer = app.limits.layer("search").wait(Duration::from_secs(4_000));
        let router = Router::new().route("/search", get("found").layer(layer));
        app.use_up("alice").await;
        let ask = async || {
            let began = Instant::now();
            let answer = send(&router, search("alice")).await;
            (answer.status, began.elapsed())
        };
        let change = async {
            sleep(Duration::from_secs(5)).await;
            app.done(what, about("alice", 600)).await;
            if status == 200 {
                assert_eq!(ask().await, (200, Duration::ZERO), "who asks now");
            }
        };
        let ((got, took), ()) = tokio::join!(ask(), change);
        assert_eq!(got, status, "{what}");
        assert!(took < Duration::from_secs(5) + OBEYS, "{what}: {took:?}");
        let counted = counted(&app);
        let blocked = u64::from(status == 429);
        assert_eq!((counted.blocked, counted.waiting), (blocked, 0));
    }
}

/// In memory: the page's own process, at once.
#[tokio::test(start_paused = true)]
async fn without_redis_the_process_obeys_and_ends_on_time() {
    let app = App::new(Page::allow_changes);
    app.play("use-up alice; let-through alice 60").await;
    for _ in 0..59 {
        app.play("ask alice = 200; wait 1000").await;
    }
    let steps =
        "wait 1010; ask alice = 429; let-through alice 86400; wait 4000000; ask alice = 200";
    app.play(steps).await;
}

/// Joined keys, rules without a key, plans and shadow rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_rule_obeys() {
    let server = Redis::start();
    let file = r#"
        [rules]
        joined.max-count = 1
        joined.window = "1h"
        joined.key = ["header:x-user", "header:x-tenant | everyone"]
        all = { max-count = 1, window = "1h", key = "everyone" }
        planned = { max-count = 1, window = "1h", plans.pro = { max-count = 2, window = "1h" } }
        shady = { max-count = 1, window = "1h", shadow = true }
    "#;
    let limits = Limits::from_toml(file).expect("valid");
    let limits = limits
        .store(Resilient::bare(store(&server.url, "shop")))
        .key(Header::new("x-user"));
    let mut router = Router::new();
    let paths = ["joined", "all", "planned", "shady"];
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
    for path in paths {
        let key = match path {
            "joined" => "alice:header.x-tenant|a%3Ab",
            "all" => "",
            _ => "alice",
        };
        for _ in 0..3 {
            ask(path).await;
        }
        let body = json!({"rule": path, "key": key, "seconds": 600});
        app.done("let-through", body).await;
        let counted = || app.limits.snapshot().rule(path).expect("counted").clone();
        let stored = || {
            let names = keys(&server, "shop:*").into_iter();
            let of_path = names.filter(|name| name.contains(path));
            let dump = |name: String| (query::<Vec<u8>>(&server, &format!("DUMP {name}")), name);
            of_path.map(dump).collect::<BTreeSet<_>>()
        };
        let (last, mut before) = (stored(), counted());
        for _ in 0..40 {
            let answer = ask(path).await;
            let seen = (answer.status, answer.field("ratelimit"));
            assert_eq!(seen, (200, ""), "{path}: {answer:?}");
        }
        before.let_through += 40;
        assert_eq!(counted(), before, "{path} counts apart");
        assert!(last == stored(), "{path}: nothing in Redis changes");
        let body = json!({"rule": path, "key": key, "seconds": 0});
        app.done("let-through", body).await;
    }
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
    here.let_through("alice", 60).await;
    obeys(&here, "alice", 200).await;
    sleep(OBEYS + Duration::from_secs(1)).await;
    for other in &others {
        assert_eq!(other.search("alice").await, 429);
        let fleet = other.view("fleet").await;
        assert_eq!(count(&fleet["processes"]), Some(1), "{fleet}");
        assert_eq!(other.view("limited").await["let_through"], json!([]));
    }
    here.reset("alice").await;
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
    here.let_through("alice", 12).await;
    obeys(&there, "alice", 200).await;
    server.kill();
    while began.elapsed() + millis(500) < time {
        for app in [&here, &there] {
            let status = app.search("alice").await;
            assert!(status == 200 || began.elapsed() >= time, "{status}");
        }
        sleep(millis(100)).await;
    }
    for app in [&here, &there] {
        let bob = about("bob", 60);
        let ended = ("let-through", &about("alice", 0));
        for (what, body) in [("let-through", &bob), ended, ("reset", &bob), ("key", &bob)] {
            let answer = app.post(what, body).await;
            assert_eq!(answer.status, 503, "{what} {body}: {answer:?}");
            answer.json();
        }
        let fleet = app.view("fleet").await;
        assert_eq!(fleet["redis_answers"], false);
        assert_eq!(count(&fleet["processes"]), Some(1), "{fleet}");
        assert_eq!(fleet["processes"][0]["this"], true);
    }
    sleep((time + Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    for app in [&here, &there] {
        assert_ne!(app.search("alice").await, 200, "it is over");
    }
    server.restart();
    for app in [&here, &there] {
        app.fleet_of(2).await;
        app.use_up("bob").await;
    }
    here.let_through("bob", 60).await;
    obeys(&there, "bob", 200).await;
}

/// Redis has lost everything, and what it has now looks as new as what was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_after_a_loss_is_not_taken_for_the_one_before() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    for round in 0..4 {
        let (old, new) = (format!("old{round}"), format!("new{round}"));
        here.let_through(&old, 600).await;
        here.use_up(&new).await;
        obeys(&there, &old, 200).await;
        kit::run(&server, "FLUSHALL");
        here.let_through(&new, 600).await;
        for app in [&here, &there] {
            // Its count is lost, too: it is used up first.
            let is_over = async || app.look(&old).await["let_through_in_s"].is_null();
            in_time("the list from before is believed", is_over).await;
            for _ in 0..5 {
                obeys(app, &new, 200).await;
            }
            let one = |it: &Value| count(&it["let_through"]) == Some(1);
            app.wait("limited", OBEYS + SLACK, one).await;
        }
        here.let_through(&new, 0).await;
    }
    // Both have the same secret again.
    there.use_up("alice").await;
    let row = async |app: &App| app.look("alice").await["row"].clone();
    let is_so = async || row(&here).await == row(&there).await;
    eventually("one secret in one service", is_so).await;
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
            apps[0].done(what, about(key, 600)).await;
        }
        let name = keys(&server, "*~fleet*").into_iter().find(|name| {
            let name =
                name.trim_end_matches(|it: char| it.is_ascii_hexdigit() && !end.ends_with(it));
            name.ends_with(end)
        });
        let name = name.unwrap_or_else(|| panic!("no {end}"));
        let kind = query(&server, &format!("TYPE {name}"));
        Self {
            server,
            apps,
            name,
            kind,
        }
    }

    fn remove(&self) {
        kit::run(&self.server, &format!("DEL {}", self.name));
    }

    /// Puts this under the name, in place of what is there or beside it.
    fn put(&self, command: &str, values: &[&str], beside: bool) {
        if !beside {
            self.remove();
        }
        let mut put = redis::cmd(command);
        let put = put.arg(&self.name).arg(values);
        let _ = put.exec(&mut self.server.connection());
    }

    /// Requests are decided, and the page answers.
    async fn works(&self, case: &str) {
        let [here, there] = &self.apps;
        let (began, mut decided) = (Instant::now(), 0);
        while began.elapsed() < millis(1_200) {
            for app in [here, there] {
                let status = app.search(&format!("user{}", decided % 50)).await;
                assert!(status == 200 || status == 429, "{case}: {status}");
                decided += 1;
                for view in GET_VIEWS {
                    app.view(view).await;
                }
            }
            sleep(millis(100)).await;
        }
        for what in ["let-through", "block", "key", "reset"] {
            let answer = here.post(what, about("bob", 1)).await;
            let is_right = [200, 503].contains(&answer.status);
            assert!(is_right, "{what} {case}: {answer:?}");
            answer.json();
        }
    }

    /// The fleet is whole, and a key can be let through.
    async fn heals(&self, most: Duration) -> bool {
        let [here, there] = &self.apps;
        let began = Instant::now();
        while began.elapsed() < most {
            let fleet = there.view("fleet").await;
            let both = count(&fleet["processes"]) == Some(2);
            let answer = here.post("let-through", about("carol", 1)).await;
            if fleet["redis_answers"] == true && both && answer.status == 200 {
                return true;
            }
            sleep(millis(200)).await;
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
            let kind: String = query(&self.server, &format!("TYPE {}", self.name));
            self.works(&case).await;
            // A value of another type is an error until it is gone.
            if kind != self.kind && kind != "none" {
                self.remove();
            }
            assert!(self.heals(PATIENT).await, "{case}");
        }
        let [here, there] = &self.apps;
        there.use_up(&self.name).await;
        here.let_through(&self.name, 60).await;
        obeys(there, &self.name, 200).await;
    }
}

/// Somebody else's values under the names of the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_values_under_the_fleets_names_break_nothing_and_heal() {
    let ends = words(":processes :secret :version :let-through :blocked :process:");
    let ends = ends.into_iter();
    let checks = ends.map(async |end| Foreign::new(end).await.check().await);
    futures_util::future::join_all(checks).await;
}

/// Law 10: a value of the right type that is no version is no error for ever, and hides no change.
/// From 2^53 on, one more is the same number to a script; that one has as many digits as a version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_beyond_every_number_heals() {
    let foreign = Foreign::new(":version").await;
    let [here, there] = &foreign.apps;
    for version in [
        "9007199254740992",
        "9223372036854775807",
        "99999999999999999999999999",
    ] {
        foreign.put("SET", &[version], false);
        foreign.works(version).await;
        assert!(foreign.heals(Duration::from_secs(10)).await, "{version}");
        there.use_up(version).await;
        here.let_through(version, 60).await;
        obeys(there, version, 200).await;
    }
}
