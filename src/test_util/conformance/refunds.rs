//! What a store has to give back and to forget.

use std::sync::Arc;
use std::time::Duration;

use super::{MICROSECOND, SECOND, StoreUnderTest, quota};
use crate::algorithm::Algorithm;
use crate::decision::Receipt;
use crate::key::Key;
use crate::rule::Rule;
use crate::take::Take;

/// In any order, whole and in part.
pub(super) async fn what_is_given_back_is_there_again(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(6, 10 * SECOND), quota(9, 60 * SECOND)]);
    let mut receipts: Vec<Receipt> = Vec::new();
    for cost in [1, 2, 3] {
        receipts.push(subject.receipt(&take.clone().with_cost(cost)).await);
    }
    assert!(!subject.decision(&take).await.is_allowed());
    for (receipt, units) in [(&receipts[2], 3), (&receipts[0], 1), (&receipts[1], 2)] {
        let whole = take.clone().with_cost(u64::MAX);
        assert_eq!(subject.refund(&whole, receipt).await, units);
    }
    let state = subject.peek(&take).await;
    assert_eq!(state.quotas()[0].remaining(), 6);
    assert_eq!(state.quotas()[1].remaining(), 9);
    assert_eq!(state.reset_after(), Duration::ZERO);

    let five = subject.receipt(&take.clone().with_cost(5)).await;
    let part = take.clone().with_cost(2);
    assert_eq!(subject.refund(&part, &five).await, 2);
    assert_eq!(subject.peek(&take).await.remaining(), 3);
    assert_eq!(subject.allowed(&take, 9).await, 3);
}

/// What was used beyond a reservation is charged, as far as may be owed, and denies takes until it
/// has left.
pub(super) async fn units_owed_are_charged_above_max(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(6, SECOND)]);
    let receipt = subject.receipt(&take.clone().with_cost(4)).await;
    let owe = async |units| {
        let beyond = take.clone().with_cost(units);
        subject.store.owe(&beyond, &receipt).await.expect("answers")
    };
    assert_eq!(owe(3).await, 3, "one above max");
    assert_eq!(owe(9).await, 5, "no more than max is owed");
    assert_eq!(owe(1).await, 0);
    let denied = subject.decision(&take).await;
    let wait = denied.retry_after().expect("it is denied");
    subject.advance(wait - MICROSECOND);
    assert!(!subject.decision(&take).await.is_allowed());
    subject.advance(MICROSECOND);
    assert!(subject.decision(&take).await.is_allowed());
    subject.store.reset(&take).await.expect("answers");
    subject.advance(MICROSECOND);
    assert_eq!(owe(2).await, 2, "whatever has become of the take");
    assert_eq!(subject.peek(&take).await.remaining(), 4);

    let rule = Arc::unwrap_or_clone(subject.rule("bound", &[quota(6, SECOND)]));
    let take = Take::new(rule.with_owe_at_most(2).into(), Key::default());
    let receipt = subject.receipt(&take.clone().with_cost(6)).await;
    let owed = subject.store.owe(&take.with_cost(9), &receipt);
    assert_eq!(owed.await.expect("answers"), 2, "what the rule says");
}

/// What counts no longer is not given back, so that nobody gets more than the quota.
pub(super) async fn nothing_is_given_back_too_late(subject: &StoreUnderTest<'_>) {
    let take = subject.take("p", &[quota(4, SECOND)]);
    let receipt = subject.receipt(&take.clone().with_cost(4)).await;
    subject.advance(SECOND);
    assert_eq!(subject.allowed(&take, 9).await, 4);
    assert_eq!(subject.refund(&take, &receipt).await, 0);
    assert_eq!(subject.allowed(&take, 9).await, 0);

    let unknown = Receipt::new(receipt.stamp(), receipt.serial() + 77, 1);
    assert_eq!(subject.refund(&take, &unknown).await, 0);
    let other = subject.take("other", &[quota(4, SECOND)]);
    assert_eq!(subject.refund(&other, &receipt).await, 0);
}

