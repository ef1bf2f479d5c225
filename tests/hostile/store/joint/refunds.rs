//! Refunds and settlements over several counts, in all stores and under all algorithms.

use super::*;

/// Asks with takes of tokens and requests of a user, tokens of an address, requests of everyone.
async fn each(test: impl AsyncFn(&Clocked, &str, Take)) {
    for (story, store, algorithm) in Stores::start().await.cases() {
        let subjects = [
            subject("user", 1_000).limit(costing(10, 1)),
            subject("address", 2_000),
            Subject::new("everyone", Everyone).limit(costing(100, 2)),
        ];
        let rule = named(algorithm, subjects);
        test(store, &story, tuple(&rule, "u", "a").with_cost(300)).await;
        store.advance(Duration::from_secs(600));
    }
}

const FULL: [u64; 4] = [1_000, 10, 2_000, 100];

#[tokio::test]
async fn a_refund_gives_back_in_all() {
    each(async |store, story, take| {
        let charge = store.charge(&take).await;
        let before = left(&store.store, &take).await;
        assert_eq!(before, [700, 9, 1_700, 98], "{story}");
        assert_eq!(give_back(&charge).await, 300, "{story}");
        assert_eq!(left(&store.store, &take).await, FULL, "{story}");
        assert_eq!(give_back(&charge).await, 0, "{story}");
        assert_eq!(settle(&charge, 0).await.given_back, 0, "{story}");
        assert_eq!(left(&store.store, &take).await, FULL, "{story}");
    })
    .await;
}

#[tokio::test]
async fn a_settlement_leaves_costs_of_their_own() {
    each(async |store, story, take| {
        for (used, given, expected) in [
            (100, 200, [900, 9, 1_900, 98]),
            (0, 300, [900, 8, 1_900, 96]),
            (300, 0, [600, 7, 1_600, 94]),
            (5_000, 0, [0, 6, 0, 92]),
        ] {
            let charge = store.charge(&take).await;
            assert_eq!(settle(&charge, used).await.given_back, given, "{story}");
            assert_eq!(left(&store.store, &take).await, expected, "{story}");
            assert_eq!(give_back(&charge).await, 0, "{story}");
            assert_eq!(left(&store.store, &take).await, expected, "{story}");
        }
    })
    .await;
}

/// A second charge made of the same receipt, while somebody else shares the user's counts: no count
/// gets more than its max, and a count that nobody else is charged in is whole.
#[tokio::test]
async fn a_receipt_twice() {
    each(async |store, story, take| {
        let charge = store.charge(&take).await;
        let other = tuple(take.rule(), "u", "other").with_cost(300);
        store.charge(&other).await;
        let twin = Charge::new(Arc::clone(&store.store), take.clone(), charge.receipt());
        give_back(&charge).await;
        let before = left(&store.store, &take).await;
        assert_eq!(before, [700, 9, 2_000, 98], "{story}");
        give_back(&twin).await;
        let after = left(&store.store, &take).await;
        let is_bounded = after.iter().zip(FULL).all(|(left, full)| *left <= full);
        assert!(is_bounded, "{story}: {after:?}");
        assert_eq!(after[2], 2_000, "{story}");
    })
    .await;
}

#[tokio::test]
async fn a_refund_after_a_reset_gives_nothing_back() {
    each(async |store, story, take| {
        let charge = store.charge(&take).await;
        // Of one subject: its two counts.
        let user = super::take(take.rule(), &[("user", "u")]);
        assert!(reset(&store.store, &user).await, "{story}");
        let after = left(&store.store, &take).await;
        assert_eq!(after, [1_000, 10, 1_700, 98], "{story}");
        store.advance(Duration::from_micros(1));
        store.charge(&take).await;
        give_back(&charge).await;
        let now = left(&store.store, &take).await;
        assert_eq!(now[..2], [700, 9], "{story}: those of the later charge");
        assert!((1_699..=1_700).contains(&now[2]), "{story}: {now:?}");
    })
    .await;
}

/// After its window, nothing is given back, in whatever count has passed; the others give back.
#[tokio::test]
async fn windows_of_different_lengths() {
    let stores = Stores::start().await;
    let algorithms = [Algorithm::SlidingLog, Algorithm::FixedWindow];
    for (story, store, algorithm) in stores.cases_of(algorithms) {
        let short = Subject::new("user", Everyone).limit(quota(10, 1_000));
        let long = Subject::new("all", Everyone).limit(quota(100, 3_600_000));
        let rule = named(algorithm, [short, long]);
        let take = take(&rule, &[("user", "u"), ("all", "")]).with_cost(4);
        let charge = store.charge(&take).await;
        store.advance(millis(2_500));
        store.charge(&take).await;
        assert_eq!(left(&store.store, &take).await, [6, 92], "{story}");
        give_back(&charge).await;
        assert_eq!(left(&store.store, &take).await, [6, 96], "{story}");
        store.advance(2 * HOUR);
    }
}

/// What is given back through one tuple is free for others that share the count.
#[tokio::test]
async fn a_refund_through_one_tuple_frees_another() {
    for (story, store, algorithm) in Stores::start().await.cases() {
        let subjects = [subject("user", 5), subject("address", 2)];
        let rule = named(algorithm, subjects);
        let of = |user: &str| super::take(&rule, &[("user", user), ("address", "x")]);
        let first = store.charge(&of("alice")).await;
        store.charge(&of("alice")).await;
        let denied = decide(&store.store, &of("bob")).await;
        assert!(denied.retry_after().is_some(), "{story}");
        assert_eq!(give_back(&first).await, 1, "{story}");
        let decision = decide(&store.store, &of("bob")).await;
        assert!(decision.is_allowed(), "{story}: {decision:?}");
    }
}
