//! Callers that leave at every moment.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::any;
use futures_util::future::join_all;
use futures_util::stream;
use http::Request;
use http_body_util::BodyExt;
use kit::proxy::{Mode, Proxy};
use tower::ServiceExt;

use super::*;

/// Works for some milliseconds, and then on its body.
fn app(limits: &Limits, wait: Duration) -> Router {
    let handler = any(async || {
        sleep(millis(6)).await;
        Body::from_stream(stream::unfold(0, |part| async move {
            sleep(millis(3)).await;
            let part = (part < 3).then_some(part + 1)?;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"part")), part))
        }))
    });
    Router::new().route("/", handler.layer(limits.layer("p").wait(wait)))
}

async fn send(app: Router) -> u16 {
    let request = Request::post("/").body(Body::empty()).expect("valid");
    let response = app.oneshot(request).await.expect("axum does not fail");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a whole body");
    if status == 200 {
        assert_eq!(body.to_bytes().len(), 12);
    }
    status
}

/// Before, during and after the decision, in the handler, while the body streams, while it waits.
async fn leave_at_every_moment(limits: &Limits) {
    let app = app(limits, PATIENT);
    let mut sent = Vec::new();
    for round in 0..150_u64 {
        let task = tokio::spawn(send(app.clone()));
        let leaves = tokio::spawn(async move {
            sleep(Duration::from_micros(round % 50 * 1_000)).await;
            if round % 5 > 0 {
                task.abort();
            }
            task.await
        });
        sent.push(leaves);
        sleep(millis(2)).await;
    }
    let answers = join_all(sent)
        .await
        .into_iter()
        .map(|it| it.expect("no panic"));
    let answers: Vec<_> = answers.collect();
    let served = answers.iter().flatten().filter(|&&it| it == 200).count();
    let gone = answers.iter().filter(|it| it.is_err()).count();
    assert_eq!(served + gone, 150, "nobody was denied");
    assert!(served >= 30 && gone > 10, "{served} served, {gone} gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_every_moment_leave_no_permit() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = store_at(&proxy.url, PATIENT).await;
    let limits = limits(at_a_time(3), store);
    proxy.all(Mode::Delay {
        calls: millis(4),
        replies: millis(4),
    });
    leave_at_every_moment(&limits).await;
    until_held(&server, 0).await;
    until_free(&limits, "k", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_they_leave_none_either() {
    let limits = limits(at_a_time(3), MemoryStore::new());
    leave_at_every_moment(&limits).await;
    until_free(&limits, "k", 3).await;
}

/// Of checks that wait, half leave when the permit comes back: the others get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_leave_with_the_answer_on_its_way() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = store_at(&proxy.url, PATIENT).await;
    let limits = limits(at_a_time(1), store);
    proxy.all(Mode::Delay {
        calls: millis(5),
        replies: millis(5),
    });
    for at in (0..40).step_by(2) {
        let first = limits.check("p", "k").wait(PATIENT).await.expect("free");
        let ask = || tokio::spawn(limits.check("p", "k").wait(PATIENT).into_future());
        let (leaves, stays) = (ask(), ask());
        sleep(millis(30)).await;
        drop(first);
        sleep(millis(at)).await;
        leaves.abort();
        drop(leaves.await);
        drop(stays.await.expect("no panic").expect("it comes back"));
    }
    until_held(&server, 0).await;
}

/// A permit whose clones live in several tasks goes back with the last of them, and only then.
#[tokio::test]
async fn clones_of_a_permit_are_one() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(1), store);
        let permit = check(&limits, "k").await.expect("free").permit;
        let clones: Vec<_> = (0..20).map(|_| permit.clone()).collect();
        drop(permit);
        for clone in clones {
            assert_eq!(left(&limits, "k").await, 0);
            drop(clone);
        }
        until_free(&limits, "k", 1).await;
    }
    until_held(&server, 0).await;
}

/// The last clone may be dropped where there is no runtime, as a field of something that a thread
/// owns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_dropped_outside_of_a_runtime() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(1), store);
        let permit = check(&limits, "k").await.expect("free").permit;
        std::thread::spawn(move || drop(permit))
            .join()
            .expect("no panic");
        until_free(&limits, "k", 1).await;
    }
    until_held(&server, 0).await;
}
