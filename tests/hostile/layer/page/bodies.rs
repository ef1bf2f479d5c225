//! Whatever is posted is answered, in bounds: by what it asks for or by a refusal.

use tidegate::store::OperatorKind;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_not_the_json_that_it_should_be_is_refused() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    let nested = |depth, text: &str| "[".repeat(depth) + text + &"]".repeat(depth);
    let deep_in = nested(20_000, "\"x\"");
    let deep_in = format!("{{\"rule\":\"search\",\"key\":{deep_in}}}");
    let bodies = words(
        r#"{ } [] null true 1 "x" {} nul {"rule":"search"} {"key":"alice"}
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
        for what in ["key", "reset", "let-through"] {
            app.refused(what, body).await;
        }
    }
    // A key and a row at once.
    let row = &app.look("alice").await["row"];
    for what in ["key", "reset", "let-through"] {
        for key in ["bob", "alice"] {
            let body = json!({"rule": "search", "key": key, "row": row, "seconds": 60});
            app.refused(what, body).await;
        }
    }
    let no_text = &b"{\"rule\":\"search\",\"key\":\"\xff\"}"[..];
    let answer = app.send(posted("reset", no_text)).await;
    answer.expect_refusal("no text");
    assert_eq!(app.search("alice").await, 429);
    assert_eq!(app.view("limited").await["let_through"], json!([]));
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

/// An app in memory and one on this server, which may change and show everything.
async fn both(server: &Redis) -> [App; 2] {
    let page = |page: Page| page.allow_changes().show_keys();
    let apps = [App::new(page), App::on(server, page)];
    for app in &apps {
        app.until("fleet", |it| it["redis_answers"] != false).await;
    }
    apps
}

/// What no key can be is no reason for harm: neither is it found, nor does it break the list.
#[tokio::test]
async fn odd_keys_are_refused_or_inert() {
    let odd = "\u{1f30a} \u{202e} \u{feff} \u{7f} \u{fffd} \0 a\0b { } {a} a{b}c : :: a:b % %3A \
        %3a %zz # #00000000000000000000000000000000 * search:alice ~fleet \" \\ ' <b> [] null";
    let blank = ["a\nb", "a\r\nSET x y\r\n", " ", "\t"];
    let server = Redis::start();
    for app in both(&server).await {
        app.use_up("alice").await;
        for key in words(odd).into_iter().chain(blank) {
            for what in ["key", "reset", "let-through"] {
                let answer = app.post(what, about(key, 60)).await;
                assert!(answer.status < 500, "{what} {key:?}: {answer:?}");
                answer.json();
            }
            assert_eq!(app.search("alice").await, 429, "{key:?}");
            app.post("let-through", about(key, 0)).await;
        }
        // None of them is left, and what is let through now works still.
        let steps = "until limited /let_through = []; let-through alice 60; ask alice = 200";
        app.play(steps).await;
    }
}

/// On a full list: what is ended makes room, and a refusal means that nothing was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_makes_room_at_once() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    for at in 0..1_000 {
        app.let_through(&format!("user{at}"), 3_600).await;
    }
    for at in 0..500 {
        let (one, next) = (format!("user{at}"), format!("user{}", 1_000 + at));
        app.let_through(&one, 7_200).await;
        app.let_through(&one, 0).await;
        app.let_through(&next, 3_600).await;
        app.refused("let-through", about(&one, 3_600)).await;
    }
}

/// The actor's panic is a 500, nothing is changed, and the page goes on.
#[tokio::test(start_paused = true)]
async fn an_actor_that_panics_changes_nothing() {
    let app = App::new(|page| page.allow_changes().actor(|_| panic!("zorro")));
    app.use_up("alice").await;
    for what in ["reset", "let-through"] {
        let answer = app.post(what, about("alice", 60)).await;
        assert_eq!(answer.status, 500, "{what}: {answer:?}");
        assert!(!answer.text.contains("zorro"), "{answer:?}");
        assert_eq!(app.search("alice").await, 429);
    }
    for view in GET_VIEWS {
        app.view(view).await;
    }
}

