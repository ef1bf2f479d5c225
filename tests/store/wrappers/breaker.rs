//! When a breaker opens, what it answers then, and how it looks after the store.

use std::error::Error;

use tokio::time::Instant;

use super::*;

/// A breaker that has just opened, around a store that does this.
pub(crate) async fn open(mode: Mode) -> (Resilient<FlakyStore>, FlakyStore) {
    let (store, flaky) = around(Mode::Fails(Kind::Timeout), |it| it.failures(3));
    fails(&store, 3, Kind::Timeout).await;
    assert_eq!(flaky.asked(), 3);
    flaky.set(mode);
    (store, flaky)
}

#[tokio::test(start_paused = true)]
async fn ten_failures_in_a_row_open_it() {
    let (store, flaky) = around(Mode::Fails(Kind::Timeout), |it| it.failures(10));
    fails(&store, 10, Kind::Timeout).await;
    let began = Instant::now();
    for _ in 0..1_000 {
        let error = failure(&store).await;
        assert_eq!(error.kind(), Kind::Unavailable);
        let text = "the circuit breaker of flaky is open: the store is broken";
        assert_eq!(error.to_string(), text);
        let source = error.source().and_then(|source| source.downcast_ref());
        let source: &StoreError = source.expect("what opened it");
        assert_eq!(source.kind(), Kind::Timeout);
        let at_once = at_once(&store, &take()).expect("without waiting");
        assert_eq!(at_once.expect_err("open").kind(), Kind::Unavailable);
    }
    assert_eq!((flaky.asked(), began.elapsed()), (10, Duration::ZERO));
    assert_eq!(store.name(), "flaky");
}

