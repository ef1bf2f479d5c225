//! What a store has to count in periods of the calendar.

use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use super::{MICROSECOND, SECOND, StoreUnderTest, quota};
use crate::decision::{QuotaState, Verdict};
use crate::key::Key;
use crate::rule::{Period, Policy, Rule};
use crate::take::Take;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// A take of 1 of a rule with these policies.
fn take<const N: usize>(subject: &StoreUnderTest<'_>, policies: [Policy; N]) -> Take {
    let rule = Rule::with_policies("budget", policies).expect("a valid rule");
    Take::new(
        Arc::new(rule.with_algorithm(subject.algorithm)),
        Key::default(),
    )
}

fn of_day(subject: &StoreUnderTest<'_>, max: u64) -> Take {
    take(subject, [Policy::calendar(Period::DAY, max)])
}

/// Moves the clock to the beginning of a day.
async fn to_midnight(subject: &StoreUnderTest<'_>) {
    let other = Rule::with_policies("other", [Policy::calendar(Period::DAY, 1)]);
    let other = Take::new(other.expect("a valid rule").into(), Key::default());
    subject.advance(subject.decision(&other).await.reset_after());
}

/// Nothing comes back before the end, all of it then, and the next day has its whole length.
pub(super) async fn a_period_is_refilled_at_its_end(subject: &StoreUnderTest<'_>) {
    let take = of_day(subject, 3);
    assert_eq!(subject.allowed(&take, 5).await, 3);
    let wait = subject.decision(&take).await.retry_after();
    let wait = wait.expect("it is denied");
    assert!(wait <= DAY, "{wait:?}");
    subject.advance(wait - MICROSECOND);
    let denied = subject.decision(&take).await;
    assert_eq!(denied.retry_after(), Some(MICROSECOND));
    assert_eq!(denied.reset_after(), MICROSECOND);
    subject.advance(MICROSECOND);
    assert_eq!(subject.peek(&take).await.remaining(), 3);
    for elapsed in [Duration::ZERO, 7 * HOUR, 16 * HOUR] {
        subject.advance(elapsed);
        let decision = subject.decision(&take).await;
        let left = DAY + wait - Duration::from_micros(subject.elapsed());
        assert!(decision.is_allowed(), "{decision:?}");
        assert_eq!(decision.reset_after(), left);
    }
    assert_eq!(subject.allowed(&take, 5).await, 0);
    subject.advance(HOUR);
    assert_eq!(subject.allowed(&take, 5).await, 3);
}

/// Days, weeks and months end at midnight, and each is a count of its own.
pub(super) async fn periods_end_at_midnight(subject: &StoreUnderTest<'_>) {
    to_midnight(subject).await;
    // One more period does not compile, and needs its length here.
    let periods: [Period; 3] = Period::ALL;
    for (period, longest) in zip(periods, [1, 7, 31]) {
        let take = take(subject, [Policy::calendar(period, 2)]);
        let left = subject.decision(&take).await.reset_after();
        let is_whole = left.as_micros().is_multiple_of(DAY.as_micros());
        assert!(is_whole && left <= longest * DAY, "{left:?}");
        assert_eq!(subject.allowed(&take, 3).await, 1);
    }
}

/// Another max goes on with what is used.
pub(super) async fn another_max_goes_on(subject: &StoreUnderTest<'_>) {
    to_midnight(subject).await;
    assert_eq!(subject.allowed(&of_day(subject, 3), 5).await, 3);
    subject.advance(HOUR);
    assert_eq!(subject.allowed(&of_day(subject, 5), 5).await, 2);
    let denied = subject.decision(&of_day(subject, 2)).await;
    assert_eq!(denied.retry_after(), Some(DAY - HOUR));
    assert_eq!(denied.remaining(), 0);
    let never = subject.decision(&of_day(subject, 2).with_cost(3)).await;
    assert_eq!(never.verdict(), Verdict::Never);
}

/// What was charged in a period is given back, and owed, in that one.
pub(super) async fn charges_are_of_their_period(subject: &StoreUnderTest<'_>) {
    to_midnight(subject).await;
    let take = of_day(subject, 5);
    let receipt = subject.receipt(&take.clone().with_cost(4)).await;
    subject.advance(23 * HOUR);
    let part = take.clone().with_cost(3);
    assert_eq!(subject.refund(&part, &receipt).await, 3);
    assert_eq!(subject.peek(&take).await.remaining(), 4);
    let owes = subject.store.capabilities().owes;
    if owes {
        let owed = subject.store.owe(&take.clone().with_cost(9), &receipt);
        assert_eq!(owed.await.expect("an answer"), 9);
        let denied = subject.decision(&take.clone().with_cost(0)).await;
        assert_eq!(denied.retry_after(), Some(HOUR));
    }
    subject.advance(HOUR);
    assert_eq!(subject.allowed(&take, 2).await, 2);
    assert_eq!(subject.refund(&take, &receipt).await, 0);
    if owes {
        let owed = subject.store.owe(&take, &receipt);
        assert_eq!(owed.await.expect("an answer"), 0);
    }
    assert_eq!(subject.peek(&take).await.remaining(), 3);

    let before = subject.receipt(&take).await;
    assert!(subject.store.reset(&take).await.expect("an answer"));
    assert_eq!(subject.allowed(&take, 9).await, 5);
    assert_eq!(subject.refund(&take, &before).await, 0);
}

/// What costs nothing is decided, a look never denied, and neither is charged.
pub(super) async fn what_costs_nothing_uses_nothing(subject: &StoreUnderTest<'_>) {
    let closed = of_day(subject, 0).with_cost(0);
    assert_eq!(subject.decision(&closed).await.verdict(), Verdict::Never);
    let take = of_day(subject, 2);
    let free = take.clone().with_cost(0);
    let first = subject.decision(&free).await;
    assert!(first.is_allowed(), "{first:?}");
    assert_eq!(first.reset_after(), Duration::ZERO);
    assert_eq!(subject.allowed(&take, 5).await, 2);
    assert_eq!(subject.allowed(&free, 3).await, 3);
    let look = subject.peek(&take).await;
    assert_eq!((look.is_allowed(), look.remaining()), (true, 0));
}

/// A count of a period and one of a window are charged together, or neither is.
pub(super) async fn periods_are_charged_with_windows(subject: &StoreUnderTest<'_>) {
    to_midnight(subject).await;
    let window = Policy::from(quota(2, HOUR));
    let take = take(subject, [window, Policy::calendar(Period::DAY, 3)]);
    let left =
        |states: &[QuotaState]| -> Vec<_> { states.iter().map(QuotaState::remaining).collect() };
    assert_eq!(subject.allowed(&take, 9).await, 2);
    assert_eq!(left(subject.peek(&take).await.quotas()), [0, 1]);
    subject.advance(2 * HOUR + SECOND);
    assert_eq!(subject.allowed(&take, 9).await, 1);
    let denied = subject.decision(&take).await;
    assert_eq!(left(denied.quotas()), [1, 0]);
    let exceeded = denied.quotas().iter().map(QuotaState::is_exceeded);
    assert!(exceeded.eq([false, true]), "only the day denied it");
    assert_eq!(denied.retry_after(), Some(22 * HOUR - SECOND));
    subject.advance(22 * HOUR - SECOND);
    assert_eq!(subject.allowed(&take, 9).await, 2);
}
