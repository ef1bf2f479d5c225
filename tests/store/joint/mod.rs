//! Takes over several counts: charged in all, or in none.

mod denial_cache;

use tidegate::rule::{Plan, Quotas};
use tidegate::store::Change;

use crate::prelude::*;

fn subject(name: &str, max: u32) -> Subject {
    Subject::new(name, Everyone).limit(Quota::per_hour(max))
}

/// A quota of so many requests, whatever they cost.
fn requests(max: u32) -> Policy {
    Policy::from(Quota::per_hour(max)).with_cost(1)
}

fn joint(path: &str, subjects: impl IntoIterator<Item = Subject>) -> Arc<Rule> {
    Arc::new(Rule::joint(path, subjects).expect("a valid rule"))
}

/// A take of these subjects with these keys; an empty key is everyone's.
fn take(rule: &Arc<Rule>, keys: &[(&str, &str)]) -> Take {
    let key = |key: &str| match key {
        "" => Key::default(),
        key => Key::from(key),
    };
    let keys = keys.iter().map(|(subject, text)| (*subject, key(text)));
    Take::of_subjects(Arc::clone(rule), keys).expect("subjects of the rule")
}

/// What remains of each quota.
async fn left(store: &dyn Store, take: &Take) -> Vec<u64> {
    let look = store.peek(take).await.expect("an answer");
    look.quotas().iter().map(QuotaState::remaining).collect()
}

async fn stores(server: &Redis) -> [Arc<dyn Store>; 3] {
    let redis = store_on(server).await;
    [
        Arc::new(MemoryStore::new()),
        Arc::new(redis.clone()),
        Resilient::new(redis).build(),
    ]
}

/// Requests that cost nothing and looks that are asked at once: only the former are charged.
#[tokio::test]
async fn looks_beside_requests_that_cost_nothing() {
    let server = Redis::start();
    for (i, store) in stores(&server).await.into_iter().enumerate() {
        let user = subject("user", 1_000).limit(requests(5));
        let everyone = subject("everyone", 10_000).limit(requests(3));
        let rule = joint(&format!("free{i}"), [user, everyone]);
        let free = take(&rule, &[("user", "alice"), ("everyone", "")]).with_cost(0);
        for expected in [2, 1, 0] {
            let looks = || store.peek(&free);
            let answers = [looks(), store.take(&free), looks(), looks()];
            for answer in join_all(answers).await {
                assert!(answer.expect("an answer").is_allowed());
            }
            assert_eq!(
                left(&*store, &free).await,
                [1_000, 2 + expected, 10_000, expected]
            );
        }
        let answers = join_all([store.take(&free), store.peek(&free)]).await;
        let allowed = answers.iter().map(is_allowed);
        assert_eq!(allowed.collect::<Vec<_>>(), [false, true]);
        assert_eq!(left(&*store, &free).await, [1_000, 2, 10_000, 0]);
    }
}

/// What a fallback has charged is forgotten in all counts, whatever the store says.
#[tokio::test]
async fn a_reset_while_the_store_is_away() {
    let store = Resilient::new(Stub::down()).failures(None).processes(1);
    let rule = joint(
        "away",
        [
            subject("user", 1).limit(requests(1)),
            subject("everyone", 1),
        ],
    );
    let alice = take(&rule, &[("user", "alice"), ("everyone", "")]);
    assert_eq!(allowed(&store, &alice, 2).await, 1);
    assert!(store.reset(&alice).await.expect("forgotten here"));
    assert_eq!(allowed(&store, &alice, 2).await, 1);
}

/// A plan may lift the quotas of all subjects that a request has: nothing is asked, and nobody
/// panics.
#[tokio::test]
async fn a_take_of_no_count() {
    let server = Redis::start();
    let user = subject("user", 5).skip_absent();
    let rule = joint("lifted", [user, subject("everyone", 11)]);
    let everyone = Policy::from(Quota::per_minute(7)).with_subject("everyone");
    let lifted = Quotas::with_policies([everyone]).expect("valid");
    let lifted = rule.under(&Plan::from(lifted.unlimited(["user"])));
    let take = take(&lifted.expect("it fits"), &[("user", "alice")]);
    assert!(take.counts().is_empty());
    for store in stores(&server).await {
        let receipt = Receipt::new(1, 1, 1);
        let decision = ask(&*store, &take).await;
        assert!(decision.is_allowed() && decision.receipt().is_none());
        assert!(store.listen(&take, Box::new(|| ())).is_none());
        for change in [
            Change::Refund(receipt.clone()),
            Change::Owe(receipt.clone()),
            Change::Renew(receipt),
            Change::Hold(SECOND),
            Change::Forget,
        ] {
            let changed = store.change(&take, &change).await;
            assert!(changed.is_ok(), "{store:?}: {change:?}: {changed:?}");
        }
        assert!(!store.reset(&take).await.expect("an answer"));
    }
}
