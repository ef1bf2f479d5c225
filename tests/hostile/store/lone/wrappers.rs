//! Lone takes under a layer and under wrappers: shadow candidates, `Resilient`, the
//! breaker.

use super::*;

/// A request of a rule with a candidate asks about both together: it waits for one round trip, and
/// both count each request, also beside clients that leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_with_a_candidate() {
    const REQUESTS: u64 = 25;
    let (_server, _proxy, store) = far(millis(40)).await;
    let candidate = kit::per_hour("tried", 10);
    let rule = kit::per_hour("tried", MAX).with_shadow(candidate);
    let limits = Limits::new(Rules::from_iter([rule])).store(store.clone());
    let app = app(limits.layer("tried"));
    let (mut fastest, mut answered) = (Duration::MAX, REQUESTS);
    for _ in 0..REQUESTS {
        let began = Instant::now();
        assert_eq!(status(&app, "/").await, StatusCode::OK);
        fastest = fastest.min(began.elapsed());
        // It leaves while both are under way, unless the machine stands still.
        answered += u64::from(timeout(millis(5), status(&app, "/")).await.is_ok());
        sleep(millis(40)).await;
    }
    assert!(fastest < millis(75), "one round trip: {fastest:?}");
    let counted = kit::counters(&limits, "tried");
    let allowed = counted.decisions(DecisionOutcome::Allowed);
    assert_eq!(allowed, answered, "those who waited");
    let mine = Take::new(kit::rule("tried", MAX, HOUR), Key::default());
    let charged = charged(&store, &mine).await;
    assert!(charged > REQUESTS, "those who left, too: {charged}");
    assert!(charged <= 2 * REQUESTS, "none twice: {charged}");
}

/// Callers that leave hold no place among those in flight, and do not open the breaker.
#[tokio::test]
async fn resilient_under_callers_that_leave() {
    let (_server, _proxy, store, mut bystander) = beside_far(millis(10)).await;
    let store = Resilient::new(store).in_flight(2).build();
    let hasty = take(&rule("hasty", MAX, HOUR), "x");
    for round in 0..60_u64 {
        let mut pending = Box::pin(store.take(&hasty));
        let _ = futures_util::poll!(&mut pending);
        sleep(millis(round % 4)).await;
        let mut other = Box::pin(store.take(&hasty));
        let _ = futures_util::poll!(&mut other);
        drop((pending, other));
        let decision = decide(&store, &bystander.take).await;
        assert_eq!(decision.source(), Source::Redis);
        bystander.check(decision);
    }
}

/// The server dies and is back: the breaker lets the first one through that waits.
#[tokio::test]
async fn the_breaker_under_callers_that_leave() {
    let mut server = Redis::start();
    let store = connect(&server.url, TIMEOUT).await;
    let store = Resilient::new(store).build();
    let hasty = take(&rule("hasty", MAX, HOUR), "x");
    let waits = take(&rule("waits", MAX, HOUR), "x");
    for _ in 0..2 {
        server.kill();
        for _ in 0..15 {
            assert!(store.take(&waits).await.is_err(), "it is dead");
        }
        server.restart();
        let is_closed = async || {
            // Each probe's first request may be one that leaves.
            drop(polled_once(&store, &hasty));
            store.take(&waits).await.is_ok()
        };
        within(PATIENT / 4, "the breaker closes", is_closed).await;
    }
}
