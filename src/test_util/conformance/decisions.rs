//! What a store has to answer to takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::{MICROSECOND, SECOND, StoreUnderTest, allowed, quota};
use crate::decision::{Decision, Source, Verdict};
use crate::key::{Everyone, Key};
use crate::rule::{Rule, Subject};
use crate::take::Take;

/// Law 1, at its simplest: `max` in a window, and not one more.
pub(super) async fn never_more_than_max(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(subject.allowed(&take, 12).await, 5);
    subject.advance(10 * SECOND - MICROSECOND);
    assert_eq!(subject.allowed(&take, 12).await, 0);
    subject.advance(MICROSECOND);
    assert_eq!(subject.allowed(&take, 12).await, 5);
}

/// Law 1, in every window and not only in aligned ones.
pub(super) async fn every_window_holds(subject: &StoreUnderTest<'_>) {
    let window = 10 * SECOND;
    let take = subject.take("p", &[quota(7, window)]);
    let mut admissions: Vec<(u64, u64)> = Vec::new();
    for step in 0..400_u64 {
        subject.advance(Duration::from_micros(37_013 * (step % 11)));
        let cost = 1 + step % 3;
        let decision = subject.decision(&take.clone().with_cost(cost)).await;
        if decision.is_allowed() {
            admissions.push((subject.elapsed(), cost));
        }
    }
    assert!(admissions.len() > 20);
    let micros = 10_000_000;
    for (end, _) in &admissions {
        let inside = admissions
            .iter()
            .filter(|(at, _)| at <= end && at + micros > *end);
        assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= 7);
    }
}

/// Law 2: a take that is denied changes nothing, however often it comes. A cache may repeat a
/// denial, and says that it does.
pub(super) async fn denied_means_untouched(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(2, SECOND)]);
    subject.allowed(&take, 2).await;
    subject.advance(SECOND / 2);
    let first = subject.decision(&take).await;
    for _ in 0..50 {
        let again = subject.decision(&take).await;
        assert_eq!(again.with_source(first.source()), first);
    }
    subject.advance(SECOND / 2);
    assert_eq!(subject.allowed(&take, 3).await, 2);
}

/// Whether a denial says this time, or if a fallback decided, a few seconds: the store that does
/// not answer may have room before.
fn waits(denied: &Decision, time: Duration) -> bool {
    let is_short = denied.retry_after() <= Some(6 * SECOND);
    denied.retry_after() == Some(time) || denied.source() == Source::Fallback && is_short
}

/// Law 3: allowed exactly at the announced instant, denied a microsecond before.
pub(super) async fn retry_after_is_the_truth(subject: &StoreUnderTest<'_>) {
    let quotas = [quota(10, SECOND), quota(15, 7 * SECOND)];
    let take = subject.take("p", &quotas);
    let mut denials = 0;
    for step in 0..300_u64 {
        subject.advance(Duration::from_micros(7_919 * (step % 17)));
        let take = take.clone().with_cost(1 + step % 6);
        let decision = subject.decision(&take).await;
        if let Some(retry_after) = decision.retry_after() {
            denials += 1;
            if decision.source() == Source::Fallback {
                continue;
            }
            subject.advance(retry_after - MICROSECOND);
            let early = subject.decision(&take).await;
            assert_eq!(early.retry_after(), Some(MICROSECOND));
            subject.advance(MICROSECOND);
            assert!(subject.decision(&take).await.is_allowed());
        }
    }
    assert!(denials > 20);
}

pub(super) async fn reset_after_is_the_truth(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(3, SECOND)]);
    subject.decision(&take).await;
    subject.advance(SECOND / 4);
    let decision = subject.decision(&take).await;
    assert_eq!((decision.remaining(), decision.reset_after()), (1, SECOND));
    subject.advance(SECOND - MICROSECOND);
    let before = subject.peek(&take).await;
    assert_eq!((before.remaining(), before.reset_after()), (2, MICROSECOND));
    subject.advance(MICROSECOND);
    let after = subject.peek(&take).await;
    assert_eq!(after.remaining(), 3);
    assert_eq!(after.reset_after(), Duration::ZERO);
}

pub(super) async fn peeking_charges_nothing(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(2, SECOND)]);
    for _ in 0..5 {
        let decision = subject.peek(&take).await;
        assert!(decision.is_allowed());
        assert_eq!(decision.remaining(), 2);
    }
    assert_eq!(subject.allowed(&take, 5).await, 2);
    assert_eq!(subject.peek(&take).await.remaining(), 0);
}

/// Also after a quota was lowered: looking is always allowed.
pub(super) async fn peeking_is_never_denied(subject: &StoreUnderTest<'_>) {
    let five = subject.take("p", &[quota(5, SECOND)]);
    assert_eq!(subject.allowed(&five, 5).await, 5);
    let two = subject.take("p", &[quota(2, SECOND)]);
    let decision = subject.peek(&two).await;
    assert!(decision.is_allowed());
    assert_eq!(decision.remaining(), 0);
}

