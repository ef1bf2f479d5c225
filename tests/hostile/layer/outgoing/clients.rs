//! Clients that are never ready, fail, must be polled first, or answer without an end.

use std::future::{Ready, ready};

use bytes::Bytes;

use super::*;

/// Its clones are not ready, and calls of what is not ready are a mistake.
struct Strict {
    is_ready: bool,
    readiness: fn() -> Poll<Result<(), &'static str>>,
    polled: Arc<AtomicUsize>,
}

impl Strict {
    fn new(readiness: fn() -> Poll<Result<(), &'static str>>) -> Self {
        let polled = Arc::default();
        Self {
            is_ready: false,
            readiness,
            polled,
        }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        let polled = Arc::clone(&self.polled);
        Self {
            polled,
            ..Self::new(self.readiness)
        }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<()>;
    type Error = &'static str;
    type Future = Ready<Result<Response<()>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.polled.fetch_add(1, Ordering::Relaxed);
        let found = (self.readiness)();
        self.is_ready = matches!(found, Poll::Ready(Ok(())));
        found
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was not ready");
        ready(Ok(Response::new(())))
    }
}

fn get() -> Request<()> {
    Request::new(())
}

#[tokio::test(start_paused = true)]
async fn only_a_client_that_is_ready_is_called() {
    let partner = limits(10).outgoing("partner");
    let mut client = partner.layer(Strict::new(|| Poll::Ready(Ok(()))));
    for _ in 0..5 {
        let ready = client.ready().await.expect("always");
        ready.call(get()).await.expect("an answer");
    }
    let mut two = client.clone();
    let (one, other) = tokio::join!(client.call(get()), two.call(get()));
    assert!(one.is_ok() && other.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_broken_says_so_itself() {
    let partner = limits(2).outgoing("partner");
    let client = partner.layer(Strict::new(|| Poll::Ready(Err("broken"))));
    for _ in 0..2 {
        let error = client.clone().oneshot(get()).await;
        let is_right = matches!(error, Err(CallError::Inner("broken")));
        assert!(is_right, "{error:?}");
    }
}

/// A call that waits for a turn does not ask the client, and one that waits for the client is let
/// go of without a trace.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_never_ready() {
    let limits = limits(3);
    let client = Strict::new(|| Poll::Pending);
    let polled = Arc::clone(&client.polled);
    let client = limits.outgoing("partner").wait(HOUR).layer(client);
    hold(&limits, Key::default(), 10 * SECOND).await;
    let call = client.clone().oneshot(get());
    assert!(timeout(9 * SECOND, call).await.is_err());
    assert_eq!(polled.load(Ordering::Relaxed), 0, "it keeps no connection");
    for _ in 0..3 {
        let call = client.clone().oneshot(get());
        assert!(timeout(2 * SECOND, call).await.is_err());
    }
    assert!(polled.load(Ordering::Relaxed) > 0);
    assert_eq!(counters(&limits, "partner").waiting, 0);
}

/// A body that never ends holds back neither the response nor the hold.
#[tokio::test(start_paused = true)]
async fn a_body_without_an_end() {
    struct Endless;
    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }
    let limits = limits(10);
    let client = service_fn(|_: Request<Body>| async {
        let answer = Response::builder().status(429).header("retry-after", "60");
        Ok::<_, Infallible>(answer.body(Endless).expect("valid"))
    });
    let client = limits.outgoing("partner").layer(client);
    let answer = client.clone().oneshot(Request::new(Body::empty()));
    let answer = timeout(SECOND, answer).await.expect("at once");
    settle().await;
    assert_eq!(held(&limits, Key::default()).await, Some(MINUTE));
    drop(answer.expect("an answer"));
    let answer = client.oneshot(Request::new(Body::empty())).await;
    assert!(matches!(answer, Err(CallError::Denied(_))));
}

/// A key that panics, and a client that panics, take nobody else along.
#[tokio::test(start_paused = true)]
async fn panics_stay_with_their_call() {
    let limits = limits(10);
    let client = service_fn(|request: Request<String>| async move {
        assert_ne!(request.body(), "panic");
        Ok::<_, Infallible>(Response::new(()))
    });
    let partner = limits.outgoing("partner").key_by(|head| {
        assert!(!head.headers.contains_key("panic"), "the key");
        Key::from("us")
    });
    let client = partner.layer(client);
    let ask = |name: &'static str, body: &'static str| {
        let client = client.clone();
        let request = Request::builder().header(name, "1").body(body.to_owned());
        tokio::spawn(client.oneshot(request.expect("valid")))
    };
    assert!(ask("panic", "").await.is_err());
    assert!(ask("x", "panic").await.is_err());
    ask("x", "").await.expect("no panic").expect("an answer");
    let counted = counters(&limits, "partner");
    assert_eq!(counted.waiting, 0);
    assert_eq!(counted.decisions(DecisionOutcome::Allowed), 2);
}
