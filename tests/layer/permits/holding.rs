//! Who holds a permit, and until when.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tidegate::rule::Policy;
use tidegate::{Key, Limits, MemoryStore, Rule, Store};
use tokio::sync::Notify;

use crate::send;

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn limits(rule: Rule, store: Arc<dyn Store>) -> Limits {
    Limits::new([rule]).store(store)
}

fn one_at_a_time() -> Rule {
    Rule::with_policies("export", [Policy::concurrent(1)]).expect("a valid rule")
}

/// `/` waits to be told to end.
fn app(limits: &Limits, end: &Arc<Notify>) -> Router {
    let end = Arc::clone(end);
    let handler = get(move || {
        let end = Arc::clone(&end);
        async move { end.notified().await }
    });
    Router::new().route("/", handler.layer(limits.layer("export")))
}

async fn peeked(limits: &Limits) -> u64 {
    let left = limits.peek("export", Key::default()).await;
    left.expect("an answer").expect("a rule").remaining()
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_has_ended() {
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>] {
        let limits = limits(one_at_a_time(), store);
        let end = Arc::new(Notify::new());
        let app = app(&limits, &end);
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, "/").await }
        });
        while peeked(&limits).await > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(send(&app, "/").await.status(), DENIED);
        end.notify_one();
        let response = first.await.expect("no panic");
        assert_eq!(response.status(), OK);
        drop(response);
        while peeked(&limits).await == 0 {
            tokio::task::yield_now().await;
        }
        end.notify_one();
        assert_eq!(send(&app, "/").await.status(), OK);
    }
}
