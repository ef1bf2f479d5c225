//! The page: its views, its operations, and who may use them.

mod guard;

use axum::routing::get;
use kit::page::{App, HOST, ORIGIN, about, count, hourly, posted, shop};
use tidegate::Page;
use tidegate::key::Cookie;

use crate::*;

/// What operators and users do, and what is shown then.
#[test]
fn scenes() {
    kit::page_steps::play_scenes("tests/layer/page.txt");
}

/// The task that watches ends with its runtime. The next one goes on with the seconds.
#[test]
fn a_page_in_a_second_runtime_goes_on() {
    let limits = Limits::new([hourly("search", 2)]);
    let allowed_after = |seconds: u64| {
        paused_runtime().block_on(async {
            let app = App::keyed(limits.clone(), |page| page);
            app.search("alice").await;
            sleep(millis(seconds * 1_000 + 500)).await;
            let allowed = app.view("now").await["rules"][0]["allowed"].take();
            allowed.as_array().expect("a list").clone()
        })
    };
    assert_eq!(allowed_after(130).len(), 130);
    let of_both = allowed_after(2);
    assert_eq!(of_both.len(), 132, "{of_both:?}");
    let sum: u64 = of_both.iter().filter_map(Value::as_u64).sum();
    assert_eq!(sum, 2);
}

/// A rule with a plan of so many requests.
fn with_plan(max: u32) -> Rule {
    let pro = Quotas::new([Quota::per_hour(max)]).expect("quotas");
    hourly("search", 2).with_plan("pro", pro).expect("a plan")
}

/// Of each plan, in the order of their names, and of the first ten.
#[tokio::test(start_paused = true)]
async fn a_rule_has_the_quotas_of_its_plans() {
    let mut rule = hourly("search", 2);
    for number in 0..12 {
        let quotas = Quotas::new([Quota::per_day(10 + number)]).expect("valid");
        let rule_with_plan = rule.with_plan(&format!("plan{number:02}"), quotas);
        rule = rule_with_plan.expect("valid");
    }
    let app = App::keyed(Limits::new([rule]), |page| page);
    let view = app.view("now").await;
    let shown = &view["rules"][0];
    assert_eq!(shown["plans"].as_array().map(Vec::len), Some(12));
    let of_plans = shown["quotas_of_plans"].as_array().expect("a list").iter();
    let maxima = of_plans.map(|it| it[0]["max"].as_u64().expect("a number"));
    assert!(maxima.eq(10..20), "{shown:#}");
}

/// And how many others there are.
#[tokio::test(start_paused = true)]
async fn the_busiest_rules_are_shown() {
    let names: Vec<_> = (0..70).map(|at| format!("rule{at}")).collect();
    let limits = Limits::new(names.iter().map(|name| hourly(name, 9)).collect::<Rules>());
    let app = App::of(limits, |page| page);
    sleep(millis(1_100)).await;
    for name in names.iter().chain(&names[64..]) {
        app.limits
            .check(name, "alice")
            .await
            .expect("there is room");
    }
    let steps = "wait 1000; now; /rules # 64; /more_rules = 6; /rules/rule=rule69 != null";
    app.play(steps).await;
}

/// A key that is a token is masked, and warned of.
#[tokio::test(start_paused = true)]
async fn a_token_is_not_shown() {
    const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let app = App::new(|page| page.allow_changes().show_keys());
    app.play(&format!("wait 1100; ask {TOKEN} x3; wait 1000"))
        .await;
    let log = Log::start();
    let steps = r#"
        limited; /rows/0/key = "ghp_…"; keep row /rows/0/row
        key {"rule": "search", "row": $row}; /key = "ghp_…"
        reset {"rule": "search", "row": $row} = {"found": true}"#;
    app.play(steps).await;
    app.let_through(TOKEN, 60).await;
    let told = format!("{} {:?}", app.view("limited").await, log.lines());
    assert!(told.contains("ghp_") && !told.contains(TOKEN), "{told}");
    assert_eq!(kit::kinds(&app.limits), "ReadableToken");
    let warnings = app.limits.warnings();
    assert!(!format!("{warnings:?} {}", warnings[0]).contains("ghp_"));
}

