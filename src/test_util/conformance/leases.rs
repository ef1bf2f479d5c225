//! What a store has to answer about keys that a rule with a lease charges.

use std::sync::Arc;
use std::time::Duration;

use super::subject::{MICROSECOND, SECOND, Subject, quota};
use crate::key::Key;
use crate::store::Take;

const WINDOW: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_millis(50);

fn takes(subject: &Subject<'_>) -> [Take; 2] {
    let plain = subject.rule("p", &[quota(5, WINDOW)]);
    let leased = plain.as_ref().clone().with_lease(LEASE);
    let leased = Arc::new(leased.expect("a lease"));
    [leased, plain].map(|rule| Take::new(rule, Key::default()))
}

/// Law 1: a unit may be used as late as its lease ends, and counts from then on for its window,
/// also for a taker whose rule has no lease.
pub(super) async fn units_count_longer_for_every_taker(subject: &Subject<'_>) {
    let [leased, plain] = takes(subject);
    assert!(subject.ask(&leased.clone().with_cost(3)).await.is_allowed());
    subject.advance(SECOND);
    assert!(subject.ask(&plain.clone().with_cost(2)).await.is_allowed());
    subject.advance(WINDOW - SECOND);
    let denied = subject.ask(&plain).await;
    assert_eq!(
        denied.retry_after(),
        Some(LEASE),
        "the window and the lease"
    );
    assert_eq!(subject.ask(&leased).await.retry_after(), Some(LEASE));
    subject.advance(LEASE - MICROSECOND);
    assert!(!subject.ask(&plain).await.is_allowed());
    subject.advance(MICROSECOND);
    assert_eq!(subject.allowed(&plain, 5).await, 3);
}

/// Law 14: a key that was never charged under a lease counts its windows and no longer, nor does
/// one whose leased units have left it.
pub(super) async fn units_count_no_longer_without_a_lease(subject: &Subject<'_>) {
    let [leased, plain] = takes(subject);
    assert_eq!(subject.allowed(&plain, 6).await, 5);
    subject.advance(WINDOW);
    assert_eq!(subject.allowed(&plain, 6).await, 5);
    subject.advance(2 * WINDOW);
    assert!(subject.ask(&leased).await.is_allowed());
    subject.advance(WINDOW + LEASE);
    assert_eq!(subject.allowed(&plain, 6).await, 5);
    subject.advance(WINDOW);
    assert_eq!(subject.allowed(&plain, 6).await, 5);
}
