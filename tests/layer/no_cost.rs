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

#[test]
fn scenes() {
    kit::timeline::play("tests/layer/no_cost.txt");
}
