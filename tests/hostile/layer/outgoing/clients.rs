//! Clients that are never ready, fail, must be polled first, or answer without an end.

use std::future::{Ready, ready};

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