pub(super) async fn costs_are_weights(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(10, SECOND)]);
    let six = take.clone().with_cost(6);
    assert!(subject.decision(&six).await.is_allowed());
    let denied = subject.decision(&six).await;
    assert_eq!((denied.is_allowed(), denied.remaining()), (false, 4));
    assert_eq!(subject.allowed(&take, 10).await, 4);

    // More units than 32 bits hold.
    let large = subject.take("large", &[quota(10_000_000_000, SECOND)]);
    let most = large.clone().with_cost(9_000_000_000);
    assert!(subject.decision(&most).await.is_allowed());
    assert!(!subject.decision(&most).await.is_allowed());
    assert_eq!(subject.peek(&large).await.remaining(), 1_000_000_000);
}

pub(super) async fn what_can_never_be_has_no_retry_after(subject: &StoreUnderTest<'_>) {
    let five = subject.take("five", &[quota(5, SECOND)]);
    let never = subject.decision(&five.clone().with_cost(6)).await;
    assert_eq!(never.verdict(), Verdict::Never);
    assert_eq!((never.retry_after(), never.remaining()), (None, 5));

    let none = subject.take("none", &[quota(0, SECOND)]);
    assert_eq!(subject.decision(&none).await.verdict(), Verdict::Never);
    let huge = five.with_cost(u64::MAX);
    assert_eq!(subject.decision(&huge).await.verdict(), Verdict::Never);
}

/// All quotas are charged, or none: a take that the second one denies must not use up the first.
pub(super) async fn quotas_are_charged_together(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(3, SECOND), quota(5, 60 * SECOND)]);
    assert_eq!(subject.allowed(&take, 9).await, 3);
    subject.advance(SECOND);
    assert_eq!(subject.allowed(&take, 9).await, 2);
    let denied = subject.decision(&take).await;
    let remaining = denied.quotas().iter().map(|state| state.remaining());
    assert!(remaining.eq([1, 0]), "{denied:?}");
    let exceeded = denied.quotas().iter().map(|state| state.is_exceeded());
    assert!(exceeded.eq([false, true]), "only the second denied it");
    assert!(waits(&denied, 59 * SECOND), "{denied:?}");
}

pub(super) async fn keys_and_paths_are_counted_apart(subject: &StoreUnderTest<'_>) {
    let one = subject.take("one", &[quota(1, SECOND)]);
    let of = |key: Key| Take::new(Arc::clone(one.rule()), key);
    let keys = [
        Key::default(),
        Key::from(""),
        Key::from("a"),
        Key::from("a").with("b"),
        Key::from("a:b"),
    ];
    for key in keys {
        assert_eq!(subject.allowed(&of(key), 3).await, 1);
    }
    let other = subject.take("one:a", &[quota(1, SECOND)]);
    assert_eq!(subject.allowed(&other, 3).await, 1);
}

/// Takes that are asked before any answer is awaited are all decided, and none twice.
pub(super) async fn takes_asked_at_once_are_all_decided(subject: &StoreUnderTest<'_>) {
    let four = subject.take("four", &[quota(4, SECOND)]);
    let one = subject.take("one", &[quota(1, SECOND)]);
    let takes = [&four, &one].repeat(6);
    let decisions = try_join_all(takes.iter().map(|take| subject.store.take(take))).await;
    let decisions = decisions.expect("decisions");
    let allowed = |take: &Take| {
        let asked = takes.iter().zip(&decisions);
        let of_rule = asked.filter(|(asked, _)| asked.rule().path() == take.rule().path());
        of_rule
            .filter(|(_, decision)| decision.is_allowed())
            .count()
    };
    assert_eq!((allowed(&four), allowed(&one)), (4, 1));
}

/// A rule that changes keeps what was counted.
pub(super) async fn a_changed_rule_keeps_the_count(subject: &StoreUnderTest<'_>) {
    let five = subject.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(subject.allowed(&five, 9).await, 5);
    let eight = subject.take("p", &[quota(8, 10 * SECOND)]);
    assert_eq!(subject.allowed(&eight, 9).await, 3);
    let two = subject.take("p", &[quota(2, 10 * SECOND)]);
    assert_eq!(subject.decision(&two).await.remaining(), 0);
    let longer = subject.take("p", &[quota(8, 60 * SECOND)]);
    subject.advance(9 * SECOND);
    let denied = subject.decision(&longer).await;
    assert!(waits(&denied, 51 * SECOND), "{denied:?}");
}

/// A day's quota beside a second's on one count, or a day that becomes a second and a day again:
/// the day's is not refilled.
pub(super) async fn a_longer_window_is_not_forgotten(subject: &StoreUnderTest<'_>) {
    let day = subject.take("p", &[quota(3, 86_400 * SECOND)]);
    let second = subject.take("p", &[quota(100, SECOND)]);
    assert_eq!(subject.allowed(&day, 5).await, 3);
    for _ in 0..20 {
        subject.advance(3600 * SECOND + 77 * MICROSECOND);
        assert_eq!(subject.allowed(&second, 150).await, 100);
        assert_eq!(subject.allowed(&day, 2).await, 0);
    }
    // A day after its last charge nothing of it is left.
    subject.advance(5 * 3600 * SECOND);
    assert_eq!(subject.allowed(&day, 5).await, 3);
}

