//! Whatever is posted is answered, in bounds: by what it asks for or by a refusal.

use super::*;

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

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_takes_no_page_and_no_handler_down() {
    let shared = Shared::new(|told| told.step = u64::MAX / 2);
    let app = shared.app_over(Stub::in_memory(), Page::allow_changes);
    sleep(millis(2_500)).await;
    let ticks = async || app.view("now").await["tick"].as_u64().expect("a number");
    for wrong in ["report", "reports", "set_key", "garbage"] {
        shared.told().panics = wrong;
        if wrong == "garbage" {
            let garbage = OperatorKey {
                by: Some("x".repeat(1_000_000).into()),
                note: Some("y".repeat(1_000_000).into()),
                ..operator_key(OperatorKind::LetThrough, "\0{}\n", Duration::MAX)
            };
            shared.told().list = vec![garbage; 5_000];
            let texts =
                r#"|{|null|[]|{}|999999999999999999999|0|{"rules":"x"}|{"process":17}"#.split('|');
            let others = texts.map(|text| PeerReport {
                process: "<script>zorro</script>".into(),
                text: text.replace('0', "\0").into(),
                ago: Duration::MAX,
            });
            shared.told().others = others.collect();
        }
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
        let is_right = is_error || answer.status == 200 && wrong != "set_key";
        assert!(is_right, "{answer:?}");
        answer.json();
        app.search("bob").await;
        assert!(ticks().await >= before + 4, "the page's task is gone");
        shared.told().panics = "";
        shared.told().list.clear();
        shared.told().others.clear();
        // It heals.
        app.play("wait 3000; fleet; /processes # 1; let-through alice 0")
            .await;
    }
    app.play("use-up carol; wait 2000; limited; . has denials")
        .await;
}