/// What people write of somebody finds what the layers of the path count for them, wherever the key
/// is set, and lets them through.
#[tokio::test(start_paused = true)]
async fn what_people_write_is_the_key_of_the_layers() {
    type Extractor = Arc<dyn KeyExtractor>;
    let client = |bits| ClientIp::behind([]).ipv6_prefix(bits);
    let user = || Header::new("x-user");
    // The other one of two alternatives.
    fn or(other: impl KeyExtractor) -> impl KeyExtractor {
        Header::new("x-absent").or(other)
    }
    let sid = || Cookie::new("sid");
    const ADDRESS: &str = "2001:db8:1:2:3::4";
    const OF_COOKIE: &str = "cookie.sid|a:b cookie.sid|a%3Ab";
    let prefixed = "2001:db8:1:2:3::4 2001:db8:1::/48 2001%3Adb8%3A1%3A%3A/48";
    let cases: [(&str, Extractor, &str); 15] = [
        ("prefix 48", Arc::new(client(48)), prefixed),
        ("prefix 56", Arc::new(client(56)), "@ 2001:db8:1::/56"),
        ("prefix 64", Arc::new(PeerIp), "@ 2001:db8:1:2::/64"),
        ("prefix 128", Arc::new(client(128)), ADDRESS),
        ("or 48", Arc::new(or(client(48))), "@ 2001:db8:1::/48"),
        ("first 48", Arc::new(client(48).or(Everyone)), ADDRESS),
        ("bearer", Arc::new(Bearer), "t0ken/+="),
        ("or bearer", Arc::new(or(Bearer)), "bearer|t0ken/+="),
        ("cookie", Arc::new(sid()), "a:b a%3Ab \"a%3ab\""),
        ("or cookie", Arc::new(or(sid())), OF_COOKIE),
        ("secret", Arc::new(user().secret()), "2001:db8::7"),
        ("a field", Arc::new(user()), "2001:db8::7 2001%3Adb8%3A%3A7"),
        (
            "or a field",
            Arc::new(user().or(PeerIp)),
            "header.x-user|2001:db8::7 header.x-user|2001%3Adb8%3A%3A7",
        ),
        // The empty text is the text of the key itself.
        ("everyone", Arc::new(Everyone), ""),
        ("or everyone", Arc::new(or(Everyone)), "everyone"),
    ];
    let head = || {
        Request::get("/search")
            .extension(PeerAddr(format!("[{ADDRESS}]:80").parse().expect("one")))
            .header("authorization", "Bearer t0ken/+=")
            .header("cookie", "sid=a:b")
            .header("x-user", "2001:db8::7")
    };
    for (name, own, texts) in cases {
        let texts = texts.replace('@', ADDRESS);
        for place in ["default", "rule", "layer", "layer beside a default"] {
            let rule = hourly("search", 2);
            let limits = match place {
                "default" => Limits::new([rule]).key(Arc::clone(&own)),
                "rule" => Limits::new([rule.with_key(Arc::clone(&own))]),
                "layer" => Limits::new([rule]),
                _ => Limits::new([rule]).key(Header::new("x-absent").secret()),
            };
            let layer: RateLimitLayer = match place.starts_with("layer") {
                true => limits.layer("search").key(Arc::clone(&own)),
                false => limits.layer("search"),
            };
            let page = limits.page().allow_changes().show_keys().router();
            let router = Router::new()
                .route("/search", get("found").layer(layer))
                .nest_service("/limits", page);
            let app = App { limits, router };
            let search = async || {
                let request = head().body(Body::empty()).expect("a request");
                app.send(request).await.status
            };
            // Also the text of the key itself, which is a hash of what is secret.
            let head = head().body(()).expect("a request").into_parts().0;
            let whole = own.extract(&head).expect("a key").to_string();
            for text in words(&texts).into_iter().chain([&*whole]) {
                let case = format!("{name} {place} {text}");
                while search().await != 429 {}
                let seen = app.look(text).await;
                assert_eq!(seen["allowed"], false, "{case}: {seen}");
                assert_eq!(seen["hint"], Value::Null, "{case}: {seen}");
                app.let_through(text, 60).await;
                assert_eq!(search().await, 200, "{case}");
                app.let_through(text, 0).await;
                assert_eq!(search().await, 429, "{case}");
                let reset = app.done("reset", about(text, 0)).await;
                assert_eq!(reset, json!({"found": true}), "{case}");
            }
        }
    }
}

const QUESTIONS: [&str; 3] = ["key", "reset", "let-through"];

