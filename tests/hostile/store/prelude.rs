//! What most tests of this binary use: names of the crate and of the kit, servers with a store, and
//! questions that are answered or panic.

pub(crate) use kit::clocked::{Clocked, Stores, assert_units, by, charge, clock_at, take_of};
pub(crate) use kit::cluster::Plan;
pub(crate) use kit::http::{send, status};
pub(crate) use kit::prelude::*;
pub(crate) use kit::{far, far_within, near, near_within, proxied};

/// In microseconds, near the real time: Redis does not expire what is alive by a manual clock.
pub(crate) const NOW: u64 = 1_800_000_000_000_777;

/// Tasks that go on until this is dropped.
pub(crate) fn background<F: Future<Output = ()> + Send + 'static>(
    tasks: impl IntoIterator<Item = F>,
) -> tokio::task::JoinSet<()> {
    tasks.into_iter().collect()
}

pub(crate) async fn decide(store: &(impl Store + ?Sized), take: &Take) -> Decision {
    store.take(take).await.expect("a decision")
}

/// A take of a rule of one quota an hour, and of no key.
pub(crate) fn hourly(algorithm: Algorithm, path: &str, max: u64, cost: u64) -> Take {
    take_of(&by(algorithm, path, max, HOUR), &Key::default(), cost)
}

/// The receipt of a take that is allowed.
pub(crate) async fn receipt_of(store: &(impl Store + ?Sized), take: &Take) -> Receipt {
    decide(store, take).await.receipt().expect("charged")
}

/// The answers to these takes, which are asked before any answer can come.
pub(crate) async fn answers_of(
    store: &(impl Store + ?Sized),
    takes: &[Take],
) -> Vec<Result<Decision, StoreError>> {
    join_all(takes.iter().map(|take| store.take(take))).await
}

/// A take of each of so many keys.
pub(crate) fn takes_of(rule: &Arc<Rule>, keys: usize) -> Vec<Take> {
    (0..keys).map(|key| take(rule, key)).collect()
}

/// What is left, as the store says.
pub(crate) async fn remaining(store: &(impl Store + ?Sized), take: &Take) -> u64 {
    store.peek(take).await.expect("a decision").remaining()
}

/// What is charged by now of a rule of one quota.
pub(crate) async fn spent(store: &(impl Store + ?Sized), take: &Take) -> u64 {
    take.quotas()[0].max() - remaining(store, take).await
}

pub(crate) async fn refund(store: &(impl Store + ?Sized), take: &Take, receipt: &Receipt) -> u64 {
    store.refund(take, receipt).await.expect("an answer")
}

pub(crate) async fn reset(store: &(impl Store + ?Sized), take: &Take) -> bool {
    store.reset(take).await.expect("an answer")
}

/// How many units a charge gives back.
pub(crate) async fn give_back(charge: &Charge) -> u64 {
    charge.refund().await.expect("an answer")
}

/// The same of all charges of a request.
pub(crate) async fn give_back_all(charges: &Charges) -> u64 {
    charges.refund().await.expect("an answer")
}

pub(crate) async fn settle(charge: &Charge, used: u64) -> Settled {
    charge.settle(used).await.expect("an answer")
}

/// The kind of the error, if it is one.
pub(crate) fn kind<T>(answer: &Result<T, StoreError>) -> Option<StoreErrorKind> {
    answer.as_ref().err().map(StoreError::kind)
}

/// Nobody answered: the server is away, or was too slow.
pub(crate) fn assert_unanswered<T>(answer: &Result<T, StoreError>, case: &str) {
    let kinds = [StoreErrorKind::Timeout, StoreErrorKind::Unavailable];
    let is_right = kind(answer).is_some_and(|kind| kinds.contains(&kind));
    assert!(is_right, "{case}: {:?}", answer.as_ref().err());
}

/// Asks until there is an answer, as after an outage.
pub(crate) async fn answered<F: Future<Output = Result<T, StoreError>>, T>(
    ask: impl Fn() -> F,
) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(began.elapsed() < PATIENT, "{error}"),
        }
        sleep(millis(5)).await;
    }
}
