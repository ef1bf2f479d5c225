//! Who holds a permit, and until when.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use futures_util::FutureExt;
use http::StatusCode;
use kit::Redis;
use tidegate::decision::{QuotaState, Verdict};
use tidegate::rule::Policy;
use tidegate::{Decision, Key, Limits, Quota, Rule, Store};
use tokio::sync::Notify;

use crate::{Stores, send, store_on};

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn limits(rule: Rule, store: Arc<dyn Store>) -> Limits {
    Limits::new([rule]).store(store)
}

fn one_at_a_time() -> Rule {
    Rule::with_policies("export", [Policy::concurrent(1)]).expect("a valid rule")
}

/// `/` waits to be told to end.
fn app(limits: &Limits, end: &Arc<Notify>) -> Router {
    let end = Arc::clone(end);
    let handler = get(move || {
        let end = Arc::clone(&end);
        async move { end.notified().await }
    });
    Router::new().route("/", handler.layer(limits.layer("export")))
}

async fn peeked(limits: &Limits) -> u64 {
    let left = limits.peek("export", Key::default()).await;
    left.expect("an answer").expect("a rule").remaining()
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_has_ended() {
    for store in Stores::start().await.all {
        let limits = limits(one_at_a_time(), store);
        let end = Arc::new(Notify::new());
        let app = app(&limits, &end);
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, "/").await }
        });
        while peeked(&limits).await > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(send(&app, "/").await.status(), DENIED);
        end.notify_one();
        let response = first.await.expect("no panic");
        assert_eq!(response.status(), OK);
        drop(response);
        while peeked(&limits).await == 0 {
            tokio::task::yield_now().await;
        }
        end.notify_one();
        assert_eq!(send(&app, "/").await.status(), OK);
    }
}

