//! What is given back of a charge over several counts.

use super::*;

/// 1,000 tokens and 5 requests of a user, and 3 requests of everyone.
fn rule(path: &str) -> Arc<Rule> {
    let user = subject("user", 1_000).limit(requests("requests", 5, 1));
    let everyone = subject("everyone", 10_000).limit(requests("all", 3, 1));
    let rule = joint(path, [user, everyone]);
    Arc::new(Rule::clone(&rule).with_cost(400))
}

pub(super) async fn stores(server: &Redis) -> [Arc<dyn Store>; 3] {
    let redis = store_on(server).await;
    [
        Arc::new(MemoryStore::new()),
        Arc::new(redis.clone()),
        Resilient::new(redis).build(),
    ]
}

async fn charge(store: &Arc<dyn Store>, take: &Take) -> Charge {
    let receipt = ask(&**store, take).await.receipt();
    let receipt = receipt.expect("it was charged");
    assert_eq!(receipt.units(), take.cost());
    Charge::new(Arc::clone(store), take.clone(), receipt)
}

/// What remains of each quota.
async fn left(store: &Arc<dyn Store>, take: &Take) -> Vec<u64> {
    let decision = store.peek(take).await.expect("an answer");
    let states = decision.quotas().iter();
    states.map(|state| state.remaining()).collect()
}

#[tokio::test]
async fn a_settlement_leaves_requests_charged() {
    let server = Redis::start();
    for (i, store) in stores(&server).await.into_iter().enumerate() {
        let rule = rule(&format!("settled{i}"));
        let alice = take(&rule, &[("user", "alice"), ("everyone", "")]);
        let first = charge(&store, &alice).await;
        assert_eq!(left(&store, &alice).await, [600, 4, 9_600, 2]);
        assert_eq!(first.settle(300).await.expect("an answer").given_back, 100);
        assert_eq!(left(&store, &alice).await, [700, 4, 9_700, 2]);
        assert_eq!(first.refund().await.expect("an answer"), 0, "only once");
        // A request that used nothing is a request.
        let second = charge(&store, &alice).await;
        assert_eq!(second.settle(0).await.expect("an answer").given_back, 400);
        assert_eq!(left(&store, &alice).await, [700, 3, 9_700, 1]);
        let third = charge(&store, &alice).await;
        assert_eq!(third.refund().await.expect("an answer"), 400);
        assert_eq!(left(&store, &alice).await, [700, 3, 9_700, 1]);
        let seen = third.settle(0).await.expect("an answer").given_back;
        assert_eq!(seen, 0, "only once");
    }
}

/// Requests that cost nothing and looks that are asked at once: only the former are charged.
#[tokio::test]
async fn looks_beside_requests_that_cost_nothing() {
    let server = Redis::start();
    for (i, store) in stores(&server).await.into_iter().enumerate() {
        let rule = rule(&format!("free{i}"));
        let free = take(&rule, &[("user", "alice"), ("everyone", "")]).with_cost(0);
        for expected in [2, 1, 0] {
            let looks = || store.peek(&free);
            let answers = [looks(), store.take(&free), looks(), looks()];
            for answer in join_all(answers).await {
                assert!(answer.expect("an answer").is_allowed());
            }
            assert_eq!(left(&store, &free).await[3], expected);
        }
        let answers = join_all([store.take(&free), store.peek(&free)]).await;
        let allowed = answers
            .into_iter()
            .map(|it| it.expect("an answer").is_allowed());
        assert_eq!(allowed.collect::<Vec<_>>(), [false, true]);
        assert_eq!(left(&store, &free).await, [1_000, 2, 10_000, 0]);
    }
}

/// Where nothing counts by the request's cost, a refund is all of it.
#[tokio::test]
async fn requests_alone_are_given_back_in_units_of_the_cost() {
    let server = Redis::start();
    for (i, store) in stores(&server).await.into_iter().enumerate() {
        let user = subject("user", 1_000);
        let everyone = super::Subject::new("everyone", super::Everyone);
        let everyone = everyone.limit(requests("all", 5, 2));
        let rule = joint(&format!("alone{i}"), [user, everyone]);
        let rule = Arc::new(Rule::clone(&rule).with_cost(400));
        let all = take(&rule, &[("everyone", "")]);
        let first = charge(&store, &all).await;
        assert_eq!(left(&store, &all).await, [1_000, 3]);
        assert_eq!(first.refund().await.expect("an answer"), 400);
        assert_eq!(left(&store, &all).await, [1_000, 5]);
        let second = charge(&store, &all).await;
        assert_eq!(second.settle(100).await.expect("an answer").given_back, 0);
        assert_eq!(left(&store, &all).await, [1_000, 3]);
    }
}

/// A plan under which a subject that is counted is unlimited limits nothing, and charges nothing.
#[tokio::test]
async fn a_take_that_counts_nowhere_is_allowed() {
    let server = Redis::start();
    for (i, store) in stores(&server).await.into_iter().enumerate() {
        let of_user = super::Policy::new("more", tidegate::Quota::per_hour(9)).with_subject("user");
        let plan = super::Quotas::with_policies([of_user]).expect("valid");
        let plan = plan.unlimited(["everyone"]);
        let rule = Rule::clone(&rule(&format!("nowhere{i}"))).with_plan("pro", plan);
        let pro = Arc::new(rule.expect("valid")).of_plan("pro");
        let all = take(&pro.expect("a plan"), &[("everyone", "")]).with_cost(1);
        let decision = ask(&*store, &all).await;
        assert!(decision.is_allowed() && decision.receipt().is_none());
        assert!(!store.reset(&all).await.expect("an answer"));
    }
}