/// A key that is refused, or a node that is dead: what is asked of others is looked at, too.
#[tokio::test(start_paused = true)]
async fn one_dead_key_does_not_hold_it_open() {
    for kind in [Kind::Timeout, Kind::Unavailable, Kind::Protocol] {
        let store = Resilient::bare(FlakyStore::new(Mode::IsDeadFor(kind))).failures(3);
        let dead = take_of(Rule::new("dead", [Quota::per_second(5)]).expect("valid"));
        for _ in 0..3 {
            let error = store.take(&dead).await.expect_err("dead");
            assert_eq!(error.kind(), kind);
        }
        assert_eq!(failure(&store).await.kind(), Kind::Unavailable, "open");
        let began = Instant::now();
        while let Err(error) = store.take(&take()).await {
            assert!(began.elapsed() < SECOND, "still open: {error}");
            sleep(10 * MILLISECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_end_is_one_of_a_day() {
    let (store, flaky) = around(Mode::Fails(Kind::Timeout), |it| it.failures(1));
    let store = store.probe_every(Duration::MAX);
    assert_eq!(kind(&store).await, Kind::Timeout);
    flaky.set(Mode::Works);
    sleep(24 * 3_600 * SECOND).await;
    assert_eq!(kind(&store).await, Kind::Unavailable);
    sleep(6 * 3_600 * SECOND).await;
    assert!(ask(&store, &take()).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn what_is_about_the_store_opens_it_and_nothing_else_does() {
    use Kind::{Configuration, Full, OutOfMemory, Overloaded, Protocol, ReadOnly, Refused};
    use Kind::{Timeout, Unavailable, WrongType};
    let opening = [Timeout, Unavailable, ReadOnly, OutOfMemory, Protocol];
    let others = [WrongType, Refused, Full, Configuration, Overloaded];
    for (kinds, opens) in [(opening, true), (others, false)] {
        for kind in kinds {
            for mode in [Mode::Fails(kind), Mode::FailsAtOnce(kind)] {
                let store = Resilient::bare(FlakyStore::new(mode)).failures(3);
                fails(&store, 3, kind).await;
                let is_open = failure(&store).await.to_string().contains("breaker");
                assert_eq!(is_open, opens, "{mode:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_begins_the_count_anew_and_a_look_does_not() {
    let (store, flaky) = around(Mode::Works, |it| it.failures(3));
    let fail_twice = async || {
        flaky.set(Mode::Fails(Kind::Timeout));
        fails(&store, 2, Kind::Timeout).await;
        flaky.set(Mode::Works);
    };
    for _ in 0..10 {
        fail_twice().await;
        ask(&store, &take()).await;
    }
    fail_twice().await;
    store.peek(&take()).await.expect("an answer");
    flaky.set(Mode::Fails(Kind::Timeout));
    assert_eq!(kind(&store).await, Kind::Timeout);
    assert_eq!(kind(&store).await, Kind::Unavailable, "three in a row");
}

/// Also those that come before a future is polled.
#[tokio::test(start_paused = true)]
async fn answers_at_once_are_counted() {
    let (store, flaky) = around(Mode::FailsAtOnce(Kind::OutOfMemory), |it| it.failures(3));
    for _ in 0..3 {
        let answer = at_once(&store, &take()).expect("at once");
        assert_eq!(answer.expect_err("fails").kind(), Kind::OutOfMemory);
    }
    flaky.asked();
    assert_eq!(kind(&store).await, Kind::Unavailable);
    flaky.set(Mode::Memory);
    sleep(SECOND).await;
    let answer = at_once(&store, &take()).expect("at once");
    assert!(answer.expect("a decision").is_allowed());
    assert_eq!(flaky.asked(), 0);
}

/// Every 100 to 120 ms, by the take that failed last, and never by one that costs something.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_looks_after_the_store() {
    let (store, flaky) = open(Mode::Fails(Kind::Unavailable)).await;
    sleep(60 * SECOND).await;
    let looks = flaky.looked();
    assert!((498..=600).contains(&looks), "{looks}");
    assert_eq!(flaky.asked(), 0);

    flaky.set(Mode::Works);
    sleep(130 * MILLISECOND).await;
    assert_eq!(flaky.looked(), 1);
    sleep(SECOND).await;
    assert_eq!(flaky.looked(), 0, "it was answered");
    assert!(ask(&store, &take()).await.is_allowed());
    assert_eq!(flaky.memory().len(), 1);
}

/// A look that hangs is given up, so that the next one can be answered.
#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_is_given_up() {
    let (store, flaky) = open(Mode::Hangs).await;
    sleep(10 * SECOND).await;
    let looks = flaky.looked();
    assert!((8..=10).contains(&looks), "{looks}");
    flaky.set(Mode::Works);
    sleep(SECOND + 250 * MILLISECOND).await;
    assert!(ask(&store, &take()).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_key_is_an_answer() {
    let (store, flaky) = open(Mode::Fails(Kind::WrongType)).await;
    sleep(SECOND).await;
    assert_eq!(flaky.looked(), 1);
    assert_eq!(kind(&store).await, Kind::WrongType, "half-open");
    flaky.set(Mode::Works);
    assert!(ask(&store, &take()).await.is_allowed());
}

/// What was asked before it opened, or before it closed, changes nothing after it.
#[tokio::test(start_paused = true)]
async fn late_answers_change_nothing() {
    let (store, flaky) = around(Mode::Holds, |it| it.failures(3));
    let one = take();
    let mut early = Box::pin(store.take(&one));
    assert!(poll_immediate(&mut early).await.is_none());
    flaky.set(Mode::HoldsAndFails(Kind::Timeout));
    let mut failing: Vec<_> = (0..3).map(|_| Box::pin(store.take(&one))).collect();
    for late in &mut failing {
        assert!(poll_immediate(late).await.is_none());
    }
    flaky.set(Mode::Fails(Kind::Timeout));
    fails(&store, 3, Kind::Timeout).await;
    flaky.let_go(1);
    assert!(early.await.is_ok(), "it is decided, only late");
    assert_eq!(kind(&store).await, Kind::Unavailable, "still open");

    flaky.set(Mode::Works);
    sleep(SECOND).await;
    assert!(ask(&store, &take()).await.is_allowed());
    flaky.let_go(3);
    for late in failing {
        assert_eq!(late.await.expect_err("it fails").kind(), Kind::Timeout);
    }
    assert!(ask(&store, &take()).await.is_allowed(), "still closed");
}
