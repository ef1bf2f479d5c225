//! The breaker's task: whose it is, when it ends, and what happens without it.

use tokio::runtime::{Builder, Handle};

use super::breaker::open;
use super::*;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn ended() {
    let began = Instant::now();
    while tasks() > 0 {
        assert!(began.elapsed() < 20 * SECOND, "{} tasks", tasks());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_ends_with_the_last_clone() {
    let (store, flaky) = open(Mode::Hangs).await;
    assert_eq!(tasks(), 1);
    let clone = store.clone();
    drop(store);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 1);
    // While a look is under way, too.
    while flaky.looked() == 0 {
        sleep(MILLISECOND).await;
    }
    drop(clone);
    ended().await;
    assert_eq!(flaky.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_was_answered_and_there_is_never_a_second() {
    let (store, flaky) = open(Mode::Writes(Kind::ReadOnly)).await;
    for _ in 0..50 {
        assert_eq!(tasks(), 1);
        sleep(130 * MILLISECOND).await;
        assert_eq!(tasks(), 0, "half-open");
        assert_eq!(kind(&store).await, Kind::ReadOnly);
    }
    flaky.set(Mode::Works);
    sleep(130 * MILLISECOND).await;
    assert!(ask(&store, &take()).await.is_allowed());
    assert_eq!(tasks(), 0, "closed");
}

/// A store that panics when it is looked at: requests find out instead.
#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_replaced_by_requests() {
    let (store, flaky) = open(Mode::Panics).await;
    sleep(SECOND).await;
    assert_eq!(tasks(), 0);
    flaky.set(Mode::Works);
    assert!(ask(&store, &take()).await.is_allowed());
    assert!(ask(&store, &take()).await.is_allowed());
}

#[test]
fn it_outlives_the_runtime_that_it_opened_in() {
    let runtime = || Builder::new_current_thread().enable_all().build();
    let first = runtime().expect("a runtime");
    let (store, flaky) = first.block_on(open(Mode::Works));
    drop(first);
    let second = runtime().expect("a runtime");
    second.block_on(async {
        sleep(millis(100)).await;
        assert!(ask(&store, &take()).await.is_allowed());
        assert!(ask(&store, &take()).await.is_allowed());
    });
    assert_eq!((flaky.asked(), flaky.looked()), (2, 0));
}

/// Without a runtime nobody looks: one request does, after the time.
#[test]
fn without_a_runtime_a_request_finds_out() {
    let pause = millis(500);
    let flaky = FlakyStore::new(Mode::FailsAtOnce(Kind::Timeout));
    let store = Resilient::bare(flaky.clone()).failures(2);
    let store = store.probe_every(pause);
    let kind = || {
        let answer = at_once(&store, &take()).expect("at once");
        answer.err().map(|error| error.kind())
    };
    assert_eq!([kind(), kind()], [Some(Kind::Timeout); 2]);
    let opened = Instant::now();
    let mut refused = 0;
    while kind() == Some(Kind::Unavailable) {
        refused += 1;
        std::thread::sleep(MILLISECOND);
    }
    assert!(opened.elapsed() >= pause && refused > 0);
    assert_eq!(kind(), Some(Kind::Unavailable), "it has failed");
    flaky.set(Mode::Memory);
    std::thread::sleep(pause);
    assert_eq!([kind(), kind()], [None; 2]);
}
