//! Whatever is posted is answered, in bounds: by what it asks for or by a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::store::{
    Fleet, FleetState, OperatorKey, OperatorKind, PeerReport, Report, StoreFuture,
};

use super::*;
use kit::stub::Stub;

#[tokio::test(start_paused = true)]
async fn what_is_not_the_json_that_it_should_be_is_refused() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let deep_in = format!(
        "{{\"rule\":\"search\",\"key\":{}\"x\"{}}}",
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let bodies = [
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "true",
        "1",
        "\"x\"",
        "{}",
        "nul",
        "{\"rule\":\"search\"}",
        "{\"key\":\"alice\"}",
        "{'rule':'search','key':'alice'}",
        "rule=search&key=alice",
        &deep,
        &deep_in,
        &"{\"rule\":".repeat(10_000),
        "{\"rule\":\"search\",\"key\":\"alice\",\"seconds\":60}x",
        "{\"rule\":\"search\",\"key\":\"\\ud800\",\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":null,\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":17,\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":[\"alice\"],\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":{\"a\":1},\"seconds\":60}",
        "{\"rule\":null,\"key\":\"alice\",\"seconds\":60}",
        "{\"rule\":[\"search\"],\"key\":\"alice\",\"seconds\":60}",
        "{\"rule\":\"search\",\"row\":17,\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":\"alice\",\"plan\":17,\"seconds\":60}",
        "{\"rule\":\"search\",\"key\":\"alice\",\"plan\":\"nothing\",\"seconds\":60}",
        "{\"rule\":\"nothing\",\"key\":\"alice\",\"seconds\":60}",
        "{\"rule\":\"\",\"key\":\"alice\",\"seconds\":60}",
        "{\"rule\":\"search\",\"row\":\"\",\"seconds\":60}",
        "{\"rule\":\"search\",\"row\":\"alice\",\"seconds\":60}",
        "{\"rule\":\"search\",\"row\":\"00000000000000000000000000000000\",\"seconds\":60}",
        "{\"rule\":\"search\",\"row\":\"\\u0000\",\"seconds\":60}",
    ];
    for body in bodies {
        for what in ["key", "reset", "let-through"] {
            let short: String = body.chars().take(80).collect();
            app.post(what, body)
                .await
                .expect_refusal(&format!("{what} {short}"));
        }
    }
    // Bytes that are no text.
    let answer = app
        .send(posted(
            "reset",
            &b"{\"rule\":\"search\",\"key\":\"\xff\"}"[..],
        ))
        .await;
    answer.expect_refusal("no text");
    assert_eq!(app.search("alice").await, 429);
    assert_eq!(app.view("limited").await["let_through"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_key_and_a_row_at_once_are_refused() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    let row = app
        .post("key", json!({"rule": "search", "key": "alice"}))
        .await;
    let row = row.expect_ok("look it up")["row"].clone();
    for what in ["key", "reset", "let-through"] {
        for key in ["bob", "alice"] {
            let body = json!({"rule": "search", "key": key, "row": row, "seconds": 60});
            let answer = app.post(what, body).await;
            answer.expect_refusal(&format!("{what} {key}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_is_whole_seconds_up_to_a_day() {
    let app = App::new(Page::allow_changes);
    app.use_up("alice").await;
    for seconds in [
        "-1",
        "-0.5",
        "1.5",
        "86401",
        "1e300",
        "1e999",
        "\"60\"",
        "null",
        "true",
        "[60]",
        "{}",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "0.0000001",
        "4294967297",
    ] {
        let body = format!("{{\"rule\":\"search\",\"key\":\"alice\",\"seconds\":{seconds}}}");
        app.post("let-through", body).await.expect_refusal(seconds);
        assert_eq!(app.search("alice").await, 429, "{seconds}");
    }
    app.post("let-through", json!({"rule": "search", "key": "alice"}))
        .await
        .expect_refusal("none");
    for seconds in [1, 86_400] {
        let answer = app.let_through("alice", seconds).await.expect_ok("a time");
        assert_eq!(answer["ends_in_s"].as_f64(), Some(seconds as f64));
        assert_eq!(app.search("alice").await, 200);
    }
    let answer = app.let_through("alice", 0).await.expect_ok("an end");
    assert_eq!(answer, json!({"ends_in_s": null}));
    assert_eq!(app.search("alice").await, 429);
    // What is not let through may be ended as well.
    app.let_through("bob", 0)
        .await
        .expect_ok("an end of nothing");
}

/// A key has at most a bounded length, whatever is posted: what is longer than any key is refused.
#[tokio::test]
async fn a_key_of_a_megabyte_is_refused() {
    let server = Redis::start();
    for app in [
        App::new(Page::allow_changes),
        App::on(&server, Page::allow_changes),
    ] {
        app.wait("fleet", PATIENT, |it| it["redis_answers"] != false)
            .await;
        for length in [1_000_000, 64_000, 5_000_000, 20_000_000] {
            let key = "k".repeat(length);
            for body in [
                json!({"rule": "search", "key": key, "seconds": 60}),
                json!({"rule": key, "key": "alice", "seconds": 60}),
                json!({"rule": "search", "row": key, "seconds": 60}),
                json!({"rule": "search", "key": "alice", "plan": key, "seconds": 60}),
                json!({"rule": "search", "key": "alice", "seconds": 60, "more": key}),
            ] {
                for what in ["let-through", "reset", "key"] {
                    let answer = app.post(what, &body).await;
                    let is_refused = (400..500).contains(&answer.status);
                    assert!(is_refused, "{what} {length}: {}", answer.status);
                    assert!(
                        answer.text.len() < 2_000,
                        "{what}: an echo of {}",
                        answer.text.len()
                    );
                }
            }
        }
        let list = app.view("limited").await;
        assert_eq!(list["let_through"], json!([]));
    }
}

/// What no key can be is no reason for harm: neither is it found, nor does it break the list.
#[tokio::test]
async fn odd_keys_are_refused_or_inert() {
    let server = Redis::start();
    for app in [
        App::new(|it| it.allow_changes().show_keys()),
        App::on(&server, |it| it.allow_changes().show_keys()),
    ] {
        app.wait("fleet", PATIENT, |it| it["redis_answers"] != false)
            .await;
        app.use_up("alice").await;
        for key in [
            "a\nb",
            "a\r\nSET x y\r\n",
            "\0",
            "a\0b",
            "{",
            "}",
            "{a}",
            "a{b}c",
            "\u{1f30a}",
            "\u{202e}",
            " ",
            "\t",
            ":",
            "::",
            "a:b",
            "%",
            "%3A",
            "%3a",
            "%zz",
            "#",
            "#00000000000000000000000000000000",
            "\u{feff}",
            "*",
            "search:alice",
            "~fleet",
            "\"",
            "\\",
            "'",
            "<b>",
            "[]",
            "null",
            "\u{7f}",
            "\u{fffd}",
        ] {
            for what in ["key", "reset", "let-through"] {
                let body = json!({"rule": "search", "key": key, "seconds": 60});
                let answer = app.post(what, &body).await;
                assert!(answer.status < 500, "{what} {key:?}: {answer:?}");
                answer.json();
            }
            assert_eq!(app.search("alice").await, 429, "{key:?}");
            let body = json!({"rule": "search", "key": key, "seconds": 0});
            app.post("let-through", body).await;
        }
        // None of them is left, and what is let through now works still.
        app.wait("limited", PATIENT, |it| it["let_through"] == json!([]))
            .await;
        app.let_through("alice", 60).await.expect_ok("let through");
        assert_eq!(app.search("alice").await, 200);
    }
}

/// The empty key is that of rules that count all requests together.
#[tokio::test(start_paused = true)]
async fn the_empty_key_is_everyone() {
    let limits = Limits::new([hourly("search", 2), hourly("all", 2)]);
    let all = limits.layer("all").key(tidegate::key::Everyone);
    let app = App::of(limits, |page| page.allow_changes().show_keys());
    let router = app.router.clone().route("/all", get("all").layer(all));
    let ask = async || send(&router, empty(Method::GET, "/all")).await.status;
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!([ask().await, ask().await, ask().await], [200, 200, 429]);
    sleep(Duration::from_secs(2)).await;
    let limited = app.view("limited").await;
    assert_eq!(limited["rows"][0]["key"], "", "{limited}");
    let body = json!({"rule": "all", "key": "", "seconds": 60});
    app.post("let-through", &body).await.expect_ok("everyone");
    assert_eq!(ask().await, 200);
    let body = json!({"rule": "all", "key": "", "seconds": 0});
    app.post("let-through", &body).await.expect_ok("everyone");
    assert_eq!(ask().await, 429);
    let found = app.post("reset", &body).await.expect_ok("everyone");
    assert_eq!((found, ask().await), (json!({"found": true}), 200));
}

/// At most 1,000 at a time, and the refusal says so.
async fn flood_of_let_throughs(app: &App, number: usize) {
    let mut accepted = 0;
    let mut said = String::new();
    for at in 0..number {
        let answer = app.let_through(&format!("user{at}"), 3_600).await;
        if answer.status == 200 {
            accepted += 1;
        } else {
            assert!((400..500).contains(&answer.status), "{at}: {answer:?}");
            said = answer.expect_refusal("one more");
        }
    }
    assert_eq!(accepted, OperatorKey::MAX);
    assert!(said.contains("1000") || said.contains("1,000"), "{said}");
    let full = |it: &Value| it["let_through"].as_array().map(Vec::len) == Some(1_000);
    app.wait("limited", PATIENT, full).await;
    // One that is there may be prolonged; one that is ended makes room.
    app.let_through("user7", 7_200).await.expect_ok("prolonged");
    app.let_through("user7", 0).await.expect_ok("ended");
    // Until the process has read the list again.
    sleep(Duration::from_millis(2_500)).await;
    app.let_through("another", 60)
        .await
        .expect_ok("there is room");
    app.let_through("yet-another", 60)
        .await
        .expect_refusal("no room");
    app.use_up("user7").await;
    app.use_up("yet-another").await;
    for _ in 0..5 {
        assert_eq!(app.search("another").await, 200);
        assert_eq!(app.search("user999").await, 200);
    }
}

#[tokio::test]
async fn ten_thousand_let_throughs_are_a_thousand_in_memory() {
    flood_of_let_throughs(&App::new(Page::allow_changes), 10_000).await;
}

#[tokio::test]
async fn ten_thousand_let_throughs_are_a_thousand_on_redis() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    flood_of_let_throughs(&app, 10_000).await;
    // Another process of the service is full, too.
    let second = App::on(&server, Page::allow_changes);
    second.in_fleet().await;
    second
        .let_through("third", 60)
        .await
        .expect_refusal("no room");
}

/// On a full list: what is ended makes room, and a refusal means that nothing was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_makes_room_at_once() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    for at in 0..1_000 {
        app.let_through(&format!("user{at}"), 3_600)
            .await
            .expect_ok("there is room");
    }
    for at in 0..500 {
        let (one, next) = (format!("user{at}"), format!("user{}", 1_000 + at));
        app.let_through(&one, 7_200).await.expect_ok("prolonged");
        app.let_through(&one, 0).await.expect_ok("ended");
        app.let_through(&next, 3_600)
            .await
            .expect_ok("there is room");
        app.let_through(&one, 3_600)
            .await
            .expect_refusal("there is no room");
    }
}

/// The actor's panic is a 500, nothing is changed, and the page goes on.
#[tokio::test(start_paused = true)]
async fn an_actor_that_panics_changes_nothing() {
    let app = App::new(|page| page.allow_changes().actor(|_| panic!("zorro")));
    app.use_up("alice").await;
    for what in ["reset", "let-through"] {
        let answer = app
            .post(
                what,
                json!({"rule": "search", "key": "alice", "seconds": 60}),
            )
            .await;
        assert_eq!(answer.status, 500, "{what}: {answer:?}");
        assert!(!answer.text.contains("zorro"), "{answer:?}");
        assert_eq!(app.search("alice").await, 429);
    }
    for view in GET_VIEWS {
        app.view(view).await;
    }
}

/// The part of somebody else's store that shares what processes tell each other, and panics at
/// times.
#[derive(Debug, Clone, Default)]
struct Foreign {
    panics: Arc<Panics>,
}

impl Foreign {
    fn store(&self) -> Stub {
        let store = Stub::in_memory().named("foreign zorro");
        store.with_fleet(self.clone())
    }
}

#[derive(Debug, Default)]
struct Panics {
    report: AtomicBool,
    reports: AtomicBool,
    let_through: AtomicBool,
    garbage: AtomicBool,
}

impl Fleet for Foreign {
    fn report(&self, report: &Report) -> StoreFuture<FleetState> {
        assert!(!self.panics.report.load(Ordering::SeqCst), "report zorro");
        let garbage = OperatorKey {
            kind: OperatorKind::LetThrough,
            path: "search".into(),
            key: "\0{}\n".into(),
            by: Some("x".repeat(1_000_000).into()),
            time: Duration::MAX,
        };
        let list = match self.panics.garbage.load(Ordering::SeqCst) {
            true => vec![garbage; 5_000],
            false => Vec::new(),
        };
        let state = FleetState {
            secret: report.random,
            version: report.known_version.wrapping_add(u64::MAX / 2),
            keys: Some(list),
        };
        StoreFuture::ready(Ok(state))
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        assert!(!self.panics.reports.load(Ordering::SeqCst), "reports zorro");
        let garbage = self.panics.garbage.load(Ordering::SeqCst);
        let texts = [
            "",
            "{",
            "null",
            "[]",
            "{}",
            "\0",
            "{\"rules\":\"x\"}",
            "999999999999999999999",
            "{\"process\":17}",
        ];
        let reported = |text: &&str| PeerReport {
            process: "<script>zorro</script>".into(),
            text: (*text).into(),
            ago: Duration::MAX,
        };
        let reported: Vec<_> = texts.iter().map(reported).collect();
        StoreFuture::ready(Ok(if garbage { reported } else { Vec::new() }))
    }

    fn set_key(&self, _: &OperatorKey) -> StoreFuture<bool> {
        assert!(
            !self.panics.let_through.load(Ordering::SeqCst),
            "let_through zorro"
        );
        StoreFuture::ready(Ok(true))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_takes_no_page_and_no_handler_down() {
    let foreign = Foreign::default();
    let limits = Limits::new([hourly("search", 2)]).store(foreign.store());
    let app = App::of(limits, Page::allow_changes);
    sleep(Duration::from_millis(2_500)).await;
    let ticks = async || app.view("now").await["tick"].as_u64().expect("a number");
    for panics in [
        &foreign.panics.report,
        &foreign.panics.reports,
        &foreign.panics.let_through,
        &foreign.panics.garbage,
    ] {
        panics.store(true, Ordering::SeqCst);
        let before = ticks().await;
        sleep(Duration::from_secs(5)).await;
        for view in GET_VIEWS {
            // Whatever it says, it says it as a page does.
            let answer = app.get(&format!("/limits/api/{view}")).await;
            answer.json();
            assert!(!answer.text.contains("reports zorro"), "{answer:?}");
        }
        if !foreign.panics.let_through.load(Ordering::SeqCst) {
            let answer = app.let_through("alice", 60).await;
            assert!(answer.status == 200 || answer.status >= 500, "{answer:?}");
            answer.json();
        }
        app.search("bob").await;
        assert!(ticks().await >= before + 4, "the page's task is gone");
        panics.store(false, Ordering::SeqCst);
        sleep(Duration::from_secs(3)).await;
        let fleet = app.view("fleet").await;
        assert_eq!(
            fleet["processes"].as_array().map(Vec::len),
            Some(1),
            "{fleet}"
        );
        assert_eq!(app.let_through("alice", 0).await.status, 200, "it heals");
    }
    app.use_up("carol").await;
    sleep(Duration::from_secs(2)).await;
    let limited = app.view("limited").await;
    assert!(limited.to_string().contains("denials"), "{limited}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_when_it_lets_a_key_through_is_answered_with_an_error() {
    let foreign = Foreign::default();
    foreign.panics.let_through.store(true, Ordering::SeqCst);
    let limits = Limits::new([hourly("search", 2)]).store(foreign.store());
    let app = App::of(limits, Page::allow_changes);
    sleep(Duration::from_millis(2_500)).await;
    let answer = app.let_through("alice", 60).await;
    assert!(answer.status >= 500, "{answer:?}");
    answer.json();
}
