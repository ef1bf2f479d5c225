//! Requests that wait for their turn.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use futures_util::future::{join_all, select};
use http::StatusCode;
use tidegate::{MemoryStore, RateLimitLayer, Store};
use tokio::time::{Instant, sleep};

use crate::{get, send, status, support};
use tower::ServiceExt;

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", on_get(|| async { "1" }).layer(layer))
}

fn layer(store: &Arc<dyn Store>) -> RateLimitLayer {
    RateLimitLayer::new("paced", Duration::from_secs(1), 2).store(Arc::clone(store))
}

fn paused() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// When each of so many requests at once is answered, and how.
async fn burst(app: &Router, number: usize) -> Vec<(u64, StatusCode)> {
    let began = Instant::now();
    let answers = (0..number).map(|_| async {
        let status = status(app, "/").await;
        (began.elapsed().as_millis() as u64 / 100 * 100, status)
    });
    let mut answers = join_all(answers).await;
    answers.sort_unstable();
    answers
}

#[tokio::test(start_paused = true)]
async fn requests_are_held_for_their_turn_and_no_longer_than_it_helps() {
    let app = app(layer(&paused()).wait(Duration::from_millis(2_500)));
    let (ok, denied) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let expected = [
        (0, ok),
        (0, ok),
        (1_000, ok),
        (1_000, ok),
        // It is known then that those left cannot be served within 2.5 s.
        (2_000, ok),
        (2_000, ok),
        (2_000, denied),
        (2_000, denied),
    ];
    assert_eq!(burst(&app, 8).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_help_is_none() {
    let app = app(layer(&paused()).wait(Duration::from_millis(900)));
    let answers = burst(&app, 5).await;
    assert!(answers.iter().all(|(at, _)| *at == 0), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_and_no_more() {
    let waiting = layer(&paused())
        .most_waiting(3)
        .wait(Duration::from_secs(60));
    let answers = burst(&app(waiting), 10).await;
    let denied =
        |(at, status): &&(u64, StatusCode)| *at == 0 && *status == StatusCode::TOO_MANY_REQUESTS;
    assert_eq!(answers.iter().filter(denied).count(), 5);
    assert_eq!(
        answers
            .iter()
            .filter(|(_, status)| status.is_success())
            .count(),
        5
    );
}

/// Who comes while others wait stands behind them.
#[tokio::test(start_paused = true)]
async fn nobody_is_overtaken() {
    let app = app(layer(&paused()).wait(Duration::from_secs(60)));
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..12 {
        let (app, sender) = (app.clone(), sender.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(at * 130)).await;
            assert_eq!(status(&app, "/").await, StatusCode::OK);
            sender.send(at).expect("is awaited");
        });
    }
    drop(sender);
    let mut served = Vec::new();
    while let Some(at) = order.recv().await {
        served.push(at);
    }
    assert_eq!(served, (0..12).collect::<Vec<_>>());
}

/// A client that goes away takes nothing and holds nobody up.
#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_takes_nothing() {
    let store = paused();
    let app = app(layer(&store).most_waiting(2).wait(Duration::from_secs(60)));
    for _ in 0..2 {
        assert_eq!(status(&app, "/").await, StatusCode::OK);
    }
    for _ in 0..50 {
        let request = app.clone().oneshot(get("/"));
        select(Box::pin(request), Box::pin(sleep(Duration::from_millis(3)))).await;
    }
    sleep(Duration::from_secs(1)).await;
    for _ in 0..2 {
        assert_eq!(status(&app, "/").await, StatusCode::OK);
    }
}

/// On Redis, with the fields of the decision that let it through.
#[tokio::test]
async fn it_works_on_redis() {
    let server = support::Redis::start();
    let store: Arc<dyn Store> = Arc::new(server.store().await);
    let waiting = RateLimitLayer::new("paced", Duration::from_millis(200), 2)
        .store(store)
        .wait(Duration::from_secs(60));
    let app = app(waiting);
    let began = Instant::now();
    let answers = join_all((0..8).map(|_| send(&app, "/"))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.status() == StatusCode::OK)
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.headers().contains_key("ratelimit"))
    );
    assert!(began.elapsed() >= Duration::from_millis(600));
}
