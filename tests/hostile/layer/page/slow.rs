//! Stores that answer late or never, browsers that leave meanwhile, and many changes at once.

use kit::full_log::Log;
use tracing::{Instrument, info_span};

use super::*;

/// An app over a store that takes its time for whatever an operator asks. `None`: for ever.
fn slow_app(late: Option<Duration>) -> App {
    let store = Stub::in_memory()
        .take_fn(move |memory, take| match take.cost() {
            0 => later(late, memory.take(take)),
            _ => memory.take(take),
        })
        .reset_fn(move |memory, take| later(late, memory.reset(take)));
    Shared::new(|told| told.late = [late; 2]).app_over(store, Page::allow_changes)
}

const QUESTIONS: [&str; 3] = ["key", "reset", "let-through"];

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_no_question_unanswered() {
    let app = slow_app(None);
    app.use_up("alice").await;
    for what in QUESTIONS {
        let began = Instant::now();
        let answer = app.post(what, about("alice", 60)).await;
        assert_eq!(answer.status, 503, "{what}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{what}: {answer:?}");
        assert!(began.elapsed() < PATIENT, "{what}: {:?}", began.elapsed());
    }
    sleep(Duration::from_secs(5)).await;
    for view in GET_VIEWS {
        app.view(view).await;
    }
    let steps = r#"
        fleet; /redis_answers = false; /complete = false; limited; /of = "process"
        // Requests notice nothing.
        ask bob = 200"#;
    app.play(steps).await;
}

/// What was asked for may be done by then, so it is done as a whole, and the log says so.
#[tokio::test(start_paused = true)]
async fn a_browser_that_leaves_leaves_no_change_unlogged() {
    let log = Log::start();
    let app = slow_app(Some(SECOND));
    app.use_up("alice").await;
    for (what, said) in [
        ("block", "a key is blocked"),
        ("let-through", "a key is let through"),
        ("reset", "the count of a key was reset"),
    ] {
        let asked = app.post(what, about("alice", 60));
        let asked = asked.instrument(info_span!("request", id = 4711));
        let left = tokio::time::timeout(millis(100), asked);
        assert!(left.await.is_err(), "it is gone before the answer");
        sleep(Duration::from_secs(2)).await;
        let text = log.text();
        let line = text.lines().find(|line| line.contains(said));
        let line = line.unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(line.contains("request{id=4711}"), "{line}");
    }
    // The count was reset, and it is let through.
    app.play("used alice = 0; ask alice = 200; used alice = 0")
        .await;
}

/// Whoever was answered that it may not is right, too.
#[tokio::test(start_paused = true)]
async fn a_change_that_may_have_been_made_is_logged() {
    let log = Log::start();
    let app = slow_app(None);
    for (what, said) in [
        ("let-through", "a key may be let through"),
        ("block", "a key may be blocked"),
        ("reset", "the count of a key may have been reset"),
    ] {
        assert_eq!(app.post(what, about("alice", 60)).await.status, 503);
        assert!(log.text().contains(said), "{what}");
    }
}

/// A client chooses the parts of a key: together they may look like an address, which stands for
/// another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_parts_look_like_an_address_is_that_row() {
    let server = Redis::start();
    let [here, there] = [0, 1].map(|_| App::on(&server, Page::allow_changes));
    let key = Key::default().with("1").with("").with("2");
    while there.limits.check("search", key.clone()).await.is_ok() {}
    let seen = here.until("limited", |it| it["rows"] != json!([])).await;
    let body = json!({"rule": "search", "row": seen["rows"][0]["row"]});
    assert_eq!(here.done("reset", body).await, json!({"found": true}));
    there.limits.check("search", key).await.expect("was reset");
}
