//! Requests that cost nothing are requests: they are limited, hold permits, wait and are settled.

use crate::*;

/// Tokens by the request's cost, which is 0, and so many requests and at a time.
fn rule(tokens: u64, requests: u32, at_a_time: Option<u64>) -> Rule {
    let user = Subject::new("user", Everyone).limit(quota(tokens, WINDOW));
    let requests = Policy::new("requests", Quota::per_minute(requests)).with_cost(1);
    let user = user.limit(requests);
    let user = match at_a_time {
        Some(max) => user.limit(Policy::concurrent(max)),
        None => user,
    };
    let rule = Rule::joint("p", [user]).expect("a valid rule");
    rule.with_cost(0)
}

fn limits(rule: Rule, store: &Arc<dyn Store>) -> Limits {
    Limits::new([rule]).store(Arc::clone(store))
}

fn key() -> Key {
    Key::default()
}

/// What is left of each quota.
async fn all_left(limits: &Limits) -> Vec<u64> {
    let look = limits.peek("p", key()).await.expect("an answer");
    let look = look.expect("there is a rule");
    assert!(look.is_allowed() && look.receipt().is_none());
    look.quotas().iter().map(QuotaState::remaining).collect()
}

/// In memory, in Redis, and where a fallback decides for a store that is gone.
async fn each_store(test: impl AsyncFn(Arc<dyn Store>)) {
    let stores = Stores::start().await;
    let gone = Stub::down().capabilities_fn(|inner| inner.capabilities());
    let gone = Resilient::new(gone).processes(1).failures(None);
    for store in stores.all.into_iter().chain([gone.build()]) {
        test(store).await;
    }
}

/// A client may choose the cost, say by a header: denied, and charged nowhere.
#[tokio::test]
async fn a_cost_of_any_size_is_denied_and_charged_nowhere() {
    each_store(async |store| {
        let limits = limits(rule(50, 10, None), &store);
        limits.check("p", key()).cost(3).await.expect("room");
        for cost in [51, u64::MAX - 3, u64::MAX - 2, u64::MAX] {
            let refused = limits.check("p", key()).cost(cost).await;
            let refused = refused.expect_err("above the max");
            let denied = refused.decision().expect("a decision");
            assert_eq!(denied.retry_after(), None, "it never fits");
            assert_eq!(all_left(&limits).await, [47, 9], "{cost}");
        }
    })
    .await;
}

#[tokio::test]
async fn quotas_with_a_cost_of_their_own_deny_and_are_refunded() {
    each_store(async |store| {
        let limits = limits(rule(9, 2, None), &store);
        let check = || limits.check("p", key());
        let first = check().await.expect("room");
        check().await.expect("room");
        assert_eq!(all_left(&limits).await, [9, 0]);
        let refused = check().await.expect_err("two requests");
        let denied = refused.decision().expect("a decision");
        let denied: Vec<_> = denied.denied_by(&["tokens", "requests"]).collect();
        assert_eq!(denied, [&"requests"]);
        let charge = first.charge.expect("it was charged");
        assert_eq!(charge.refund().await.expect("an answer"), 0, "no token");
        assert_eq!(all_left(&limits).await, [9, 1]);
        assert_eq!(charge.refund().await.expect("an answer"), 0);
        assert_eq!(all_left(&limits).await, [9, 1], "once");
    })
    .await;
}

#[tokio::test]
async fn a_request_holds_a_permit() {
    each_store(async |store| {
        let limits = limits(rule(9, 9, Some(1)), &store);
        let first = limits.check("p", key()).await.expect("room");
        assert!(first.permit.is_some());
        assert_eq!(all_left(&limits).await, [9, 8, 0]);
        let second = limits.check("p", key()).await.expect_err("one at a time");
        assert!(second.decision().expect("a decision").is_busy());
        drop(first);
        assert!(limits.flush(PATIENT).await);
        assert_eq!(all_left(&limits).await, [9, 8, 1]);
    })
    .await;
}

/// Whoever waits at a cost of a quota's own is woken by the refund of a request that cost nothing.
#[tokio::test(start_paused = true)]
async fn a_refund_wakes_who_waits() {
    let limits = Limits::new([rule(9, 1, None).with_refund_on(["5xx"]).expect("valid")]);
    let limits = limits.store(paused());
    let first = limits.check("p", key()).await.expect("room");
    let wait = limits.check("p", key()).wait(10 * SECOND);
    let second = tokio::spawn(async move { wait.await.map(drop) });
    // Whoever waits asks once a second in any case.
    sleep(millis(1_300)).await;
    let began = Instant::now();
    first
        .charge
        .expect("a charge")
        .refund()
        .await
        .expect("an answer");
    second.await.expect("no panic").expect("it came back");
    assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
}

/// Requests that wait for what is owed sleep until it has left, whoever comes meanwhile.
#[tokio::test(start_paused = true)]
async fn who_waits_sleeps() {
    let rule = per_minute("p", 9)
        .with_cost(0)
        .with_algorithm(Algorithm::FixedWindow);
    let store = Stub::around(paused()).recording();
    let limits = Limits::new([rule]).store(store.clone());
    let admitted = limits.check("p", key()).await.expect("room");
    let charge = admitted.charge.expect("a charge");
    charge.settle(12).await.expect("an answer");
    let began = Instant::now();
    let check = |cost| limits.check("p", key()).cost(cost).wait(2 * WINDOW);
    let mut waiting: Vec<_> = [0; 5]
        .map(|cost| tokio::spawn(check(cost).into_future()))
        .into();
    for cost in [0, 1, 5].into_iter().cycle().take(30) {
        sleep(SECOND).await;
        let newcomer = limits.check("p", key()).cost(cost).wait(millis(10));
        assert!(newcomer.await.is_err());
    }
    waiting.push(tokio::spawn(check(9).into_future()));
    for waiter in waiting {
        waiter.await.expect("no panic").expect("the window is over");
    }
    assert!(began.elapsed() <= WINDOW + SECOND, "{:?}", began.elapsed());
    let asked = store.asked(|_| true);
    assert!(asked < 250, "{asked} questions");
}
