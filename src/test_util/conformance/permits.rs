use std::iter::once;
use std::sync::Arc;

use super::{SECOND, StoreUnderTest, quota};
use crate::decision::{Decision, QuotaState, Receipt, Verdict};
use crate::key::{Everyone, Key};
use crate::question::Ask;
use crate::rule::{self, Policy, Rule};
use crate::take::Take;

const HOUR: u32 = 3_600;

/// A quota of 10, and so many at a time.
fn take(subject: &StoreUnderTest<'_>, max: u64) -> Take {
    let rule = Rule::new("permits", once(quota(10, HOUR * SECOND))).expect("a valid rule");
    let rule = rule.with_algorithm(subject.algorithm);
    let rule = rule.with_max_concurrent(max).expect("a valid rule");
    Take::new(Arc::new(rule), Key::from("alice"))
}

/// What asks for the permit alone, and its part of the receipt.
fn permit(take: &Take, decision: &Decision) -> (Ask, Receipt) {
    let receipt = decision.receipt().expect("it was charged");
    let holder = receipt
        .counts()
        .last()
        .expect("that of permits is the last");
    (take.only(take.counts().len() - 1), holder.clone())
}

/// A permit and the quotas are charged together, or nothing is; and a permit comes back once.
pub(super) async fn permits_are_decided_with_quotas(subject: &StoreUnderTest<'_>) {
    let take = take(subject, 2);
    let first = subject.decision(&take).await;
    let second = subject.decision(&take).await;
    assert!(first.is_allowed() && second.is_allowed());
    let (before, busy) = (subject.peek(&take).await, subject.decision(&take).await);
    assert!(matches!(busy.verdict(), Verdict::Busy { .. }), "{busy:?}");
    let after = subject.peek(&take).await;
    assert_eq!(after, before, "a busy take is charged nothing");

    let (count, holder) = permit(&take, &first);
    let release = || subject.refund(&count, &holder);
    assert_eq!(release().await, 1);
    assert_eq!(release().await, 0, "it is back already");
    let charged = first.receipt().expect("it was charged");
    let given_back = subject.refund(&take, &charged).await;
    assert_eq!(given_back, 1, "the unit, and no permit");
    assert!(subject.decision(&take).await.is_allowed());
    assert!(subject.decision(&take).await.is_busy());
    subject.store.reset(&take).await.expect("an answer");
    subject.advance(SECOND);
    assert!(subject.decision(&take).await.is_busy(), "permits stay");
}

/// A permit that is not renewed ends with its lease, and one that the store has lost comes back.
pub(super) async fn permits_are_leases(subject: &StoreUnderTest<'_>) {
    let take = take(subject, 1);
    let (count, holder) = permit(&take, &subject.decision(&take).await);
    for _ in 0..4 {
        subject.advance(10 * SECOND);
        let renewed = subject.store.renew(&count, &holder).await;
        renewed.expect("an answer");
    }
    assert!(subject.decision(&take).await.is_busy(), "it was renewed");
    subject.advance(16 * SECOND);
    let other = subject.decision(&take).await;
    assert!(other.is_allowed(), "nobody has renewed it");
    let renewed = subject.store.renew(&count, &holder).await;
    renewed.expect("an answer");
    let (count, holder) = permit(&take, &other);
    subject.refund(&count, &holder).await;
    let is_busy = subject.decision(&take).await.is_busy();
    assert!(is_busy, "the first one runs");
}

/// A request at a cost of 0 has a permit, and pays the cost that a quota has of its own. A look
/// does neither.
pub(super) async fn what_costs_nothing_is_charged_elsewhere(subject: &StoreUnderTest<'_>) {
    let requests = Policy::new("requests", quota(2, HOUR * SECOND)).with_cost(1);
    let user = rule::Subject::new("user", Everyone).limit(quota(9, HOUR * SECOND));
    let user = user.limit(requests).limit(Policy::concurrent(1));
    let rule = Rule::joint("free", [user]).expect("a valid rule");
    let rule = rule.with_algorithm(subject.algorithm).with_cost(0);
    let take = Take::new(Arc::new(rule), Key::from("alice"));
    let left = async || {
        let look = subject.peek(&take).await;
        let left = look.quotas().iter().map(QuotaState::remaining);
        (look.is_allowed(), left.collect::<Vec<_>>())
    };
    let mut receipts = Vec::new();
    for requests in [1, 0] {
        let first = subject.decision(&take).await;
        assert!(first.is_allowed(), "{first:?}");
        receipts.extend(first.receipt());
        assert_eq!(left().await, (true, vec![9, requests, 0]));
        let second = subject.decision(&take).await;
        assert!(!second.is_allowed(), "{second:?}");
        assert_eq!(second.is_busy(), requests > 0);
        let (count, holder) = permit(&take, &first);
        assert_eq!(subject.refund(&count, &holder).await, 1);
    }
    let denied = subject.decision(&take).await;
    let exceeded = denied.quotas().iter().map(QuotaState::is_exceeded);
    assert_eq!(exceeded.collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(left().await, (true, vec![9, 0, 1]));
    let refund = subject.refund(&take, &receipts[0]).await;
    assert_eq!(refund, 0, "of the request's cost");
    assert_eq!(left().await, (true, vec![9, 1, 1]));
}
