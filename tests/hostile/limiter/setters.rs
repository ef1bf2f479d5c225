//! `rate` of processes that disagree: the newest start wins.

use crate::*;

fn with(on: impl Into<LimiterBackend>, rate: Rate) -> RateLimiter {
    RateLimiter::new(on, "setters").rate(rate)
}

/// A rate that is forgotten by its keep-alive time, by `FLUSHALL` or by hand: whichever process
/// comes first sets its own, and the newest start's stands from its next use on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_forgotten() {
    const INTERVAL: Duration = millis(100);
    // Longer than a busy machine stands still.
    const KEPT: Duration = millis(1_500);
    let server = Server::start();
    let kept = |permits| {
        let rate = overall(permits, INTERVAL).with_keep_alive(KEPT);
        rate.expect("a rate")
    };
    let (one, other) = (handle(&server.url).await, handle(&server.url).await);
    let old = with(&one, kept(30));
    assert!(old.takes(1).await);
    sleep(millis(5)).await;
    let new = with(&other, kept(20));
    assert!(new.takes(1).await);
    for round in 0..6 {
        match round % 3 {
            0 => sleep(KEPT + millis(500)).await,
            1 => run(&server, "FLUSHALL"),
            _ => run(&server, "DEL setters"),
        }
        assert!(!old.is_there().await, "round {round}");
        let (first, second) = if round % 2 == 0 {
            (&old, &new)
        } else {
            (&new, &old)
        };
        sleep(INTERVAL).await;
        assert!(first.takes(1).await, "round {round}");
        let rate = first.stored().await;
        assert_eq!(rate, if round % 2 == 0 { 30 } else { 20 });
        assert!(second.takes(1).await, "round {round}");
        assert_eq!(old.stored().await, 20, "the newest start's, round {round}");
        assert!(old.takes(1).await, "round {round}");
        assert_eq!(old.stored().await, 20, "they do not take turns");
        let left = new.remaining().await.expect("an answer");
        // A server's clock of commands may be a millisecond behind that of its scripts.
        let most = KEPT + millis(1);
        assert!(left.is_some_and(|left| left <= most), "{left:?}");
    }
    sleep(KEPT + millis(1_700)).await;
    check_expiries(&server, &[]);
}
