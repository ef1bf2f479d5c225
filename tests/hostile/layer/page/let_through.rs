//! A key that is let through: obeyed everywhere, not charged, and over in time.

use tidegate::metrics::DecisionOutcome::Allowed;

use super::*;

/// "Obeys within 2 s".
pub(super) const OBEYS: Duration = Duration::from_secs(2);

/// Until it is so; at most 250 looks: 5 s, and longer on a busy machine.
async fn in_time(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut looks = 0;
    while !is_so().await {
        looks += 1;
        assert!(looks < 250, "not in time: {what}");
        sleep(millis(20)).await;
    }
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
    let apps = [("here", &here), ("there", &there)];
    let joined = shop(&server);
    joined.join_fleet();
    play(&apps, "here: use-up alice; there: use-up alice").await;
    let check = async || joined.check("search", user("alice")).await;
    assert!(check().await.is_err());
    let steps = r#"
        here: let-through alice 600 = {"ends_in_s": 600.0}
        here: soon alice = 200; there: soon alice = 200"#;
    play(&apps, steps).await;
    in_time("no page", async || check().await.is_ok()).await;

    let counted = || kit::counters(&there.limits, "search");
    let before = counted();
    for _ in 0..50 {
        assert_eq!(there.search("alice").await, 200);
        let costly = there.limits.check("search", user("alice")).cost(1_000);
        assert!(costly.await.expect("whatever it costs").decision.is_none());
        assert!(check().await.expect("let through").decision.is_none());
    }
    let after = counted();
    assert_eq!(after.let_through - before.let_through, 100);
    let allowed = [&after, &before].map(|it| it.decisions(Allowed));
    assert_eq!(allowed[0], allowed[1], "counted apart");
    let steps = r#"
        // Nothing is charged.
        there: used alice = 2
        // Nobody else is let through: not another key, not a part of it.
        there: use-up alic; there: use-up alice2; there: use-up Alice; there: use-up bob
        there: key alice; /let_through_in_s in 500..600
        // It ends early, everywhere.
        there: let-through alice 0; there: soon alice = 429; here: soon alice = 429"#;
    play(&apps, steps).await;
    in_time("ended", async || check().await.is_err()).await;
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
    let limits = limits.store(Resilient::bare(store(&server.url, "shop")));
    let app = App::of_rules(limits, |page| page.allow_changes().show_keys());
    app.in_fleet().await;
    for (path, key) in [
        ("joined", "alice:header.x-tenant|a%3Ab"),
        ("all", ""),
        ("planned", "alice"),
        ("shady", "alice"),
    ] {
        let ask = format!("ask {path}/alice, x-tenant: a:b, x-plan: pro");
        let let_through = format!("let-through {path}/{key}");
        app.play(&format!("{ask} x3; {let_through} 600")).await;
        let counted = || kit::counters(&app.limits, path);
        let stored = || {
            let names = keys(&server, "shop:*").into_iter();
            let of_path = names.filter(|name| name.contains(path));
            let dump = |name: String| (query::<Vec<u8>>(&server, &format!("DUMP {name}")), name);
            of_path.map(dump).collect::<BTreeSet<_>>()
        };
        let (last, mut before) = (stored(), counted());
        app.play(&format!("{ask} x40 = 200; . lacks ratelimit"))
            .await;
        before.let_through += 40;
        assert_eq!(counted(), before, "{path} counts apart");
        assert!(last == stored(), "{path}: nothing in Redis changes");
        app.play(&format!("{let_through} 0")).await;
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
    here.play("use-up alice; let-through alice 60; soon alice = 200; wait 3000")
        .await;
    for other in &others {
        other
            .play("ask alice = 429; fleet /processes; . # 1; limited; /let_through = []")
            .await;
    }
    here.play("reset alice").await;
    for other in &others {
        other.play("used alice = 2").await;
    }
}

/// What is known holds until its end; what is new is refused with a 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_gone_what_is_known_holds_until_its_end() {
    let mut server = Redis::start();
    let [here, there] = two(&server).await;
    let apps = [("here", &here), ("there", &there)];
    play(&apps, "here: use-up alice; here: use-up bob").await;
    let began = Instant::now();
    let time = Duration::from_secs(12);
    play(&apps, "here: let-through alice 12; there: soon alice = 200").await;
    server.kill();
    while began.elapsed() + millis(500) < time {
        for app in [&here, &there] {
            let status = app.search("alice").await;
            assert!(status == 200 || began.elapsed() >= time, "{status}");
        }
        sleep(millis(100)).await;
    }
    for app in [&here, &there] {
        let steps = r#"
            gets 503 let-through bob 60; gets 503 let-through alice 0; gets 503 reset bob
            gets 503 key bob
            fleet; /redis_answers = false; /processes # 1; /processes/0/this = true"#;
        app.play(steps).await;
    }
    sleep((time + Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    for app in [&here, &there] {
        assert_ne!(app.search("alice").await, 200, "it is over");
    }
    server.restart();
    for app in [&here, &there] {
        app.play("until fleet /processes # 2; use-up bob").await;
    }
    play(&apps, "here: let-through bob 60; there: soon bob = 200").await;
}

/// Redis has lost everything, and what it has now looks as new as what was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_after_a_loss_is_not_taken_for_the_one_before() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    let apps = [("here", &here), ("there", &there)];
    for round in 0..4 {
        let (old, new) = (format!("old{round}"), format!("new{round}"));
        let steps = "here: let-through OLD 600; here: use-up NEW; there: soon OLD = 200";
        play(&apps, &steps.replace("OLD", &old).replace("NEW", &new)).await;
        kit::run(&server, "FLUSHALL");
        here.let_through(&new, 600).await;
        for app in [&here, &there] {
            // Its count is lost, too: it is used up first.
            let is_over = async || app.look(&old).await["let_through_in_s"].is_null();
            in_time("the list from before is believed", is_over).await;
            for _ in 0..5 {
                app.play(&format!("soon {new} = 200")).await;
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
        apps[0].play("let-through zoe 600; block yan 600").await;
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
    async fn heals(&self, most: Duration, case: &str) {
        let [here, there] = &self.apps;
        let is_whole = async || {
            sleep(millis(200)).await;
            let fleet = there.view("fleet").await;
            let answer = here.post("let-through", about("carol", 1)).await;
            let both = count(&fleet["processes"]) == Some(2);
            fleet["redis_answers"] == true && both && answer.status == 200
        };
        kit::within(most, case, is_whole).await;
    }

    async fn is_obeyed(&self, key: &str) {
        let [here, there] = &self.apps;
        there.use_up(key).await;
        here.let_through(key, 60).await;
        in_time(key, async || there.search(key).await == 200).await;
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
            self.heals(PATIENT, &case).await;
        }
        self.is_obeyed(&self.name).await;
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
    for version in [
        "9007199254740992",
        "9223372036854775807",
        "99999999999999999999999999",
    ] {
        foreign.put("SET", &[version], false);
        foreign.works(version).await;
        foreign.heals(10 * SECOND, version).await;
        foreign.is_obeyed(version).await;
    }
}
