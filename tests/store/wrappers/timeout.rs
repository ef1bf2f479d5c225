//! One bound around everything.

use std::time::Duration;

use test_support::Redis;
use tidegate::decision::Receipt;
use tidegate::store::{StoreErrorKind, Timeout};
use tidegate::{MemoryStore, Store};
use tokio::time::Instant;

use super::flaky_store::Mode;
use super::{FlakyStore, MILLISECOND, SECOND, ask, at_once, failure, take};
use crate::store_on;

const BOUND: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn an_answer_comes_in_time_or_not_at_all() {
    let flaky = FlakyStore::new(Mode::Hangs);
    let store = Timeout::new(flaky.clone(), BOUND);
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

#[tokio::test(start_paused = true)]
async fn what_answers_at_once_needs_no_time() {
    let store = Timeout::new(MemoryStore::new(), Duration::ZERO);
    assert!(at_once(&store, &take()).is_some());
    assert!(ask(&store, &take()).await.is_allowed());
}

/// Whichever of the two clocks strikes first says the same.
#[tokio::test]
async fn redis_is_told_as_well() {
    let server = Redis::start();
    let store = Timeout::new(store_on(&server).await, BOUND);
    assert!(
        format!("{store:?}").contains("timeout: Some(20ms)"),
        "{store:?}"
    );
    server.signal("STOP");
    let began = std::time::Instant::now();
    let error = (&store as &dyn Store).take(&take()).await;
    let error = error.expect_err("it hangs");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(error.to_string().ends_with("did not answer within 20ms"));
    // The store's own time-out was 20 s.
    assert!(began.elapsed() < 15 * SECOND);
    server.signal("CONT");
}
