//! All of them together.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate::decision::Source;
use tidegate::rule::Share;
use tidegate::store::StoreErrorKind as Kind;
use tidegate::{MemoryStore, Resilient, Store};
use tokio::time::{Instant, sleep};

use super::flaky_store::Mode;
use super::{FlakyStore, MILLISECOND, SECOND, ask, at_once, kind, take};

#[tokio::test(start_paused = true)]
async fn the_defaults() {
    let flaky = FlakyStore::new(Mode::Slow(SECOND));
    let store = Resilient::around(flaky.clone()).build();
    let asked = take();
    let answers = join_all((0..1_500).map(|_| store.take(&asked))).await;
    let kinds: Vec<_> = answers
        .into_iter()
        .filter_map(|answer| answer.err().map(|error| error.kind()))
        .collect();
    assert_eq!(kinds, [Kind::Overloaded; 1_500 - 1_024]);
    assert!(ask(&store, &take()).await.failure().is_none());

    flaky.set(Mode::Fails(Kind::Timeout));
    for _ in 0..10 {
        assert_eq!(kind(&store).await, Kind::Timeout);
    }
    assert_eq!(kind(&store).await, Kind::Unavailable);
    assert!(!store.has_fallback());
    assert_eq!(store.name(), "flaky");
}

#[tokio::test(start_paused = true)]
async fn each_part_can_be_set_and_switched_off() {
    let flaky = FlakyStore::new(Mode::Hangs);
    let bare = Resilient::around(flaky.clone())
        .in_flight(None)
        .failures(None);
    let store = bare.clone().timeout(20 * MILLISECOND).build();
    let began = Instant::now();
    let asked = take();
    let answers = join_all((0..2_000).map(|_| store.take(&asked))).await;
    for answer in answers {
        assert_eq!(answer.expect_err("late").kind(), Kind::Timeout);
    }
    assert_eq!(began.elapsed(), 20 * MILLISECOND);

    flaky.set(Mode::Fails(Kind::ReadOnly));
    let store = bare.clone().fallback(Share::of_processes(4)).build();
    assert!(store.has_fallback());
    for _ in 0..20 {
        let decision = ask(&store, &take()).await;
        let failure = decision.failure().expect("it is from the fallback");
        assert_eq!(failure.kind(), Kind::ReadOnly, "there is no breaker");
    }

    let store = bare.failures(2).probe_every(SECOND).build();
    assert_eq!(kind(&store).await, Kind::ReadOnly);
    assert_eq!(kind(&store).await, Kind::ReadOnly);
    flaky.looked();
    sleep(10 * SECOND).await;
    assert!((8..=10).contains(&flaky.looked()));
}

/// A store that hangs costs the first requests their time, and the others nothing; it decides again
/// when it can.
#[tokio::test(start_paused = true)]
async fn an_outage_from_end_to_end() {
    let flaky = FlakyStore::new(Mode::Works);
    let store = Resilient::around(flaky.clone())
        .timeout(50 * MILLISECOND)
        .fallback(Share::of_processes(2))
        .build();
    let ask = async || {
        let began = Instant::now();
        let decision = ask(&store, &take()).await;
        (decision.source(), began.elapsed())
    };
    assert_eq!(ask().await, (Source::Local, Duration::ZERO));
    flaky.set(Mode::Hangs);
    for _ in 0..10 {
        assert_eq!(ask().await, (Source::Fallback, 50 * MILLISECOND));
    }
    for _ in 0..1_000 {
        assert_eq!(ask().await, (Source::Fallback, Duration::ZERO));
        sleep(9 * MILLISECOND).await;
    }
    flaky.set(Mode::Works);
    let began = Instant::now();
    while ask().await.0 == Source::Fallback {
        sleep(MILLISECOND).await;
    }
    assert!(
        began.elapsed() <= 300 * MILLISECOND,
        "{:?}",
        began.elapsed()
    );
}

/// What answers at once does so through all of them.
#[tokio::test]
async fn memory_stays_memory() {
    let store = Resilient::around(MemoryStore::new()).fallback(Share::of_processes(2));
    let store = store.timeout(SECOND).build();
    let decision = at_once(&store, &take()).expect("at once").expect("decided");
    assert_eq!(decision.source(), Source::Local);
    assert_eq!(store.name(), "memory");
}