/// What goes wrong in the part of somebody else's store that shares what processes tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    PanicOfReport,
    PanicOfReports,
    PanicOfLetThrough,
    Garbage,
}

#[derive(Debug, Clone)]
struct Foreign(Arc<Mutex<Wrong>>);

impl Foreign {
    /// An app over such a store.
    async fn start() -> (Self, App) {
        let foreign = Self(Arc::new(Mutex::new(Wrong::Nothing)));
        let store = Stub::in_memory().named("foreign zorro");
        let store = store.with_fleet(foreign.clone());
        let limits = Limits::new([hourly("search", 2)]).store(store);
        let app = App::keyed(limits, Page::allow_changes);
        sleep(millis(2_500)).await;
        (foreign, app)
    }

    fn set(&self, wrong: Wrong) {
        *self.0.lock().expect("no panic") = wrong;
    }

    fn is(&self, wrong: Wrong) -> bool {
        *self.0.lock().expect("no panic") == wrong
    }
}

impl Fleet for Foreign {
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState> {
        assert!(!self.is(Wrong::PanicOfReport), "report zorro");
        let garbage = OperatorKey {
            kind: OperatorKind::LetThrough,
            path: "search".into(),
            key: "\0{}\n".into(),
            by: Some("x".repeat(1_000_000).into()),
            note: Some("y".repeat(1_000_000).into()),
            only: [].into(),
            time: Duration::MAX,
        };
        let number = if self.is(Wrong::Garbage) { 5_000 } else { 0 };
        StoreFuture::ready(Ok(FleetState {
            secret: report.random,
            version: report.known_version.wrapping_add(u64::MAX / 2),
            deciding: 1,
            keys: Some(vec![garbage; number]),
        }))
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        assert!(!self.is(Wrong::PanicOfReports), "reports zorro");
        let texts = match self.is(Wrong::Garbage) {
            true => {
                r#"|{|null|[]|{}|999999999999999999999|0|{"rules":"x"}|{"process":17}"#.split('|')
            }
            false => return StoreFuture::ready(Ok(Vec::new())),
        };
        let reported = texts.map(|text| PeerReport {
            process: "<script>zorro</script>".into(),
            text: text.replace('0', "\0").into(),
            ago: Duration::MAX,
        });
        StoreFuture::ready(Ok(reported.collect()))
    }

    fn set_key(&self, _: &OperatorKey) -> StoreFuture<bool> {
        assert!(!self.is(Wrong::PanicOfLetThrough), "let_through zorro");
        StoreFuture::ready(Ok(true))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_takes_no_page_and_no_handler_down() {
    let (foreign, app) = Foreign::start().await;
    let ticks = async || app.view("now").await["tick"].as_u64().expect("a number");
    for wrong in [
        Wrong::PanicOfReport,
        Wrong::PanicOfReports,
        Wrong::PanicOfLetThrough,
        Wrong::Garbage,
    ] {
        foreign.set(wrong);
        let before = ticks().await;
        sleep(Duration::from_secs(5)).await;
        for view in GET_VIEWS {
            // Whatever it says, it says it as a page does.
            let answer = app.get_view(view).await;
            answer.json();
            assert!(!answer.text.contains("reports zorro"), "{answer:?}");
        }
        let answer = app.post("let-through", about("alice", 60)).await;
        let is_error = answer.status >= 500;
        let is_right = is_error || answer.status == 200 && wrong != Wrong::PanicOfLetThrough;
        assert!(is_right, "{answer:?}");
        answer.json();
        app.search("bob").await;
        assert!(ticks().await >= before + 4, "the page's task is gone");
        foreign.set(Wrong::Nothing);
        sleep(Duration::from_secs(3)).await;
        let fleet = app.view("fleet").await;
        assert_eq!(count(&fleet["processes"]), Some(1), "{fleet}");
        // It heals.
        app.let_through("alice", 0).await;
    }
    app.use_up("carol").await;
    sleep(Duration::from_secs(2)).await;
    let limited = app.view("limited").await;
    assert!(limited.to_string().contains("denials"), "{limited}");
}