/// Quotas and permits are decided together: a request that finds no permit is charged nothing, and
/// one that a quota denies holds none.
#[tokio::test]
async fn a_busy_request_is_charged_nothing() {
    for store in Stores::start().await.all {
        let rule = Rule::new("export", [Quota::per_hour(3)]).expect("a valid rule");
        let rule = rule.with_max_concurrent(2).expect("a valid rule");
        let limits = limits(rule, store);
        let check = || async { limits.check("export", "alice").await };
        let (one, two) = (check().await, check().await);
        let left = |decision: &Decision| {
            let states = decision.quotas().iter();
            states.map(QuotaState::remaining).collect::<Vec<_>>()
        };
        let two = two.expect("it is the second");
        assert_eq!(left(two.decision.as_ref().expect("a decision")), [1, 0]);
        let busy = check().await.expect_err("both permits are held");
        let busy = busy.decision().expect("a decision").clone();
        let retry_after = Rule::DEFAULT_BUSY_RETRY;
        assert_eq!(busy.verdict(), Verdict::Busy { retry_after });
        assert_eq!(left(&busy), [1, 0]);
        drop((one, two));
        let three = loop {
            match check().await {
                Ok(three) => break three,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let denied = check().await.expect_err("the quota is used up");
        let denied = denied.decision().expect("a decision").clone();
        assert!(matches!(denied.verdict(), Verdict::Denied { .. }));
        assert_eq!(left(&denied), [0, 1]);
        drop(three);
    }
}

/// A request that waits for a permit gets it when it comes back.
#[tokio::test]
async fn who_waits_is_admitted_in_order() {
    for store in Stores::start().await.all {
        let limits = limits(one_at_a_time(), store);
        let layer = limits.layer("export").wait(Duration::from_secs(20));
        let (order, all_wait) = <(Arc<std::sync::Mutex<Vec<u32>>>, Arc<Notify>)>::default();
        let handler = {
            let (order, all_wait) = (Arc::clone(&order), Arc::clone(&all_wait));
            get(move |number: Path<u32>| {
                order.lock().expect("no panic").push(number.0);
                let all_wait = Arc::clone(&all_wait);
                async move {
                    match number.0 {
                        0 => all_wait.notified().await,
                        _ => tokio::time::sleep(Duration::from_millis(2)).await,
                    }
                }
            })
        };
        let app = Router::new().route("/{number}", handler.layer(layer));
        let mut sent = Vec::new();
        let waiting = || limits.snapshot().rule("export").map_or(0, |it| it.waiting);
        for number in 0..20 {
            let app = app.clone();
            sent.push(tokio::spawn(async move {
                send(&app, &format!("/{number}")).await.status()
            }));
            while waiting() < number || order.lock().expect("no panic").is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        all_wait.notify_one();
        for task in sent {
            assert_eq!(task.await.expect("no panic"), OK);
        }
        let order = order.lock().expect("no panic").clone();
        assert!(order.is_sorted(), "{order:?}");
    }
}

/// A check waits as a request does, and no longer than it says.
#[tokio::test]
async fn a_check_waits() {
    for store in Stores::start().await.all {
        let limits = limits(one_at_a_time(), store);
        let check = |millis| {
            let check = limits.check("export", Key::default());
            check.wait(Duration::from_millis(millis)).into_future()
        };
        let first = check(0).await.expect("nobody runs");
        check(30).await.expect_err("the first one runs");
        let second = tokio::spawn(check(20_000));
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(first);
        drop(second.await.expect("no panic").expect("it came back"));
    }
}

/// A max that is raised admits who waits; one that is lowered ends nothing that runs.
#[tokio::test]
async fn the_max_changes_while_requests_wait() {
    for store in Stores::start().await.all {
        let limits = limits(one_at_a_time(), store);
        let replace = |max| {
            let rule = Rule::with_policies("export", [Policy::concurrent(max)]);
            limits.rules().replace([rule.expect("a valid rule")].into());
        };
        let check = || limits.check("export", Key::default());
        let first = check().await.expect("nobody runs");
        let second = tokio::spawn(check().wait(Duration::from_secs(20)).into_future());
        tokio::time::sleep(Duration::from_millis(20)).await;
        replace(2);
        let second = second.await.expect("no panic").expect("two may run");
        replace(1);
        drop(first);
        assert!(check().await.is_err(), "the second one runs");
        drop(second);
        drop(
            check()
                .wait(Duration::from_secs(20))
                .await
                .expect("nobody runs"),
        );
    }
}

/// A permit lives as long as its holder, however short its lease; and it comes back to a server
/// that has lost it.
#[tokio::test]
async fn a_permit_is_renewed() {
    let stores = Stores::start().await;
    let check = |limits: &Limits| limits.check("export", Key::default());
    let start = async |store: &Arc<dyn Store>| {
        let long = Rule::with_policies("other", [Policy::concurrent(1)]).expect("a valid rule");
        let short = one_at_a_time().with_permit_lease(Duration::from_secs(1));
        let limits = Limits::new([short.expect("a valid rule"), long]).store(Arc::clone(store));
        let others = limits.check("other", Key::default()).await;
        let first = check(&limits).await.expect("nobody runs");
        (limits, others.expect("nobody runs"), first)
    };
    let mut holders = Vec::new();
    for store in &stores.all {
        holders.push(start(store).await);
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for (limits, ..) in &holders {
        assert!(check(limits).await.is_err(), "it was renewed");
    }
    stores.flush();
    let (limits, _, first) = &holders[1];
    let mut looks = 0;
    while check(limits).await.is_ok() {
        looks += 1;
        assert!(looks < 200, "it was not put back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(first.permit.is_some());
    drop(holders);
}

/// A caller that leaves gives back what it may have been granted, also where a time-out has no end.
#[tokio::test]
async fn a_caller_leaves_under_a_time_out_without_end() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(Duration::MAX);
    let limits = limits(one_at_a_time(), Arc::new(store));
    for _ in 0..10 {
        let check = limits.check("export", Key::default()).into_future();
        assert!(check.now_or_never().is_none(), "Redis has to be asked");
    }
    while peeked(&limits).await == 0 {
        tokio::task::yield_now().await;
    }
    assert!(limits.check("export", Key::default()).await.is_ok());
}
