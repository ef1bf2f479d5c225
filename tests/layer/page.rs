//! The page: its views, its operations, and who may use them.

use axum::routing::get;
use kit::page::{App, about, count, hourly, posted, search, shop};
use tidegate::Page;
use tidegate::key::Cookie;
use tidegate::rule::Lockout;

use crate::*;

#[tokio::test(start_paused = true)]
async fn rates_are_shown_by_the_second() {
    let steps = r#"
        wait 1500; ask alice x5; wait 2000
        now; /first = 1; /tick = 3
        now /rules/0; /rule = "search"; /total/allowed = 2; /total/denied = 3
        /allowed = [0, 2, 0]; /denied = [0, 3, 0]
        now?after=2; /first = 3; /rules/0/denied = [0]"#;
    App::new(|page| page).play(steps).await;
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

/// A name that stands twice in an object of JSON would hide what stood there first.
#[tokio::test(start_paused = true)]
async fn a_shadow_rule_is_named_as_one() {
    let limits = Limits::new([hourly("search", 2).into_shadow()]);
    let steps = r#"
        wait 1500; ask alice x5 = 200; wait 1000
        now /rules/0; /is_shadow = true; /total/shadow = 3; /shadow = [0, 3]"#;
    App::keyed(limits, |page| page).play(steps).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_limited_is_shown_by_a_hash_and_helped_by_it() {
    let app = App::new(Page::allow_changes);
    let steps = r#"
        wait 1100; ask alice x5; ask bob; wait 1000
        limited; . lacks alice; /rows # 1; /rows/0/denials = 3; /rows/0/key = null
        keep row /rows/0/row
        let-through {"rule": "search", "row": $row, "seconds": 60} = {"ends_in_s": 60.0}
        ask alice = 200"#;
    app.play(steps).await;
    let allowed = app.limits.check("search", kit::page::user("alice")).await;
    assert!(allowed.expect("it is let through").decision.is_none());
    assert_eq!(counted(&app.limits, "search").let_through, 2);
    let steps = r#"
        // Nothing was charged.
        key alice; /quotas/0/remaining = 0
        // By its own end, or because an operator ends it.
        wait 30000; ask alice = 200; let-through alice 0; ask alice = 429
        reset alice = {"found": true}; ask alice = 200"#;
    app.play(steps).await;
}

/// A row says how many requests of its key were denied in each of the last five whole seconds, on
/// average.
#[tokio::test(start_paused = true)]
async fn who_is_raised_is_listed() {
    let steps = r#"
        use-up alice
        refused raise alice 60 {"factor": null}; refused raise alice 60 {"factor": "2"}
        refused raise alice 60 {"factor": 0}; refused raise alice 59 {"factor": 2}
        refused raise alice 7862400 {"factor": 2}
        raise alice 7776000 {"factor": 2.5} = {"ends_in_s": 7776000.0}; ask alice = 200
        key alice; /factor = 2.5; /quotas/0/max = 5
        limited; /raised/0/key = "alice"; /raised/0/factor = 2.5; /rows/0/factor = 2.5
        // Admitted now, it is limited no more.
        wait 7000; limited; /rows = []
        refused raise alice 60 {"factor": 2, "only": ["none"]}
        . has expected of [\"search\"]
        raise alice 60 {"factor": 2, "only": ["search"]}
        limited; /raised/0/only = ["search"]
        raise alice 0 {"factor": 1}; limited; /raised = []"#;
    let app = App::new(|page| page.allow_changes().show_keys());
    app.play(steps).await;
}

#[tokio::test(start_paused = true)]
async fn the_denials_of_the_last_seconds_are_shown() {
    let steps = r#"
        // That second has not ended yet.
        wait 1500; ask alice x12; limited /rows/0; /denials_per_s = 0.0
        // 10 in the second that began 1 s after the start, and 5 in the one that began 3 s after it.
        wait 1000; limited /rows/0; /denials_per_s = 2.0
        wait 1000; ask alice x5; limited /rows/0; /denials_per_s = 2.0
        wait 1000; limited /rows/0; /denials_per_s = 3.0
        wait 1000; limited /rows/0; /denials_per_s = 3.0
        wait 1000; limited /rows/0; /denials_per_s = 3.0
        wait 1000; limited /rows/0; /denials_per_s = 1.0
        wait 1000; limited /rows/0; /denials_per_s = 1.0
        wait 1000; limited /rows/0; /denials_per_s = 0.0
        wait 1000; limited /rows/0; /denials_per_s = 0.0; /denials = 15
        // The denials before the reset are forgotten.
        ask alice x10; reset alice; ask alice x3; wait 1000
        limited /rows/0; /denials = 1; /denials_per_s = 0.2"#;
    App::new(Page::allow_changes).play(steps).await;
}

/// The plan of a key is that of its last denial.
#[tokio::test(start_paused = true)]
async fn the_plan_of_a_denied_key_is_shown() {
    let limits = Limits::new([with_plan(3)]);
    let limits = limits.plan(|head| head.headers.get("x-plan")?.to_str().ok());
    let app = App::keyed(limits, |page| page);
    sleep(millis(1_100)).await;
    for (plan, fields) in [(None, ""), (Some("pro"), ", x-plan: pro"), (None, "")] {
        for _ in 0..4 {
            app.send(request("/search", &format!("x-user: alice{fields}")))
                .await;
        }
        sleep(Duration::from_secs(1)).await;
        let row = app.view("limited").await["rows"][0].clone();
        assert_eq!(row.get("plan"), Some(&json!(plan)), "{row}");
    }
}

/// A rule with a plan of so many requests.
fn with_plan(max: u32) -> Rule {
    let pro = Quotas::new([Quota::per_hour(max)]).expect("quotas");
    hourly("search", 2).with_plan("pro", pro).expect("a plan")
}

/// Whoever needs no help any more stands behind those who do.
#[tokio::test(start_paused = true)]
async fn who_is_let_through_stands_behind_the_others() {
    let steps = r#"
        wait 1100; ask alice x9; ask bob x8; ask carol x7; ask dave x6
        let-through alice 60; let-through bob 60; wait 1000
        limited; /rows # 4; /rows/0/key = "carol"; /rows/1/key = "dave"
        /rows/2/key = "alice"; /rows/3/key = "bob"
        let-through alice 0
        limited; /rows # 4; /rows/0/key = "alice"; /rows/1/key = "carol"
        /rows/2/key = "dave"; /rows/3/key = "bob""#;
    let app = App::new(|page| page.allow_changes().show_keys());
    app.play(steps).await;
}

/// The log names the key that was helped, where the page may, and the row of the page always.
#[tokio::test(start_paused = true)]
async fn the_log_names_the_key_where_the_page_shows_keys() {
    let changes = [("let-through", 60), ("let-through", 0), ("reset", 0)];
    let hidden = App::new(Page::allow_changes);
    let shown = App::new(|page| page.allow_changes().show_keys());
    for (app, is_shown) in [(hidden, false), (shown, true)] {
        let left = app.look("alice").await;
        let row = left["row"].as_str().expect("a row");
        for (what, seconds) in changes {
            let log = Log::start();
            app.done(what, about("alice", seconds)).await;
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

/// What a key has used says nothing of why it is held.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_locked_out_or_on_hold_is_shown_as_such() {
    let hour = Duration::from_secs(3_600);
    let lockout = Lockout::after(2).hold([hour]).on(["200"]);
    let locked = hourly("search", 30).with_lockout(lockout).expect("valid");
    let outgoing = hourly("search", 30).with_outgoing().expect("valid");
    let outgoing = outgoing.with_hold_at_most(hour);
    let steps = r#"
        ask alice x3; wait 1000
        limited /rows/0; /busy = false; /locked_out = LOCKED; /on_hold = HELD
        /until_in_s in 3590..3600
        key alice; /DENIED_s in 3590..3600"#;
    for (rule, denied) in [(locked, "locked_out"), (outgoing, "on_hold")] {
        let app = App::keyed(Limits::new([rule]), |page| page);
        sleep(millis(1_100)).await;
        let is_held = denied == "on_hold";
        if is_held {
            let held = app
                .limits
                .hold("search", kit::page::user("alice"), hour)
                .await;
            held.expect("it is held");
        }
        let [held, locked] = [is_held, !is_held].map(|it| it.to_string());
        let steps = steps.replace("HELD", &held).replace("LOCKED", &locked);
        app.play(&steps.replace("DENIED", denied)).await;
    }
}

/// A note is shown where keys are, and a key that no request had is doubted.
#[tokio::test(start_paused = true)]
async fn a_change_has_a_note_and_a_hint() {
    let steps = r#"
        ask alice
        block alice 60 {"note": "why"} = {"ends_in_s": 60.0}
        let-through alcie 60 {"note": "why"}; /ends_in_s = 60.0
        /hint = "no request had this key lately"
        limited; /blocked/0/note = SHOWN; /let_through/0/note = SHOWN"#;
    let hidden = App::new(Page::allow_changes);
    hidden.play(&steps.replace("SHOWN", "null")).await;
    let shown = App::new(|page| page.allow_changes().show_keys());
    shown.play(&steps.replace("SHOWN", "\"why\"")).await;
}

/// A key that is a token is masked, and warned of.
#[tokio::test(start_paused = true)]
async fn a_token_is_not_shown() {
    const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let app = App::new(|page| page.allow_changes().show_keys());
    sleep(millis(1_100)).await;
    for _ in 0..3 {
        app.search(TOKEN).await;
    }
    sleep(millis(1_000)).await;
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

/// Whoever types `alice` would look at a key that nobody has.
#[tokio::test(start_paused = true)]
async fn a_key_without_its_mark_is_told() {
    let key = Header::new("x-user").or(PeerIp);
    let limits = Limits::new([hourly("search", 2)]).key(key);
    let app = App::of(limits, Page::allow_changes);
    let hint = async |what: &str, key: &str| app.done(what, about(key, 60)).await["hint"].clone();
    let told = hint("key", "alice").await;
    let text = told.as_str().expect("a hint");
    assert!(text.contains("header.x-user|"), "{told}");
    for right in ["203.0.113.7", "2001:db8::7"] {
        assert_eq!(hint("key", right).await, Value::Null, "{right}");
    }
    for what in ["key", "reset", "let-through", "block"] {
        assert_eq!(hint(what, "alice").await, told, "{what}");
        app.search("alice").await;
        let right = hint(what, "header.x-user|alice").await;
        assert_eq!(right, Value::Null, "{what}");
    }
}

/// What is stored as a hash only can be looked up by its value, and by its hash.
#[tokio::test(start_paused = true)]
async fn a_secret_is_looked_up_by_its_value() {
    let rules = || [hourly("search", 2)];
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
            let left = app.look(&format!("{mark}{text}")).await;
            assert_eq!(left["quotas"][0]["remaining"], 1, "{left}");
        }
        let found = app.reset(&format!("{mark}a+b/c==")).await;
        assert_eq!(found, json!({"found": true}));
    }
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
                assert_eq!(app.reset(text).await, json!({"found": true}), "{case}");
            }
        }
    }
}

/// A field that is there and empty has a key of its own, which is not that of everyone.
#[tokio::test(start_paused = true)]
async fn an_empty_value_is_looked_up() {
    let limits = || Limits::new([hourly("search", 2)]);
    let user = || Header::new("x-user");
    let seen = r#"/row = $row; /allowed = false; reset {"rule": "search", BY}; /found = true; ask"#;
    for (limits, text) in [
        (limits().key(user()), ""),
        (limits().key(user().or(Everyone)), "header.x-user|"),
    ] {
        let app = App::of(limits, |page| page.allow_changes().show_keys());
        sleep(millis(1_200)).await;
        app.use_up("").await;
        let mut steps = "wait 2000; limited; keep key /rows/0/key; keep row /rows/0/row".to_owned();
        for by in [
            &*format!("\"key\": \"{text}\""),
            "\"key\": $key",
            "\"row\": $row",
        ] {
            let one = format!("use-up; key {{\"rule\": \"search\", BY}}; {seen} = 200");
            steps += &format!("\n{}", one.replace("BY", by));
        }
        app.play(&steps).await;
    }
}

/// The hint says how keys of the rule are written, and only to whoever wrote none.
#[tokio::test(start_paused = true)]
async fn a_hint_names_the_forms_of_the_keys() {
    let hint = async |key: Arc<dyn KeyExtractor>, text: &str| {
        let limits = Limits::new([hourly("search", 2)]).key(key);
        let app = App::of(limits, |page| page);
        app.look(text).await["hint"].as_str().map(str::to_owned)
    };
    let tenant = || Arc::new(Header::new("x-tenant").or(Everyone));
    let told = hint(tenant(), "alice").await.expect("a hint");
    assert!(told.contains("header.x-tenant|"), "{told}");
    assert!(told.contains("everyone"), "{told}");
    assert!(!told.contains("everyone|"), "{told}");
    assert!(!told.contains("address"), "{told}");
    for text in ["everyone", "header.x-tenant|alice", "header.x-tenant|"] {
        assert_eq!(hint(tenant(), text).await, None, "{text}");
    }
    let others = words("everyone| everyone|alice 203.0.113.7 header.x-tenantalice header.x-tenant");
    for text in others.into_iter().chain([""]) {
        assert_eq!(hint(tenant(), text).await.as_ref(), Some(&told), "{text}");
    }
    // A field whose name looks like an address's.
    let real = || Arc::new(Header::new("x-real-ip").or(PeerIp));
    let told = hint(real(), "alice").await.expect("a hint");
    for form in ["header.x-real-ip|", "an address"] {
        assert!(told.contains(form), "{told}");
    }
    assert_eq!(hint(real(), "2001:db8::7").await, None);
    assert_eq!(hint(real(), "header.x-real-ip|alice").await, None);
}

/// A site that a browser has no origin for, and what only begins as one of the page's hosts.
#[tokio::test(start_paused = true)]
async fn an_origin_is_a_host_and_a_port() {
    let hosts = ["admin.example.com", "ops.example.com:8443"];
    let app = App::new(|page| page.allow_changes().hosts(hosts));
    let status = async |origin: &str, host: &str| {
        let mut request = posted("reset", about("alice", 0).to_string());
        for (name, value) in [("origin", origin), ("host", host)] {
            let value = value.parse().expect("a value");
            request.headers_mut().insert(name, value);
        }
        let answer = app.send(request).await;
        (answer.status, answer.json()["error"].clone())
    };
    for origin in words(
        "https://admin.example.com http://admin.example.com https://admin.example.com:8443
        https://admin.example.com:65535 https://ADMIN.example.com:1 https://ops.example.com:8443
        http://127.0.0.1:3000 http://localhost http://localhost:3000 http://[::1]
        http://[::1]:3000",
    ) {
        let host = origin.split_once("://").expect("one").1;
        assert_eq!(status(origin, host).await.0, 200, "{origin}");
        // A proxy may have changed the host of a name in the list.
        for host in [
            "internal",
            "internal:9000",
            "10.0.0.7:9000",
            "admin.example.com",
        ] {
            let is_listed = origin.contains("example.com");
            let expected = if is_listed { 200 } else { 403 };
            assert_eq!(status(origin, host).await.0, expected, "{origin} {host}");
        }
    }
    let long = "a".repeat(4_000);
    let wrong = words(
        "admin.example.com:8443.evil.com admin.example.com:x admin.example.com:99999999
        admin.example.com:65536 admin.example.com: admin.example.com:+80 admin.example.com:-1
        admin.example.com:080 admin.example.com:0x50 admin.example.com:80:80 admin.example.com:80.
        admin.example.com::80 admin.example.com. admin.example.com.evil.com
        admin.example.com,evil.com admin.example.com;evil.com admin.example.com%3A80
        admin.example.com%00.evil.com admin.example.com/ admin.example.com/.evil.com
        admin.example.com?evil.com admin.example.com#evil.com admin.example.com@evil.com
        evil.com@admin.example.com evil.com:80@admin.example.com @admin.example.com example.com
        xadmin.example.com evil.com/admin.example.com ops.example.com:844 ops.example.com:84430
        :@admin.example.com [admin.example.com] [admin.example.com]:80 admin.example.com[::1]
        [::1]admin.example.com [::1].evil.com [::1]:80.evil.com [::1]:x [::1]: [::1 ::1
        127.0.0.1:80.evil.com 127.0.0.1:x 127.0.0.1: 127.0.0.1:+80 127.0.0.1.evil.com localhost:x
        localhost:80.evil.com localhost: localhost.evil.com ops.example.com:8443.evil.com
        ops.example.com:08443 ops.example.com :3000 : * null admin.example.com\\.evil.com",
    );
    for authority in wrong.into_iter().chain(["", &long]) {
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
    let wrong = words(
        "ftp://admin.example.com https:admin.example.com https:///admin.example.com
        //admin.example.com admin.example.com https://https://admin.example.com",
    );
    let several = [
        "https://admin.example.com https://evil.com",
        " https://evil.com, https://admin.example.com",
    ];
    for origin in wrong.into_iter().chain(several) {
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
            let length = app.post(what, &body).await.text.len();
            assert!(length < 1_500, "{what} {body:.40}: {length} bytes");
        }
    }
}

/// Without a plan, the rule's own quotas are looked at.
#[tokio::test(start_paused = true)]
async fn the_plans_of_a_rule_are_told() {
    let app = App::of(Limits::new([with_plan(9)]), |page| page);
    let steps = r#"
        key {"rule": "search", "key": "", "plan": null}; /quotas/0/max = 2; /hint has pro
        key {"rule": "search", "key": "", "plan": "pro"}; /quotas/0/max = 9; /hint = null"#;
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
        app.fleet_of(2).await;
        drop(other);
        app.fleet_of(1).await;
        kit::run(&redis, &format!("ZADD {INDEX} 9e15 ghost"));
        let is_so = async || query::<u64>(&redis, &format!("ZCARD {INDEX}")) == 1;
        eventually("one name", is_so).await;
    }

    /// What code of the application blocks under another path blocks nobody.
    #[tokio::test]
    async fn a_path_without_a_rule_is_warned_of() {
        let redis = Redis::start();
        let app = App::on(&redis, Page::show_keys);
        app.fleet_of(1).await;
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
            other: use-up; app: let-through {"rule": "search", "row": $row, "seconds": 60}"#;
        play(&[("app", &app), ("other", &other)], search, steps).await;
        eventually("let through", async || other.search("").await == 200).await;
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
            .to_string()
        };
        let mut connection = redis.connection();
        for (process, text) in [
            ("a", text(json!(long[..10_000]))),
            ("b", text(json!(7))),
            (&"c".repeat(1_000), text(Value::Null)),
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
        let claimed = |it: &Value| count(&it["processes"]) > Some(1);
        let fleet = app.until("fleet", claimed).await;
        let processes = fleet["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 2, "{fleet:#}");
        for process in &processes[1..] {
            assert!(process.to_string().len() < 4_000, "{process:#}");
        }
        let row = app.view("limited").await["rows"][0].clone();
        assert!(row.to_string().len() < 4_000, "{row:#}");
    }
}
