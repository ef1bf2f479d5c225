//! Many calls that wait: for the end of a hold, and whatever happens meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kit::Redis;
use tidegate::MemoryStore;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};

use kit::{PATIENT, behind, connect, owned_rule};

use super::*;

fn per_second(max: u64) -> Rule {
    let rule = owned_rule("partner", max, SECOND).with_outgoing();
    rule.expect("one subject")
}

/// All of them wait for the same end; then they go at the quota's pace, from two processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_hold_is_paced_by_the_quota() {
    const MAX: u64 = 100;
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = connect(&proxy.url, PATIENT).await;
        processes.push(Limits::new([per_second(MAX)]).store(store));
    }
    let hold = processes[0].hold("partner", "us", SECOND);
    assert_eq!(hold.await.expect("held"), SECOND);
    let begun = std::time::Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..500 {
        let partner = processes[number % 2].outgoing("partner").wait(60 * SECOND);
        calls.spawn(async move {
            let turn = partner
                .ready("us")
                .await
                .unwrap_or_else(|it| panic!("refused after {:?}: {it:?}", begun.elapsed()));
            let answered = std::time::Instant::now();
            turn.heard(StatusCode::OK, &HeaderMap::new());
            answered
        });
    }
    let mut turns = calls.join_all().await;
    turns.sort();
    // A reply may be late, and none is early: so of what was answered by then no more is charged.
    let early = turns[0] - begun;
    assert!(early >= millis(900), "the first after {early:?}");
    for (at, turn) in turns.iter().enumerate() {
        let windows = (*turn - begun).saturating_sub(millis(900)).as_secs() + 1;
        assert!(
            (at as u64) < windows * MAX,
            "{at} after {:?}",
            *turn - begun
        );
    }
    for limits in &processes {
        let snapshot = limits.snapshot();
        assert_eq!(snapshot.rule("partner").expect("used").waiting, 0);
    }
}

/// 300 calls of one token: each waits with the patience that it was given.
#[tokio::test(start_paused = true)]
async fn each_call_has_the_patience_that_it_was_given() {
    let limits = limits(1_000);
    limits.hold("partner", "us", SECOND).await.expect("held");
    let mut calls = JoinSet::new();
    for _ in 0..300 {
        let partner = limits.outgoing("partner").wait(60 * SECOND);
        calls.spawn(async move { partner.ready("us").await.is_ok() });
    }
    let turns = calls.join_all().await.into_iter().filter(|it| *it).count();
    assert_eq!(turns, 300);
}

/// 10,000 of one process, in memory: no window holds more than max, and none is left behind. Who
/// finds no place to wait comes again.
#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_the_end() {
    let limits = Limits::new([per_second(500)]).store(MemoryStore::new().tokio_clock());
    limits
        .hold("partner", "us", 7 * SECOND)
        .await
        .expect("held");
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..10_000 {
        let partner = limits.outgoing("partner").wait(100 * SECOND);
        calls.spawn(async move {
            while let Err(refused) = partner.ready("us").await {
                sleep(refused.retry_after().expect("it says when")).await;
            }
            begun.elapsed()
        });
    }
    let mut turns = calls.join_all().await;
    turns.sort();
    assert!(turns[0] >= 7 * SECOND, "{:?}", turns[0]);
    for (at, first) in turns.iter().enumerate() {
        if let Some(last) = turns.get(at + 500) {
            // Timers of tokio have a millisecond.
            assert!(
                *last + millis(1) >= *first + SECOND,
                "{at}: {first:?} {last:?}"
            );
        }
    }
    let last = turns[9_999];
    assert!(last < 40 * SECOND, "the last after {last:?}");
}

/// A hold that comes, is lengthened and lifted while calls wait for room.
#[tokio::test(start_paused = true)]
async fn a_hold_that_changes_under_those_who_wait() {
    let limits = limits(2);
    let partner = limits.outgoing("partner");
    let begun = Instant::now();
    for _ in 0..2 {
        drop(partner.ready("us").await.expect("a turn"));
    }
    let waits = |patience: Duration| {
        let partner = partner.clone().wait(patience);
        tokio::spawn(async move { (partner.ready("us").await.map(drop), begun.elapsed()) })
    };
    let (short, long) = (waits(70 * SECOND), waits(HOUR));
    advance(10 * SECOND).await;
    limits
        .hold("partner", "us", 100 * SECOND)
        .await
        .expect("held");
    let (answer, after) = short.await.expect("no panic");
    let refused = answer.expect_err("it ends too late");
    assert!(
        refused.decision().is_some_and(|it| it.is_on_hold()),
        "{refused}"
    );
    assert!(after <= 71 * SECOND, "{after:?}");
    limits
        .hold("partner", "us", 600 * SECOND)
        .await
        .expect("held");
    sleep(100 * SECOND).await;
    assert!(!long.is_finished());
    assert!(limits.reset("partner", "us").await.expect("an answer"));
    let lifted = begun.elapsed();
    let (answer, after) = long.await.expect("no panic");
    answer.expect("a turn");
    assert!(
        after <= lifted + 2 * SECOND,
        "{after:?}, lifted after {lifted:?}"
    );
}

/// Whoever waits leaves at any instant; the others get what they left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_leave_hold_up_nobody() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    let limits = Limits::new([per_second(50)]).store(connect(&proxy.url, PATIENT).await);
    limits
        .hold("partner", "us", millis(500))
        .await
        .expect("held");
    let turns = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for number in 0..250_u64 {
        let partner = limits.outgoing("partner").wait(60 * SECOND);
        let turns = Arc::clone(&turns);
        calls.spawn(async move {
            let ask = async {
                drop(partner.ready("us").await.expect("a turn"));
                turns.fetch_add(1, Ordering::Relaxed);
            };
            if number % 4 == 0 {
                ask.await;
            } else {
                let _ = tokio::time::timeout(millis(number * 31 % 900), ask).await;
            }
        });
    }
    tokio::time::timeout(PATIENT, calls.join_all())
        .await
        .expect("nobody is stuck");
    assert!(turns.load(Ordering::Relaxed) >= 50);
    let snapshot = limits.snapshot();
    assert_eq!(snapshot.rule("partner").expect("used").waiting, 0);
}
