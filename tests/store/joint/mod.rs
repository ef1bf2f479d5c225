//! Takes over several counts: charged in all, or in none.

mod denial_cache;
mod fallback;
mod refunds;

use tidegate::rule::{Plan, Quotas};
use tidegate::store::Change;

use crate::prelude::*;

fn subject(name: &str, max: u32) -> Subject {
    Subject::new(name, Everyone).limit(Quota::per_hour(max))
}

/// A quota of so many requests, whatever they cost.
fn requests(name: &str, max: u32, cost: u64) -> Policy {
    Policy::new(name, Quota::per_hour(max)).with_cost(cost)
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
    for store in refunds::stores(&server).await {
        let receipt = Receipt::new(1, 1, 1);
        assert!(store.take(&take).await.expect("an answer").is_allowed());
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
    }
}
