//! Holds by every store: of plans and tables, of shadows, and what they do not deny. `tests/histories`
//! plays random ones.

use super::*;

pub(super) const ALGORITHMS: [Algorithm; 4] = Algorithm::ALL;
/// A store with a take of an outgoing rule, and how to say what is meant.
struct Case<'a> {
    clocked: &'a Clocked,
    take: Take,
    name: String,
}

impl Case<'_> {
    async fn verdict(&self, take: &Take) -> Verdict {
        self.clocked
            .store
            .take(take)
            .await
            .expect("a decision")
            .verdict()
    }

    async fn check(&self, expected: Verdict) {
        assert_eq!(self.verdict(&self.take).await, expected, "{}", self.name);
    }

    /// What is left of a hold.
    async fn check_hold(&self, retry_after: Duration) {
        self.check(Verdict::OnHold { retry_after }).await;
    }

    async fn hold(&self, time: Duration) {
        let held = self.clocked.store.hold(&self.take, time).await;
        assert_eq!(held.expect("an answer"), time, "{}", self.name);
    }

    async fn remaining(&self) -> u64 {
        self.clocked.remaining(&self.take).await
    }
}

/// Every store and algorithm, with a take of this cost of a rule of this max a minute.
fn cases(stores: &Stores, max: u64, cost: u64) -> Vec<Case<'_>> {
    let of_store = |clocked| {
        ALGORITHMS.map(|algorithm| {
            let rule = per_minute(&format!("{algorithm:?}"), max).with_algorithm(algorithm);
            let rule = rule.with_outgoing().expect("one subject");
            Case {
                clocked,
                take: take_of(&Arc::new(rule), &Key::from("us"), cost),
                name: format!("{} {algorithm:?}", clocked.name),
            }
        })
    };
    stores.all.iter().flat_map(of_store).collect()
}

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

/// What is settled, given back, peeked at or free.
#[tokio::test]
async fn what_a_hold_does_not_deny() {
    let stores = Stores::start().await;
    for case in cases(&stores, 10, 4) {
        let store = &case.clocked.store;
        let decision = store.take(&case.take).await.expect("a decision");
        let receipt = decision.receipt().expect("charged");
        case.hold(2 * MINUTE).await;
        let more = case.take.clone().with_cost(3);
        let owed = store.owe(&more, &receipt).await.expect("an answer");
        assert_eq!((owed, case.remaining().await), (3, 3), "{}", case.name);
        let refunded = store.refund(&case.take, &receipt).await.expect("an answer");
        assert_eq!((refunded, case.remaining().await), (4, 7), "{}", case.name);
        case.check_hold(2 * MINUTE).await;
    }
}

/// As with counts: a step back lasts until the clock has caught up, and a reset ends it.
#[tokio::test]
async fn a_clock_that_steps() {
    let stores = Stores::start().await;
    for mut case in cases(&stores, 10, 1).into_iter().step_by(4) {
        let rule = Rule::clone(case.take.rule()).with_hold_at_most(MINUTE);
        case.take = take_of(&Arc::new(rule), &Key::from("us"), 1);
        case.hold(MINUTE).await;
        case.clocked.advance(HOUR);
        case.check(Verdict::Allowed).await;
        case.hold(MINUTE).await;
        let clock = &case.clocked.clock;
        let now = clock.now();
        clock.set(now - 24 * 3_600_000_000);
        let found = case.verdict(&case.take).await;
        let is_held = matches!(found, Verdict::OnHold { .. });
        assert!(is_held, "back, {}: {found:?}", case.name);
        assert!(
            case.clocked
                .store
                .reset(&case.take)
                .await
                .expect("an answer")
        );
        case.check(Verdict::Allowed).await;
        case.hold(millis(1)).await;
        clock.set(now);
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

/// Shadow rules and candidates never deny, and holding their keys changes that not.
#[tokio::test(start_paused = true)]
async fn shadows_never_deny() {
    let shadow = Limits::new([partner(5).into_shadow()]);
    hold(&shadow, "us", MINUTE).await;
    shadow.check("partner", "us").await.expect("never denied");
    pass(&shadow, "us").await;
    let limits = Limits::new([per_minute("partner", 5).with_shadow(partner(1))]);
    let _ = limits.hold("partner", "us", MINUTE).await;
    for _ in 0..5 {
        limits
            .check("partner", "us")
            .await
            .expect("the rule has room");
    }
    // An outgoing rule with a candidate: the rule's hold denies.
    let limits = Limits::new([partner(5).with_shadow(per_minute("partner", 100))]);
    hold(&limits, "us", MINUTE).await;
    assert_eq!(held(&limits, "us").await, Some(MINUTE));
    assert!(reset(&limits, "us").await);
    assert_eq!(held(&limits, "us").await, None);
}
