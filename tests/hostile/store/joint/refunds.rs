//! Refunds and settlements over several counts, in all stores and under all algorithms.

use super::{costing, joint, left, quota, subject, take, tuple};
use crate::prelude::*;

/// Tokens and requests of a user, tokens of an address, requests of everyone.
fn tokens(algorithm: Algorithm, path: &str) -> Arc<Rule> {
    joint(
        algorithm,
        path,
        [
            subject("user", 1_000).limit(costing(10, 1)),
            subject("address", 2_000),
            Subject::new("everyone", Everyone).limit(costing(100, 2)),
        ],
    )
}

async fn each(test: impl AsyncFn(&kit::clocked::Clocked, Algorithm, Take)) {
    let stores = Stores::start().await;
    for (_, store, algorithm) in cases(&stores, Algorithm::ALL) {
        let rule = tokens(algorithm, algorithm.name());
        test(store, algorithm, tuple(&rule, "u", "a").with_cost(300)).await;
        store.advance(Duration::from_secs(600));
    }
}

const FULL: [u64; 4] = [1_000, 10, 2_000, 100];

#[tokio::test]
async fn a_refund_gives_back_in_all() {
    each(async |store, algorithm, take| {
        let charge = store.charge(&take).await;
        let story = format!("{}, {algorithm:?}", store.name);
        let now_left = left(&*store.store, &take).await;
        assert_eq!(now_left, [700, 9, 1_700, 98], "{story}");
        assert_eq!(give_back(&charge).await, 300, "{story}");
        assert_eq!(left(&*store.store, &take).await, FULL, "{story}");
        assert_eq!(give_back(&charge).await, 0, "{story}");
        assert_eq!(settle(&charge, 0).await.given_back, 0, "{story}");
        assert_eq!(left(&*store.store, &take).await, FULL, "{story}");
    })
    .await;
}

#[tokio::test]
async fn a_settlement_leaves_costs_of_their_own() {
    each(async |store, algorithm, take| {
        let story = format!("{}, {algorithm:?}", store.name);
        for (used, given, expected) in [
            (100, 200, [900, 9, 1_900, 98]),
            (0, 300, [900, 8, 1_900, 96]),
            (300, 0, [600, 7, 1_600, 94]),
            (5_000, 0, [0, 6, 0, 92]),
        ] {
            let charge = store.charge(&take).await;
            assert_eq!(settle(&charge, used).await.given_back, given, "{story}");
            assert_eq!(left(&*store.store, &take).await, expected, "{story}");
            assert_eq!(give_back(&charge).await, 0, "{story}");
            assert_eq!(left(&*store.store, &take).await, expected, "{story}");
        }
    })
    .await;
}

/// A second charge made of the same receipt, while somebody else shares the user's counts: no count
/// gets more than its max, and a count that nobody else is charged in is whole.
#[tokio::test]
async fn a_receipt_twice() {
    each(async |store, algorithm, take| {
        let story = format!("{}, {algorithm:?}", store.name);
        let charge = store.charge(&take).await;
        let other = tuple(take.rule(), "u", "other").with_cost(300);
        let other = store.charge(&other).await;
        let twin = Charge::new(Arc::clone(&store.store), take.clone(), charge.receipt());
        give_back(&charge).await;
        let before = left(&*store.store, &take).await;
        assert_eq!(before, [700, 9, 2_000, 98], "{story}");
        give_back(&twin).await;
        let after = left(&*store.store, &take).await;
        let is_right = after.iter().zip(FULL).all(|(left, full)| *left <= full);
        assert!(is_right, "{story}: {after:?}");
        assert_eq!(after[2], 2_000, "{story}");
        drop(other);
    })
    .await;
}

#[tokio::test]
async fn a_refund_after_a_reset_gives_nothing_back() {
    each(async |store, algorithm, take| {
        let story = format!("{}, {algorithm:?}", store.name);
        let charge = store.charge(&take).await;
        // Of one subject: its two counts.
        let user = super::take(take.rule(), &[("user", "u")]);
        assert!(reset(&store.store, &user).await, "{story}");
        let now_left = left(&*store.store, &take).await;
        assert_eq!(now_left, [1_000, 10, 1_700, 98], "{story}");
        store.advance(Duration::from_micros(1));
        let later = store.charge(&take).await;
        give_back(&charge).await;
        let now = left(&*store.store, &take).await;
        assert_eq!(now[..2], [700, 9], "{story}: those of the later charge");
        assert!((1_699..=1_700).contains(&now[2]), "{story}: {now:?}");
        drop(later);
    })
    .await;
}

/// After its window, nothing is given back, in whatever count has passed; the others give back.
#[tokio::test]
async fn windows_of_different_lengths() {
    let stores = Stores::start().await;
    for store in &stores.all {
        for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
            let short = Subject::new("user", Everyone);
            let long = Subject::new("all", Everyone);
            let rule: Arc<Rule> = joint(
                algorithm,
                algorithm.name(),
                [
                    short.limit(quota(10, 1_000)),
                    long.limit(quota(100, 3_600_000)),
                ],
            );
            let take = take(&rule, &[("user", "u"), ("all", "")]).with_cost(4);
            let charge = store.charge(&take).await;
            store.advance(Duration::from_millis(2_500));
            let story = format!("{}, {algorithm:?}", store.name);
            let later = store.charge(&take).await;
            assert_eq!(left(&*store.store, &take).await, [6, 92], "{story}");
            give_back(&charge).await;
            assert_eq!(left(&*store.store, &take).await, [6, 96], "{story}");
            drop(later);
            store.advance(Duration::from_secs(7_200));
        }
    }
}

/// What is given back through one tuple is free for others that share the count.
#[tokio::test]
async fn a_refund_through_one_tuple_frees_another() {
    each(async |store, algorithm, take| {
        let story = format!("{}, {algorithm:?}", store.name);
        let rule = joint(
            algorithm,
            &format!("{}-shared", algorithm.name()),
            [subject("user", 5), subject("address", 2)],
        );
        let of = |user: &str| super::take(&rule, &[("user", user), ("address", "x")]);
        let first = store.charge(&of("alice")).await;
        store.charge(&of("alice")).await;
        let denied = decide(&store.store, &of("bob")).await;
        assert!(denied.retry_after().is_some(), "{story}");
        assert_eq!(give_back(&first).await, 1, "{story}");
        let decision = decide(&store.store, &of("bob")).await;
        assert!(decision.is_allowed(), "{story}: {decision:?}");
        drop(take);
    })
    .await;
}
