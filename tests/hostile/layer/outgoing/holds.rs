//! Holds by every store, on clocks that the test moves: what is denied, what is not, until when.

use std::sync::Arc;

use tidegate::decision::Verdict;
use tidegate::rule::Quotas;
use tidegate::{Algorithm, Key, MemoryStore, Quota, Store, Take};

use kit::check_expiries;
use kit::clocked::{Clocked, Stores, take_of};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
pub(super) const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::Gcra,
    Algorithm::FixedWindow,
];

fn rule(algorithm: Algorithm, max: u64) -> Arc<Rule> {
    let rule = per_minute(&format!("{algorithm:?}"), max).with_algorithm(algorithm);
    Arc::new(rule.with_outgoing().expect("one subject"))
}

async fn hold(store: &Clocked, take: &Take, time: Duration) -> Duration {
    store.store.hold(take, time).await.expect("an answer")
}

async fn verdict(store: &Clocked, take: &Take) -> Verdict {
    store.store.take(take).await.expect("a decision").verdict()
}

const fn is_allowed(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Allowed)
}

fn key() -> Key {
    Key::from("us")
}

/// Law 3, to the microsecond, and law 2: a denial changes nothing.
#[tokio::test]
async fn the_end_is_exact_and_a_denial_touches_nothing() {
    let stores = Stores::start().await;
    for store in &stores.all {
        for algorithm in ALGORITHMS {
            let take = take_of(&rule(algorithm, 10), &key(), 1);
            assert!(is_allowed(verdict(store, &take).await));
            let time = Duration::from_micros(7_654_321);
            assert_eq!(hold(store, &take, time).await, time);
            store.advance(Duration::from_micros(1));
            let before = store.remaining(&take).await;
            for cost in [1, 1, 10] {
                let retry_after = time - Duration::from_micros(1);
                let found = verdict(store, &take.clone().with_cost(cost)).await;
                match found {
                    Verdict::OnHold { retry_after: found } => assert_eq!(found, retry_after),
                    // A quota denies it for longer.
                    Verdict::Denied { retry_after: found } if cost == 10 => {
                        assert!(found > retry_after, "{} {algorithm:?}", store.name);
                    }
                    _ => panic!("{} {algorithm:?} {cost}: {found:?}", store.name),
                }
            }
            assert_eq!(store.remaining(&take).await, before, "{}", store.name);
            store.advance(time - Duration::from_micros(2));
            let found = verdict(store, &take).await;
            let left = Duration::from_micros(1);
            assert_eq!(
                found,
                Verdict::OnHold { retry_after: left },
                "{}",
                store.name
            );
            store.advance(left);
            let found = verdict(store, &take).await;
            assert!(is_allowed(found), "{} {algorithm:?}: {found:?}", store.name);
        }
    }
    check_expiries(&stores.server, &[]);
}

/// A quota that denies for longer says so, and a hold that does says that.
#[tokio::test]
async fn the_later_of_both_ends_counts() {
    let stores = Stores::start().await;
    for store in &stores.all {
        for algorithm in ALGORITHMS {
            let take = take_of(&rule(algorithm, 1), &key(), 1);
            assert!(is_allowed(verdict(store, &take).await));
            hold(store, &take, millis(1)).await;
            let found = verdict(store, &take).await;
            let Verdict::Denied { retry_after } = found else {
                panic!("{} {algorithm:?}: {found:?}", store.name);
            };
            assert!(retry_after > millis(1), "{found:?}");
            let longer = retry_after + millis(1);
            hold(store, &take, longer).await;
            // A denial that is remembered is not asked again.
            let found = verdict(store, &take.clone().repeat()).await;
            assert_eq!(
                found,
                Verdict::OnHold {
                    retry_after: longer
                },
                "{}",
                store.name
            );
            // A cost that never fits is told so, held or not.
            let never = verdict(store, &take.clone().with_cost(2)).await;
            assert_eq!(never, Verdict::Never, "{} {algorithm:?}", store.name);
        }
    }
}

/// A hold is about the key: under each plan, and under quotas of a table.
#[tokio::test]
async fn plans_and_tables_are_held_alike() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let quotas = |max| Quotas::new([Quota::new(MINUTE, max).expect("valid")]).expect("valid");
        let rule = per_minute("partner", 10).with_plan("pro", quotas(100));
        let rule = rule.and_then(Rule::with_outgoing).expect("one subject");
        let limits = Limits::new([rule]).store(Arc::clone(&store.store));
        let verdicts = async || {
            let plain = limits.check("partner", "us").await;
            let planned = limits.check("partner", "us").plan("pro").await;
            let table = limits
                .check("partner", "us")
                .quotas(Arc::new(quotas(50)))
                .await;
            let unknown = limits.check("partner", "us").plan("gone").await;
            [plain, planned, table, unknown].map(|it| it.is_err())
        };
        assert_eq!(verdicts().await, [false; 4]);
        limits.hold("partner", "us", MINUTE).await.expect("held");
        assert_eq!(verdicts().await, [true; 4], "{}", store.name);
        assert!(limits.reset("partner", "us").await.expect("an answer"));
        assert_eq!(verdicts().await, [false; 4], "{}", store.name);
        limits.hold("partner", "us", MINUTE).await.expect("held");
        store.advance(MINUTE);
        assert_eq!(verdicts().await, [false; 4], "{}", store.name);
    }
}

