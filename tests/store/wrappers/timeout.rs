//! One bound around everything.

use tokio::time::Instant;

use super::*;

const BOUND: Duration = millis(20);

#[tokio::test(start_paused = true)]
async fn an_answer_comes_in_time_or_not_at_all() {
    let (store, flaky) = around(Mode::Hangs, |it| it.timeout(BOUND));
    let began = Instant::now();
    let error = failure(&store).await;
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert_eq!(error.to_string(), "flaky did not answer within 20ms");
    assert_eq!(began.elapsed(), BOUND);
    assert_eq!(flaky.under_way(), 0, "nobody works for nobody");

    let began = Instant::now();
    let refund = store.refund(&take(), &Receipt::new(1, 1, 1)).await;
    assert_eq!(refund.expect_err("late").kind(), StoreErrorKind::Timeout);
    assert_eq!(began.elapsed(), BOUND);

    flaky.set(Mode::Slow(BOUND - MILLISECOND));
    assert!(ask(&store, &take()).await.is_allowed());
    flaky.set(Mode::Slow(BOUND + MILLISECOND));
    assert_eq!(failure(&store).await.kind(), StoreErrorKind::Timeout);
}

/// A process that comes to the deadline late gives its lateness back, once the time-out in all.
#[tokio::test(start_paused = true)]
async fn who_comes_late_waits_longer() {
    let (store, flaky) = around(Mode::Hangs, |it| it.timeout(BOUND));
    for (late, more) in [(8 * MILLISECOND, 8 * MILLISECOND), (SECOND, BOUND)] {
        let sleeps = || async {
            tokio::task::yield_now().await;
            tokio::time::advance(BOUND + late).await;
        };
        let began = Instant::now();
        let (error, ()) = tokio::join!(failure(&store), sleeps());
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
        assert_eq!(began.elapsed(), BOUND + late + more);

        flaky.set(Mode::Slow(BOUND + late + more - MILLISECOND));
        let take = take();
        let (decision, ()) = tokio::join!(ask(&store, &take), sleeps());
        assert!(decision.is_allowed());
        flaky.set(Mode::Hangs);
    }
}

#[tokio::test(start_paused = true)]
async fn what_answers_at_once_needs_no_time() {
    let store = Resilient::bare(MemoryStore::new()).timeout(Duration::ZERO);
    assert!(at_once(&store, &take()).is_some());
    assert!(ask(&store, &take()).await.is_allowed());
}

/// Whichever of the two clocks strikes first says the same.
#[tokio::test]
async fn redis_is_told_as_well() {
    let server = Redis::start();
    let store = Resilient::bare(store_on(&server).await).timeout(BOUND);
    let is_right = format!("{store:?}").contains("timeout: Some(20ms)");
    assert!(is_right, "{store:?}");
    server.signal("STOP");
    let began = std::time::Instant::now();
    let error = store.take(&take()).await;
    let error = error.expect_err("it hangs");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(error.to_string().ends_with("did not answer within 20ms"));
    // The store's own time-out was 20 s.
    assert!(began.elapsed() < 15 * SECOND);
    server.signal("CONT");
}
