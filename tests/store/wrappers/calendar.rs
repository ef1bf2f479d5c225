//! Wrappers around takes of calendar quotas.

use tidegate::rule::{Period, Policy};
use tidegate::store::Capabilities;

use super::*;

const MONTH_HOURS: u64 = 31 * 24;

fn month(max: u64) -> Take {
    let policy = Policy::calendar(Period::MONTH, max);
    let rule = Rule::with_policies("budget", [policy]).expect("a rule");
    Take::new(rule.into(), Key::default())
}

/// In memory, on tokio's clock; and a fallback of half of it, whose own time a test moves.
fn wrapped() -> (FlakyStore, Resilient<FlakyStore>, ManualClock) {
    let flaky = FlakyStore::new(Mode::Works);
    let clock = clock_at(1_000_000_000_777);
    let local = MemoryStore::new().clock(clock.clone());
    let store = Resilient::bare(flaky.clone()).fallback(Share::of_processes(2));
    (flaky, store.fallback_store(local), clock)
}

/// In each hour of an outage an hour's part of the share.
#[tokio::test]
async fn a_fallback_admits_by_the_hour() {
    let (flaky, store, clock) = wrapped();
    let take = month(2 * 3 * MONTH_HOURS);
    assert_eq!(allowed(&store, &take, 10).await, 10);
    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(allowed(&store, &take, 10).await, 3);
    let denied = ask(&store, &take).await;
    assert_eq!(denied.source(), Source::Fallback);
    let hour = Duration::from_secs(3_600);
    assert!(denied.retry_after().expect("a time") <= hour);
    let dear = ask(&store, &take.clone().with_cost(4)).await;
    assert_eq!(dear.verdict(), Verdict::Denied { retry_after: hour });
    clock.set(clock.now() + 3_600_000_000);
    let charged = ask(&store, &take.clone().with_cost(3)).await;
    assert!(charged.is_allowed());
    let receipt = charged.receipt().expect("a receipt");
    let refunded = store.refund(&take.clone().with_cost(2), &receipt).await;
    assert_eq!(refunded.expect("an answer"), 2);
    assert_eq!(allowed(&store, &take, 10).await, 2);
    store.reset(&take).await.expect_err("the store is gone");
    assert_eq!(allowed(&store, &take, 10).await, 3);

    // A budget of less than a unit an hour waits for the store.
    assert_eq!(allowed(&store, &month(MONTH_HOURS), 10).await, 0);
    flaky.set(Mode::Works);
    assert_eq!(allowed(&store, &take, 10).await, 10);
}

/// What the store said last is kept until the period ends, or the store says otherwise.
#[tokio::test(start_paused = true)]
async fn a_fallback_admits_nothing_of_what_is_used_up() {
    let (flaky, store, _) = wrapped();
    let take = month(2 * 3 * MONTH_HOURS);
    let all = ask(&store, &take.clone().with_cost(2 * 3 * MONTH_HOURS)).await;
    let receipt = all.receipt().expect("it was allowed");
    flaky.set(Mode::Fails(Kind::Timeout));
    let denied = ask(&store, &take).await;
    assert_eq!(denied.source(), Source::Fallback);
    let left = denied.retry_after().expect("a time");
    assert!(left <= all.reset_after() && all.reset_after() - left < SECOND);
    assert_eq!(denied.quotas()[0].remaining(), 0);
    // Another key has its share.
    let bob = Take::new(Arc::clone(take.rule()), Key::from("bob"));
    assert_eq!(allowed(&store, &bob, 10).await, 3);

    flaky.set(Mode::Works);
    store.refund(&take, &receipt).await.expect("an answer");
    assert!(ask(&store, &take.clone().looking()).await.is_allowed());
    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(allowed(&store, &take, 10).await, 3);
}

/// A denial is cached until the end of the month.
#[tokio::test]
async fn a_denial_is_cached() {
    let store = Resilient::bare(FlakyStore::new(Mode::Works)).denial_cache(Duration::MAX);
    let take = month(1);
    assert_eq!(allowed(&store, &take, 3).await, 1);
    let denied = ask(&store, &take).await;
    assert_eq!(denied.source(), Source::Cache);
    let reset = denied.reset_after();
    assert!(denied.retry_after() <= Some(reset) && reset > Duration::ZERO);
}

/// A store that cannot is not asked.
#[tokio::test]
async fn a_store_without_calendars_is_a_mistake() {
    let plain = Stub::around(MemoryStore::new()).capabilities_fn(|_| Capabilities::default());
    let limits = Limits::new([Rule::clone(month(1).rule())]).store(plain);
    let refused = limits.check("budget", Key::default()).await;
    let refused = refused.expect_err("no decision");
    let error = refused.error().expect("an error");
    assert_eq!(error.kind(), Kind::Configuration);
    assert!(
        error.to_string().contains("Capabilities::calendar"),
        "{error}"
    );
}
