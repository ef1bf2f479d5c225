//! A receipt over several counts that is used twice.

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