/// What is settled, given back, peeked at or free.
#[tokio::test]
async fn what_a_hold_does_not_deny() {
    let stores = Stores::start().await;
    for store in &stores.all {
        for algorithm in ALGORITHMS {
            let take = take_of(&rule(algorithm, 10), &key(), 4);
            let decision = store.store.take(&take).await.expect("a decision");
            let receipt = decision.receipt().expect("charged");
            hold(store, &take, 2 * MINUTE).await;
            let more = take.clone().with_cost(3);
            let owed = store.store.owe(&more, &receipt).await.expect("an answer");
            assert_eq!(owed, 3, "{} {algorithm:?}", store.name);
            assert_eq!(
                store.remaining(&take).await,
                3,
                "{} {algorithm:?}",
                store.name
            );
            let refunded = store
                .store
                .refund(&take, &receipt)
                .await
                .expect("an answer");
            assert_eq!(refunded, 4, "{} {algorithm:?}", store.name);
            assert_eq!(
                store.remaining(&take).await,
                7,
                "{} {algorithm:?}",
                store.name
            );
            let found = verdict(store, &take).await;
            assert!(
                matches!(found, Verdict::OnHold { .. }),
                "{} {found:?}",
                store.name
            );
        }
    }
}

/// As with counts: a step back lasts until the clock has caught up, and a reset ends it.
#[tokio::test]
async fn a_clock_that_steps() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let rule = rule(Algorithm::SlidingLog, 10);
        let rule = Arc::new((*rule).clone().with_hold_at_most(MINUTE));
        let take = take_of(&rule, &key(), 1);
        hold(store, &take, MINUTE).await;
        store.advance(HOUR);
        assert!(
            is_allowed(verdict(store, &take).await),
            "forward, {}",
            store.name
        );
        hold(store, &take, MINUTE).await;
        let now = store.clock.now();
        store.clock.set(now - 24 * 3_600_000_000);
        let found = verdict(store, &take).await;
        assert!(
            matches!(found, Verdict::OnHold { .. }),
            "back, {}: {found:?}",
            store.name
        );
        assert!(store.store.reset(&take).await.expect("an answer"));
        assert!(
            is_allowed(verdict(store, &take).await),
            "reset, {}",
            store.name
        );
        assert_eq!(hold(store, &take, millis(1)).await, millis(1));
        store.clock.set(now);
    }
}

/// No room, and room for one key: an answer or an error, and no admission while it is held.
#[tokio::test(start_paused = true)]
async fn a_memory_store_without_room() {
    let none = limits(5).store(MemoryStore::with_max_keys(0));
    let _ = none.hold("partner", "us", MINUTE).await;
    assert!(none.outgoing("partner").ready("us").await.is_err());
    let one = limits(5).store(MemoryStore::with_max_keys(1));
    drop(
        one.outgoing("partner")
            .ready("first")
            .await
            .expect("a turn"),
    );
    let first = one.hold("partner", "first", MINUTE).await;
    let second = one.hold("partner", "second", MINUTE).await;
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    for (key, answer) in [("first", first), ("second", second)] {
        let turn = one.outgoing("partner").ready(key).await;
        assert!(answer.is_err() || turn.is_err(), "{key}: {answer:?}");
    }
}

/// Shadow rules and candidates never deny, and holding their keys changes that not.
#[tokio::test(start_paused = true)]
async fn shadows_never_deny() {
    let shadow = Limits::new([partner(5).into_shadow()]);
    shadow.hold("partner", "us", MINUTE).await.expect("held");
    shadow.check("partner", "us").await.expect("never denied");
    drop(
        shadow
            .outgoing("partner")
            .ready("us")
            .await
            .expect("never denied"),
    );
    let candidate = partner(1);
    let limits = Limits::new([per_minute("partner", 5).with_shadow(candidate)]);
    let _ = limits.hold("partner", "us", MINUTE).await;
    for _ in 0..5 {
        limits
            .check("partner", "us")
            .await
            .expect("the rule has room");
    }
    // An outgoing rule with a candidate: the rule's hold denies.
    let limits = Limits::new([partner(5).with_shadow(per_minute("partner", 100))]);
    limits.hold("partner", "us", MINUTE).await.expect("held");
    assert_eq!(held(&limits, "us").await, Some(MINUTE));
    assert!(limits.reset("partner", "us").await.expect("an answer"));
    assert_eq!(held(&limits, "us").await, None);
}