/// A request at a cost of 0 is no look: it fits while no more than max is used, is charged nothing,
/// and waits for units that are owed.
pub(super) async fn what_costs_nothing_is_decided(subject: &StoreUnderTest<'_>) {
    let closed = subject.take("closed", &[quota(0, SECOND)]).with_cost(0);
    assert_eq!(subject.decision(&closed).await.verdict(), Verdict::Never);
    let take = subject.take("p", &[quota(4, 4 * SECOND)]);
    let free = take.clone().with_cost(0);
    let first = subject.decision(&free).await;
    assert!(first.is_allowed(), "{first:?}");
    let receipt = first.receipt().expect("it is allowed");
    assert_eq!(receipt.units(), 0);
    assert_eq!(subject.peek(&take).await.remaining(), 4);
    assert_eq!(subject.allowed(&take, 5).await, 4);
    assert_eq!(subject.allowed(&free, 3).await, 3, "none is owed");
    if !subject.store.capabilities().owes {
        return;
    }
    let owed = subject.store.owe(&take.clone().with_cost(3), &receipt);
    assert_eq!(owed.await.expect("an answer"), 3);
    let denied = subject.decision(&free).await;
    let wait = denied.retry_after().expect("it is denied");
    assert!(denied.quotas()[0].is_exceeded());
    assert!(subject.peek(&take).await.is_allowed(), "a look is not");
    subject.advance(wait - MICROSECOND);
    assert!(!subject.decision(&free).await.is_allowed());
    subject.advance(MICROSECOND);
    assert!(subject.decision(&free).await.is_allowed());
}

/// The counts of a joint take are charged together, or none is: a denial tells what is left of
/// those that had room. They are given back together.
pub(super) async fn counts_are_charged_together(subject: &StoreUnderTest<'_>) {
    let limited = |name, max| Subject::new(name, Everyone).limit(quota(max, 10 * SECOND));
    let rule = Rule::joint("joint", [limited("user", 4), limited("all", 9)]);
    let rule = Arc::new(rule.expect("valid").with_algorithm(subject.algorithm));
    let of = |user: &str, cost| {
        let keys = [("user", Key::from(user)), ("all", Key::default())];
        let take = Take::of_subjects(Arc::clone(&rule), keys);
        take.expect("its subjects").with_cost(cost)
    };
    let left = |of: Decision| [0, 1].map(|at| of.quotas()[at].remaining());
    assert_eq!(subject.allowed(&of("alice", 2), 3).await, 2);
    let first = subject.decision(&of("bob", 2)).await;
    let receipt = first.receipt().expect("it was charged");
    assert_eq!(left(first), [2, 3]);
    let denied = subject.decision(&of("carol", 4)).await;
    assert!(!denied.is_allowed());
    assert_eq!(left(denied), [4, 3]);
    assert_eq!(left(subject.peek(&of("carol", 4)).await), [4, 3]);
    assert_eq!(subject.refund(&of("bob", 9), &receipt).await, 2);
    assert_eq!(left(subject.peek(&of("bob", 1)).await), [4, 5]);
}

/// Law 1 under concurrency: many tasks on many threads, and exactly `max` get through.
pub(super) async fn exact_under_concurrency(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(100, 3600 * SECOND)]);
    let admitted = Arc::new(AtomicUsize::new(0));
    let tasks = (0..64).map(|_| {
        let (store, take) = (Arc::clone(&subject.store), take.clone());
        let admitted = Arc::clone(&admitted);
        tokio::spawn(async move {
            let mine = allowed(&*store, &take, 20).await;
            admitted.fetch_add(mine, Ordering::Relaxed);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(admitted.load(Ordering::Relaxed), 100);
}

/// Every minute a unit, after a burst.
pub(super) async fn a_burst_and_then_the_rate(subject: &StoreUnderTest<'_>) {
    let smooth = quota(60, 3600 * SECOND).with_burst(10).expect("valid");
    let take = subject.take("p", &[smooth]);
    assert_eq!(subject.allowed(&take, 20).await, 10);
    for _ in 0..5 {
        let denied = subject.decision(&take).await;
        assert!(waits(&denied, 60 * SECOND), "{denied:?}");
        subject.advance(60 * SECOND - MICROSECOND);
        assert_eq!(subject.allowed(&take, 2).await, 0);
        subject.advance(MICROSECOND);
        assert_eq!(subject.allowed(&take, 2).await, 1);
    }
    let eleven = subject.decision(&take.clone().with_cost(11)).await;
    assert_eq!(eleven.verdict(), Verdict::Never);
}

/// What its docs warn of.
pub(super) async fn an_edge_admits_twice(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(5, 10 * SECOND)]);
    assert_eq!(subject.allowed(&take, 1).await, 1);
    subject.advance(10 * SECOND - MICROSECOND);
    assert_eq!(subject.allowed(&take, 12).await, 4);
    subject.advance(MICROSECOND);
    assert_eq!(subject.allowed(&take, 12).await, 5);
}
