//! Takes over several counts while their store is away.

use super::*;

/// A quarter of each quota.
fn store() -> Resilient<Stub> {
    Resilient::new(Stub::down()).failures(None).processes(4)
}

/// Requests of 10 units: 100 for a user and at most 4 requests, and everyone's 40.
fn rule() -> Arc<Rule> {
    let user = subject("user", 100).limit(requests("requests", 16, 4));
    let rule = joint("chat", [user, subject("everyone", 400)]);
    Arc::new(Rule::clone(&rule).with_cost(10))
}

fn of(rule: &Arc<Rule>, user: &str) -> Take {
    take(rule, &[("user", user), ("everyone", "")])
}

/// The names of the quotas that deny.
async fn denying(store: &dyn Store, take: &Take) -> Vec<String> {
    let decision = ask(store, take).await;
    assert_eq!(decision.source(), Source::Fallback);
    let policies = decision.denied_by(take.rule().policies());
    policies.map(|policy| policy.name().to_owned()).collect()
}

#[tokio::test]
async fn a_share_is_by_each_quotas_own_cost() {
    let (store, rule) = (store(), rule());
    // A quarter of 16 units is one request of 4, where a share by the cost of 10 would be more.
    assert_eq!(denying(&store, &of(&rule, "alice")).await, [""; 0]);
    assert_eq!(denying(&store, &of(&rule, "alice")).await, ["requests"]);
    let user = subject("user", 100).limit(requests("requests", 400, 4));
    let roomy = joint("roomy", [user, subject("everyone", 120)]);
    let roomy = Arc::new(Rule::clone(&roomy).with_cost(10));
    for user in ["alice", "alice", "bob"] {
        assert_eq!(denying(&store, &of(&roomy, user)).await, [""; 0]);
    }
    let names = ["roomy-user-1h", "roomy-everyone"];
    assert_eq!(denying(&store, &of(&roomy, "alice")).await, names);
    assert_eq!(denying(&store, &of(&roomy, "carol")).await, names[1..]);
}

/// A subject that is not counted has no share, either, and plans are found by their subjects.
#[tokio::test]
async fn subjects_are_found_by_their_names() {
    let store = store();
    let of_everyone = Policy::new("less", Quota::per_hour(40)).with_subject("everyone");
    let plan = Quotas::with_policies([of_everyone]).expect("valid");
    let rule = Rule::clone(&rule()).with_plan("free", plan.unlimited(["user"]));
    let rule = Arc::new(rule.expect("valid"));
    let free = rule.of_plan("free").expect("a plan");
    assert_eq!(denying(&store, &of(&free, "alice")).await, [""; 0]);
    assert_eq!(denying(&store, &of(&free, "alice")).await, ["less"]);
    // What the plan has charged counts for the rule, too: in everyone's count alone.
    let alone = take(&rule, &[("user", "alice")]);
    assert_eq!(denying(&store, &alone).await, [""; 0]);
    assert_eq!(denying(&store, &alone).await, ["requests"]);
    let skips = take(&rule, &[("everyone", "")]);
    for _ in 0..9 {
        assert_eq!(denying(&store, &skips).await, [""; 0]);
    }
    assert_eq!(denying(&store, &skips).await, ["chat-everyone"]);
}

#[tokio::test]
async fn a_refund_reaches_all_counts() {
    let (store, rule) = (store(), rule());
    let alice = of(&rule, "alice");
    for _ in 0..25 {
        let decision = ask(&store, &alice).await;
        let receipt = decision.receipt().expect("it was charged");
        assert_eq!(receipt.units(), 10);
        assert_eq!(store.refund(&alice, &receipt).await.expect("an answer"), 10);
        assert_eq!(store.refund(&alice, &receipt).await.expect("an answer"), 0);
    }
    assert_eq!(denying(&store, &alice).await, [""; 0]);
    assert!(store.reset(&alice).await.expect("forgotten here"));
    assert_eq!(denying(&store, &alice).await, [""; 0]);
}
