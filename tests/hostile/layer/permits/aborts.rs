//! Callers that leave at every moment.

use super::*;

/// Works for some milliseconds, and then on its body.
fn streaming_app(limits: &Limits) -> Router {
    let handler = any(async || {
        sleep(millis(6)).await;
        Body::from_stream(stream::unfold(0, |part| async move {
            sleep(millis(3)).await;
            let part = (part < 3).then_some(part + 1)?;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"part")), part))
        }))
    });
    Router::new().route("/", handler.layer(limits.layer("p").wait(PATIENT)))
}

/// Before, during and after the decision, in the handler, while the body streams, while it waits.
async fn leave_at_every_moment(limits: &Limits) {
    let app = streaming_app(limits);
    let mut sent = Vec::new();
    for round in 0..150 {
        let task = kit::http::start(&app, 0, "/", "");
        sent.push(tokio::spawn(async move {
            sleep(millis(round % 50)).await;
            if round % 5 > 0 {
                task.abort();
            }
            task.await
        }));
        sleep(millis(2)).await;
    }
    let (mut served, mut gone) = (0, 0);
    for answer in done(sent).await {
        let Ok(answer) = answer else {
            gone += 1;
            continue;
        };
        let seen = (answer.status, answer.body.len());
        assert_eq!(seen, (200, 12), "nobody was denied");
        served += 1;
    }
    assert!(served >= 30 && gone > 10, "{served} served, {gone} gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_every_moment_leave_no_permit() {
    let server = Redis::start();
    let proxy = behind(&server, millis(8)).await;
    let redis: Arc<dyn Store> = Arc::new(store_at(&proxy.url, PATIENT).await);
    for store in [redis, Arc::new(MemoryStore::new())] {
        let limits = limits(at_a_time(3), store);
        leave_at_every_moment(&limits).await;
        until_held(&server, 0).await;
        until_free(&limits, "k", 3).await;
    }
}

/// A permit whose clones live in several tasks goes back with the last of them, and only then, also
/// where there is no runtime, as a field of something that a thread owns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_of_a_permit_are_one() {
    on_both(async |store| {
        let limits = limits(at_a_time(1), store);
        let permit = admitted(&limits, "k").await.permit;
        let mut clones: Vec<_> = (0..20).map(|_| permit.clone()).collect();
        drop(permit);
        while let Some(clone) = clones.pop() {
            assert_eq!(left(&limits, "k").await, 0);
            if clones.is_empty() {
                let thread = std::thread::spawn(move || drop(clone));
                thread.join().expect("no panic");
            }
        }
        until_free(&limits, "k", 1).await;
    })
    .await;
}
