//! Holds of plans and tables, of shadows, and without room. `tests/histories` plays random ones.

use super::*;
/// A hold is about the key: under each plan, and under quotas of a table.
#[tokio::test]
async fn plans_and_tables_are_held_alike() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let quotas = |max| Quotas::new([kit::quota(max, MINUTE)]).expect("valid");
        let rule = per_minute("partner", 10).with_plan("pro", quotas(100));
        let rule = rule.and_then(Rule::with_outgoing).expect("one subject");
        let limits = Limits::new([rule]).store(Arc::clone(&store.store));
        let check = || limits.check("partner", "us");
        let are_denied = async |expected: bool| {
            let plain = check().await;
            let planned = check().plan("pro").await;
            let table = check()
                .plan_value(tidegate::rule::Plan::from(quotas(50)))
                .await;
            let unknown = check().plan("gone").await;
            let denied = [plain, planned, table, unknown].map(|it| it.is_err());
            assert_eq!(denied, [expected; 4], "{}", store.name);
        };
        are_denied(false).await;
        hold(&limits, "us", MINUTE).await;
        are_denied(true).await;
        assert!(reset(&limits, "us").await);
        are_denied(false).await;
        hold(&limits, "us", MINUTE).await;
        store.advance(MINUTE);
        are_denied(false).await;
    }
}

/// No room, and room for one key: an answer or an error, and no admission while it is held.
#[tokio::test(start_paused = true)]
async fn a_memory_store_without_room() {
    let none = limits(5).store(MemoryStore::with_max_keys(0));
    let _ = none.hold("partner", "us", MINUTE).await;
    assert!(none.outgoing("partner").ready("us").await.is_err());
    let one = limits(5).store(MemoryStore::with_max_keys(1));
    pass(&one, "first").await;
    let first = one.hold("partner", "first", MINUTE).await;
    let second = one.hold("partner", "second", MINUTE).await;
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    for (key, answer) in [("first", first), ("second", second)] {
        let turn = one.outgoing("partner").ready(key).await;
        assert!(answer.is_err() || turn.is_err(), "{key}: {answer:?}");
    }
}

/// Shadow rules never deny, and holding their keys changes that not.
#[tokio::test(start_paused = true)]
async fn shadows_never_deny() {
    let shadow = Limits::new([partner(5).into_shadow()]);
    hold(&shadow, "us", MINUTE).await;
    shadow.check("partner", "us").await.expect("never denied");
    pass(&shadow, "us").await;
}
