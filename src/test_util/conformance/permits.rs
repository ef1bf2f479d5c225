use std::iter::once;
use std::sync::Arc;

use super::{SECOND, Subject, quota};
use crate::decision::{Decision, Receipt, Verdict};
use crate::key::Key;
use crate::rule::Rule;
use crate::store::Take;

const HOUR: u32 = 3_600;

/// A quota of 10, and so many at a time.
fn take(subject: &Subject<'_>, max: u64) -> Take {
    let rule = Rule::new("permits", once(quota(10, HOUR * SECOND))).expect("a valid rule");
    let rule = rule.with_algorithm(subject.algorithm);
    let rule = rule.with_max_concurrent(max).expect("a valid rule");
    Take::new(Arc::new(rule), Key::from("alice"))
}

/// The take of the permit, and the part of the receipt that holds it.
fn permit(take: &Take, decision: &Decision) -> (Take, Receipt) {
    let receipt = decision.receipt().expect("it was charged");
    let mut counts = take.counts().iter().zip(receipt.counts());
    let (count, holder) = counts.next_back().expect("that of permits is the last");
    (count.clone(), holder.clone())
}

/// A permit and the quotas are charged together, or nothing is; and a permit comes back once.
pub(super) async fn permits_are_decided_with_quotas(subject: &Subject<'_>) {
    let take = take(subject, 2);
    let first = subject.decision(&take).await;
    let second = subject.decision(&take).await;
    assert!(first.is_allowed() && second.is_allowed());
    let (before, busy) = (subject.peek(&take).await, subject.decision(&take).await);
    assert!(matches!(busy.verdict(), Verdict::Busy { .. }), "{busy:?}");
    assert_eq!(
        subject.peek(&take).await,
        before,
        "a busy take is charged nothing"
    );

    let (count, holder) = permit(&take, &first);
    let release = || subject.store.refund(&count, &holder);
    assert_eq!(release().await.expect("an answer"), 1);
    assert_eq!(release().await.expect("an answer"), 0, "it is back already");
    let charged = first.receipt().expect("it was charged");
    let given_back = subject.store.refund(&take, &charged).await;
    assert_eq!(given_back.expect("an answer"), 1, "the unit, and no permit");
    assert!(subject.decision(&take).await.is_allowed());
    assert!(subject.decision(&take).await.is_busy());
    subject.store.reset(&take).await.expect("an answer");
    subject.advance(SECOND);
    assert!(subject.decision(&take).await.is_busy(), "permits stay");
}

/// A permit that is not renewed ends with its lease, and one that the store has lost comes back.
pub(super) async fn permits_are_leases(subject: &Subject<'_>) {
    let take = take(subject, 1);
    let (count, holder) = permit(&take, &subject.decision(&take).await);
    for _ in 0..4 {
        subject.advance(10 * SECOND);
        subject
            .store
            .renew(&count, &holder)
            .await
            .expect("an answer");
    }
    assert!(subject.decision(&take).await.is_busy(), "it was renewed");
    subject.advance(16 * SECOND);
    let other = subject.decision(&take).await;
    assert!(other.is_allowed(), "nobody has renewed it");
    subject
        .store
        .renew(&count, &holder)
        .await
        .expect("an answer");
    let (count, holder) = permit(&take, &other);
    subject
        .store
        .refund(&count, &holder)
        .await
        .expect("an answer");
    assert!(
        subject.decision(&take).await.is_busy(),
        "the first one runs"
    );
}