#[tokio::test(start_paused = true)]
async fn what_is_not_the_json_that_it_should_be_is_refused() {
    let app = App::new(|page| page.allow_changes().show_keys());
    app.use_up("alice").await;
    let nested = |depth, text: &str| "[".repeat(depth) + text + &"]".repeat(depth);
    let deep_in = nested(20_000, "\"x\"");
    let deep_in = format!("{{\"rule\":\"search\",\"key\":{deep_in}}}");
    let bodies = words(
        r#"{ } [] null true 1 17 "x" {} nul {"rule":"search"} {"key":"alice"}
        {'rule':'search','key':'alice'} rule=search&key=alice
        {"rule":"search","key":"alice","seconds":60}x
        {"rule":"search","key":"\ud800","seconds":60} {"rule":"search","key":null,"seconds":60}
        {"rule":"search","key":17,"seconds":60} {"rule":"search","key":["alice"],"seconds":60}
        {"rule":"search","key":{"a":1},"seconds":60} {"rule":null,"key":"alice","seconds":60}
        {"rule":["search"],"key":"alice","seconds":60} {"rule":"search","row":17,"seconds":60}
        {"rule":"search","key":"alice","plan":17,"seconds":60}
        {"rule":"search","key":"alice","plan":"nothing","seconds":60}
        {"rule":"nothing","key":"alice","seconds":60} {"rule":"","key":"alice","seconds":60}
        {"rule":"search","row":"","seconds":60} {"rule":"search","row":"alice","seconds":60}
        {"rule":"search","row":"00000000000000000000000000000000","seconds":60}
        {"rule":"search","row":"\u0000","seconds":60}"#,
    );
    let odd = [
        "",
        " ",
        &nested(200_000, ""),
        &deep_in,
        &"{\"rule\":".repeat(10_000),
    ];
    for body in bodies.into_iter().chain(odd) {
        for what in QUESTIONS {
            app.refused(what, body).await;
        }
    }
    // A refusal repeats no more of a request than shows what is meant.
    let long = json!("<&\u{7f}".repeat(4_000)).to_string();
    let bodies = words(
        r#"LONG [LONG] {"rule":LONG,"key":"alice"} {"rule":"search","key":LONG}
        {"rule":"search","key":"alice","plan":LONG} {"rule":"search","row":LONG}
        {"rule":"search","key":{LONG:1}} {LONG:1,"rule":"search"} {LONG"#,
    );
    let bodies = bodies.into_iter().map(|it| it.replace("LONG", &long));
    let cut_off = [long[..long.len() - 1].to_owned()];
    let endless = ["1", "x", "["].map(|it| it.repeat(16_000));
    for body in bodies.chain(cut_off).chain(endless) {
        for what in QUESTIONS {
            let length = app.post(what, &body).await.text.len();
            assert!(length < 1_500, "{what} {body:.40}: {length} bytes");
        }
    }
    // A key and a row at once.
    let row = &app.look("alice").await["row"];
    for what in QUESTIONS {
        for key in ["bob", "alice"] {
            let body = json!({"rule": "search", "key": key, "row": row, "seconds": 60});
            app.refused(what, body).await;
        }
    }
    let no_text = &b"{\"rule\":\"search\",\"key\":\"\xff\"}"[..];
    let answer = app.send(posted("reset", no_text)).await;
    answer.expect_refusal("no text");
    app.play("ask alice = 429; limited; /let_through = []")
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_time_is_whole_seconds_up_to_a_day() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    for seconds in words(
        r#"-1 -0.5 1.5 86401 1e300 1e999 null true [60] {} "60" 18446744073709551615
        18446744073709551616 -9223372036854775808 0.0000001 4294967297"#,
    ) {
        let body = format!("{{\"rule\":\"search\",\"key\":\"alice\",\"seconds\":{seconds}}}");
        app.refused("let-through", body).await;
        assert_eq!(app.search("alice").await, 429, "{seconds}");
    }
    let steps = r#"
        refused let-through {"rule": "search", "key": "alice"}
        let-through alice 1; /ends_in_s = 1.0; ask alice = 200
        let-through alice 86400; /ends_in_s = 86400.0; ask alice = 200
        let-through alice 0 = {"ends_in_s": null}; ask alice = 429
        // What is not let through may be ended as well.
        let-through bob 0"#;
    app.play(steps).await;
}

/// A key is looked at by the plan, or the quotas from code, of its last request, also after a
/// reload.
#[tokio::test(start_paused = true)]
async fn a_key_is_looked_at_as_it_was_decided() {
    let limits = Limits::new([with_plan(9)]);
    let app = App::of(limits.clone(), |page| page);
    let table = Plan::of([Quota::per_minute(50)]).expect("valid");
    for _ in 0..5 {
        limits.check("search", "pro").plan("pro").await.expect("9");
        let of_table = limits.check("search", "tabled").plan_value(table.clone());
        of_table.await.expect("50");
        let _ = limits.check("search", "plain").await;
    }
    let steps = r#"
        key pro; /allowed = true; /plan = "pro"; /quotas/0/max = 9; /hint = null
        key tabled; /allowed = true; /plan = null; /quotas/0/max = 50
        key plain; /allowed = false; /plan = null; /quotas/0/max = 2"#;
    app.play(steps).await;
    limits.rules().replace(Rules::from_iter([with_plan(5)]));
    app.play("key pro; /allowed = false; /plan = \"pro\"; /quotas/0/max = 5")
        .await;
    // Without its plan, the key has the rule's own quotas.
    let _ = limits.check("search", "pro").await;
    app.play("key pro; /allowed = false; /plan = null; /quotas/0/max = 2")
        .await;
}

/// While nobody looks, those that wait keep no key.
#[tokio::test(start_paused = true)]
async fn who_waits_is_noted_while_somebody_looks() {
    let limits = Limits::new([hourly("search", 1)]);
    let waits = async |limits: &Limits, tenant: &str| {
        let call = limits.check("search", kit::page::user("alice"));
        tokio::spawn(call.fair_by(tenant).wait(2 * HOUR).into_future());
        sleep(millis(1_100)).await;
    };
    for tenant in ["served", "early"] {
        waits(&limits, tenant).await;
    }
    let app = App::keyed(limits.clone(), Page::show_keys);
    waits(&limits, "late").await;
    let steps = r#"limited; /waiting # 1; /waiting/0/key = "late"
        now /rules/0; /total/waiting = 2"#;
    app.play(steps).await;
}

/// Two processes of a service over one Redis: each has limits of its own.
mod fleet {
    use kit::page_steps::play;
    use kit::{Redis, eventually, query};
    use tidegate::store::{OperatorKey, OperatorKind};

    use super::*;

    const INDEX: &str = "{shop:CurrentLimiter:~fleet}:processes";

    /// Its name is gone from the index, and so is one that a clock ahead has written.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_gone_is_forgotten() {
        let redis = Redis::start();
        let app = App::on(&redis, |page| page);
        let other = App::on(&redis, |page| page);
        app.play("until fleet /processes # 2").await;
        drop(other);
        app.play("until fleet /processes # 1").await;
        kit::run(&redis, &format!("ZADD {INDEX} 9e15 ghost"));
        let is_so = async || query::<u64>(&redis, &format!("ZCARD {INDEX}")) == 1;
        eventually("one name", is_so).await;
    }

    /// What code of the application blocks under another path blocks nobody.
    #[tokio::test]
    async fn a_path_without_a_rule_is_warned_of() {
        let redis = Redis::start();
        let app = App::on(&redis, Page::show_keys);
        app.play("until fleet /processes # 1").await;
        let log = Log::start();
        let fleet = kit::page::store(&redis.url, "shop")
            .fleet()
            .expect("a fleet");
        let one = OperatorKey {
            kind: OperatorKind::Blocked,
            path: "search-old".into(),
            key: "alice".into(),
            by: None,
            note: None,
            only: [].into(),
            replaces: false,
            time: Duration::from_secs(60),
        };
        eventually("it is told", async || {
            fleet.set_key(&one).await.ok();
            log.count("path=\"search-old\"") > 0
        })
        .await;
    }

    /// A row of another process is its key, also of an empty value.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_empty_value_of_another_process_is_helped_by_its_row() {
        let redis = Redis::start();
        let app = App::on(&redis, Page::allow_changes);
        let other = App::on(&redis, Page::show_keys);
        let steps = r#"
            other: use-up; app: until limited /rows != []; keep row /rows/0/row
            app: key {"rule": "search", "row": $row, "seconds": 0}; /row = $row; /allowed = false
            app: reset {"rule": "search", "row": $row, "seconds": 0} = {"found": true}
            other: use-up; app: let-through {"rule": "search", "row": $row, "seconds": 60}
            other: soon = 200"#;
        play(&[("app", &app), ("other", &other)], steps).await;
    }

    /// Of all processes together, of layers and of calls.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_is_counted_in_all_processes() {
        let redis = Redis::start();
        let [app, other] = [(); 2].map(|()| {
            let rule = hourly("search", 1).with_fair_by(Header::new("x-tenant"));
            let limits = Limits::new([rule]).store(kit::page::store(&redis.url, "shop"));
            App::waiting(limits, 2 * HOUR, Page::show_keys)
        });
        let call = other.limits.check("search", kit::page::user("alice"));
        let call = call.fair_by("acme").wait(2 * HOUR).into_future();
        let steps = "ask alice = 200; queue alice, x-tenant: acme x3";
        play(&[("app", &app)], steps).await;
        tokio::spawn(call);
        let steps = r#"
            other: queue alice, x-tenant: acme x2; other: queue alice, x-tenant: globex
            app: until limited /waiting/key=acme/waiting = 6
            app: until limited /waiting/key=globex/waiting = 1; /waiting # 2
            /waiting_unknown_in = 0; other: until limited /waiting/0/waiting = 6"#;
        play(&[("app", &app), ("other", &other)], steps).await;
    }

    /// A process has a name beside its number: its own, or that of its host.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_are_named() {
        let redis = Redis::start();
        let by_variable = std::env::var("HOSTNAME").ok();
        let host = [by_variable, std::fs::read_to_string("/etc/hostname").ok()];
        let mut host = host.into_iter().flatten().map(|it| it.trim().to_owned());
        let host = host.find(|it| !it.is_empty()).unwrap_or_default();
        let app = App::on(&redis, |page| page);
        let others = ["web-7", "", "   ", &"\u{202e}<b>".repeat(1_000)];
        let _others = others.map(|name| {
            let limits = shop(&redis).process_name(name);
            limits.join_fleet();
            limits
        });
        let fleet = app
            .until("fleet", |it| {
                let processes = it["processes"].as_array().expect("processes");
                processes.len() == 5 && processes.iter().all(|it| it["name"].is_string())
            })
            .await;
        let processes = fleet["processes"].as_array().expect("processes");
        let mut names: Vec<_> = processes.iter().map(|it| it["name"].as_str()).collect();
        let long = ["<b>"; 16].join(" ");
        let mut wanted = ["", "", "web-7", &long, &host].map(Some);
        names.sort();
        wanted.sort();
        assert_eq!(names, wanted);
        assert_eq!(app.view("now").await["process_name"], host);
        // A clone is the same process, whenever it is named.
        let _ = app.limits.clone().process_name("web-1");
        assert_eq!(app.view("now").await["process_name"], "web-1");
    }

    /// Whoever writes to Redis may claim anything of a process.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_other_processes_claim_is_bounded() {
        let redis = Redis::start();
        let app = App::on(&redis, |page| page);
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
        };
        let mut newer = text(json!("e"));
        let waiting = (0..500).map(|at| json!(["search", at.to_string(), u64::MAX, 1e308]));
        newer["report_version"] = json!(u64::MAX);
        newer["waiting"] = waiting.collect();
        let mut connection = redis.connection();
        for (process, text) in [
            ("a", text(json!(long[..10_000])).to_string()),
            ("b", text(json!(7)).to_string()),
            (&"c".repeat(1_000), text(Value::Null).to_string()),
            ("e", newer.to_string()),
            ("d", "{".to_owned()),
        ] {
            let key = format!("{{shop:CurrentLimiter:~fleet}}:process:{process}");
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
            let now = since.expect("a clock").as_millis() as u64;
            redis::pipe()
                .set_ex(key, text, 60)
                .zadd(INDEX, process, now)
                .exec(&mut connection)
                .expect("is written");
        }
        let claimed = |it: &Value| count(&it["processes"]) > Some(2);
        let fleet = app.until("fleet", claimed).await;
        let processes = fleet["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 3, "{fleet:#}");
        for process in &processes[1..] {
            assert!(process.to_string().len() < 4_000, "{process:#}");
        }
        let limited = app.view("limited").await;
        let row = &limited["rows"][0];
        assert!(row.to_string().len() < 4_000, "{row:#}");
        // A report that does not say who waits is one of an older version.
        assert_eq!(limited["waiting_unknown_in"], 1);
        assert_eq!(count(&limited["waiting"]), Some(5), "{limited:#}");
    }
}