/// Each algorithm has a count of its own: a rule that changes its algorithm starts afresh, and one
/// that changes back finds what it had counted.
pub(super) async fn each_algorithm_has_a_count_of_its_own(subject: &StoreUnderTest<'_>) {
    let quotas = [quota(3, 86_400 * SECOND)];
    let by = |algorithm| {
        let rule = Rule::new("p", quotas)
            .expect("valid")
            .with_algorithm(algorithm);
        Take::new(Arc::new(rule), Key::default())
    };
    let mut receipts = Vec::new();
    for algorithm in Algorithm::ALL {
        receipts.push(subject.receipt(&by(algorithm)).await);
        assert_eq!(subject.allowed(&by(algorithm), 5).await, 2, "{algorithm:?}");
    }
    subject.advance(SECOND);
    for (algorithm, receipt) in Algorithm::ALL.into_iter().zip(receipts) {
        let take = by(algorithm);
        assert_eq!(subject.allowed(&take, 5).await, 0, "{algorithm:?}");
        let back = subject.refund(&take, &receipt).await;
        assert!(back <= 1, "{back}");
        assert_eq!(
            subject.allowed(&take, 5).await,
            back as usize,
            "{algorithm:?}"
        );
    }
}

/// A reset forgets the charges of one key, and what was given back of them.
pub(super) async fn a_reset_forgets_one_key(subject: &StoreUnderTest<'_>) {
    let store = &*subject.store;
    let rule = subject.rule("p", &[quota(3, 60 * SECOND)]);
    let of = |name: &str| Take::new(Arc::clone(&rule), Key::from(name));
    let (alice, bob) = (of("alice"), of("bob"));
    let receipt = subject.receipt(&alice).await;
    assert_eq!(subject.allowed(&alice, 5).await, 2);
    assert_eq!(subject.allowed(&bob, 5).await, 3);
    assert_eq!(subject.refund(&alice, &receipt).await, 1);

    assert!(store.reset(&alice).await.expect("answers"));
    assert!(!store.reset(&alice).await.expect("answers"), "twice");
    assert_eq!(subject.peek(&alice).await.remaining(), 3);
    assert_eq!(subject.peek(&bob).await.remaining(), 0);
    assert_eq!(subject.refund(&alice, &receipt).await, 0);
    assert_eq!(subject.allowed(&alice, 5).await, 3);
    assert_eq!(subject.allowed(&bob, 5).await, 0);

    assert!(!store.reset(&of("nobody")).await.expect("answers"));
    assert_eq!(subject.peek(&bob).await.remaining(), 0);
}

/// A receipt from before a reset gives back nothing of what is charged after it, be it in the same
/// instant; the receipts of later takes are good.
pub(super) async fn a_reset_ends_earlier_receipts(subject: &StoreUnderTest<'_>) {
    let store = &*subject.store;
    let rule = subject.rule("p", &[quota(40, 60 * SECOND)]);
    let key = Key::default();
    let of = |cost| Take::new(Arc::clone(&rule), key.clone()).with_cost(cost);
    let whole = of(u64::MAX);
    for (cost, resets) in [(1, 1), (2, 1), (5, 2), (1, 2)] {
        let mut before = Vec::new();
        for _ in 0..2 {
            before.push(subject.receipt(&of(cost)).await);
        }
        assert_eq!(subject.refund(&whole, &before[1]).await, cost);
        for _ in 0..resets {
            store.reset(&whole).await.expect("answers");
        }
        for wait in [Duration::ZERO, MICROSECOND, 2 * SECOND] {
            subject.advance(wait);
            let after = [
                subject.decision(&of(cost)).await,
                subject.decision(&of(cost)).await,
            ];
            for receipt in &before {
                let given_back = subject.refund(&whole, receipt).await;
                assert_eq!(given_back, 0, "cost {cost}, {wait:?} later");
            }
            // Receipts from before could be the same in the very microsecond of the reset.
            if wait > Duration::ZERO {
                let receipt = after[1].receipt().expect("it was charged");
                assert_eq!(subject.refund(&whole, &receipt).await, cost);
            }
        }
        store.reset(&whole).await.expect("answers");
        subject.advance(MICROSECOND);
    }
}
