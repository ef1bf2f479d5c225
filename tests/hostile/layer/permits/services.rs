//! Services that fail, and responses of all kinds.

use std::io;

use super::*;

/// Behind a layer, on a clone of it.
async fn one(limits: &Limits, answer: fn() -> Response) -> Response {
    let service = service_fn(move |_: Request| async move { Ok::<_, Infallible>(answer()) });
    let service = limits.layer("p").layer(service);
    let response = service.oneshot(kit::http::get("/")).await;
    response.expect("it does not fail").into_response()
}

/// Bodies that are empty, that are read, dropped, dropped in the middle, and that fail.
#[tokio::test]
async fn responses_of_all_kinds() {
    on_both(async |store| {
        let limits = limits(at_a_time(1), store);
        let answers: [fn() -> Response; 5] = [
            || StatusCode::NO_CONTENT.into_response(),
            || "text".into_response(),
            || StatusCode::SWITCHING_PROTOCOLS.into_response(),
            || {
                let parts = [Ok(Bytes::from("part")), Err(io::Error::other("broken"))];
                Body::from_stream(stream::iter(parts)).into_response()
            },
            || {
                let parts = stream::iter([Ok::<_, Infallible>(Bytes::from("part"))]);
                Body::from_stream(parts.chain(stream::pending())).into_response()
            },
        ];
        for answer in answers {
            drop(one(&limits, answer).await);
            until_free(&limits, "k", 1).await;
            let mut body = one(&limits, answer).await.into_body();
            // Until its end, or until nothing comes any more.
            while let Some(Some(Ok(_))) = body.frame().now_or_never() {}
            drop(body);
            until_free(&limits, "k", 1).await;
        }
        // A body that ends is enough: its response may live longer.
        let mut body = one(&limits, || "text".into_response()).await.into_body();
        assert_eq!(left(&limits, "k").await, 0, "it streams");
        while body.frame().await.is_some() {}
        until_free(&limits, "k", 1).await;
        drop(body);
    })
    .await;
}

/// A denied request holds nothing, however long its callback takes, and whatever becomes of it.
#[tokio::test]
async fn callbacks_that_take_long() {
    on_both(async |store| {
        for (rule, max) in [(at_a_time(1), 1), (with_quota(1, 2), 2)] {
            let called = Arc::new(tokio::sync::Notify::new());
            let calls = Arc::clone(&called);
            let limits = limits(rule, Arc::clone(&store)).degrade_fn(move |_| {
                calls.notify_one();
                async {
                    sleep(4 * PATIENT).await;
                    StatusCode::TOO_MANY_REQUESTS
                }
            });
            limits.reset("p", "k").await.expect("an answer");
            let first = admitted(&limits, "k").await;
            let denied = kit::http::start(&app(limits.layer("p")), 0, "/", "");
            called.notified().await;
            drop(first);
            limits.reset("p", "k").await.expect("an answer");
            let is_free = async || peeked(&limits, "k").await.last() == Some(&max);
            eventually("the permits are free", is_free).await;
            assert!(!denied.is_finished(), "it still answers");
            denied.abort();
            drop(denied.await);
        }
    })
    .await;
}
