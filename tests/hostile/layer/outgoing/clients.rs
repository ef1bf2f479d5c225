//! Clients that are never ready, or must be polled first.

use kit::Strict;
use kit::http::get;

use super::*;

#[tokio::test(start_paused = true)]
async fn only_a_client_that_is_ready_is_called() {
    let partner = limits(10).outgoing("partner");
    let mut client = partner.layer(Strict::default());
    for _ in 0..5 {
        let ready = client.ready().await.expect("always");
        ready.call(get("/")).await.expect("an answer");
    }
    let mut two = client.clone();
    let (one, other) = tokio::join!(client.call(get("/")), two.call(get("/")));
    assert!(one.is_ok() && other.is_ok());
}

/// A call that waits for a turn does not ask the client, and one that waits for the client is let
/// go of without a trace.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_never_ready() {
    let limits = limits(3);
    let client = Strict::never_ready();
    let polls = Arc::clone(&client.polls);
    let client = limits.outgoing("partner").wait(HOUR).layer(client);
    hold(&limits, Key::default(), 10 * SECOND).await;
    let call = client.clone().oneshot(get("/"));
    assert!(timeout(9 * SECOND, call).await.is_err());
    assert_eq!(polls.load(Ordering::Relaxed), 0, "it keeps no connection");
    for _ in 0..3 {
        let call = client.clone().oneshot(get("/"));
        assert!(timeout(2 * SECOND, call).await.is_err());
    }
    assert!(polls.load(Ordering::Relaxed) > 0);
    assert_eq!(counters(&limits, "partner").waiting, 0);
}
