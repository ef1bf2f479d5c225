//! Cached denials of takes over several counts.

use kit::stub::travel;

use super::*;

fn is_cached(decision: &Decision) -> bool {
    assert!(!decision.is_allowed(), "{decision:?}");
    decision.source() == Source::Cache
}

/// One unit for each user, 100 for each address, 3 for everyone.
fn rule() -> Arc<Rule> {
    let subjects = [("user", 1), ("address", 100), ("everyone", 3)];
    joint("api", subjects.map(|(name, max)| subject(name, max)))
}

fn whole(rule: &Arc<Rule>, user: &str, address: &str) -> Take {
    let keys = [("user", user), ("address", address), ("everyone", "")];
    take(rule, &keys)
}

/// Asks twice: the second answer is the cache's.
async fn denied_and_cached(store: &dyn Store, take: &Take) {
    assert!(!is_cached(&ask(store, take).await), "{take:?}");
    assert!(is_cached(&ask(store, take).await), "{take:?}");
}

/// A memory store and Redis, with a cache that forgets nothing by itself.
async fn cached(server: &Redis) -> [Arc<dyn Store>; 2] {
    let memory = Resilient::new(MemoryStore::new()).denial_cache(Duration::MAX);
    let redis = Resilient::new(store_on(server).await).denial_cache(Duration::MAX);
    [memory.build(), redis.build()]
}

#[tokio::test]
async fn no_denial_answers_another_tuple() {
    let server = Redis::start();
    for store in cached(&server).await {
        let plain = rule();
        let roomy = Policy::new("roomy", Quota::per_hour(5)).with_subject("user");
        let roomy = Quotas::with_policies([roomy]).expect("valid");
        let rule = Arc::new(Rule::clone(&plain).with_plan("pro", roomy).expect("valid"));
        let alice = whole(&rule, "alice", "a");
        assert!(ask(&*store, &alice).await.is_allowed());
        denied_and_cached(&*store, &alice).await;
        // Each of these is asked for itself, and is denied for the same user.
        denied_and_cached(&*store, &whole(&rule, "alice", "b")).await;
        let skips = take(&rule, &[("user", "alice"), ("everyone", "")]);
        denied_and_cached(&*store, &skips).await;
        denied_and_cached(&*store, &take(&rule, &[("user", "alice")])).await;
        assert!(!is_cached(&ask(&*store, &alice.clone().repeat()).await));
        assert!(is_cached(&ask(&*store, &alice).await));
        // Others have room.
        let without_user = take(&rule, &[("address", "a"), ("everyone", "")]);
        assert!(ask(&*store, &without_user).await.is_allowed());
        let pro = whole(&rule.of_plan("pro").expect("a plan"), "alice", "a");
        assert!(ask(&*store, &pro).await.is_allowed());
    }
}

#[tokio::test]
async fn what_frees_one_count_voids_all_tuples_with_it() {
    let server = Redis::start();
    for store in cached(&server).await {
        let rule = rule();
        let mut charged = Vec::new();
        for (user, address) in [("alice", "a"), ("bob", "b"), ("carol", "c")] {
            let take = whole(&rule, user, address);
            let receipt = ask(&*store, &take).await.receipt().expect("it was charged");
            charged.push((take, receipt));
        }
        let dave = whole(&rule, "dave", "d");
        denied_and_cached(&*store, &dave).await;
        let (take, receipt) = &charged[0];
        assert_eq!(store.refund(take, receipt).await.expect("an answer"), 1);
        let of_dave = ask(&*store, &dave)
            .await
            .receipt()
            .expect("a unit of everyone");

        // Of this request, the rule's other subjects are not counted.
        let everyone = super::take(&rule, &[("everyone", "")]);
        denied_and_cached(&*store, &everyone).await;
        assert_eq!(store.refund(&dave, &of_dave).await.expect("an answer"), 1);
        assert!(ask(&*store, &everyone).await.is_allowed());

        let erin = whole(&rule, "erin", "e");
        denied_and_cached(&*store, &erin).await;
        assert!(store.reset(&everyone).await.expect("an answer"));
        let is_right = ask(&*store, &erin).await.is_allowed();
        assert!(is_right, "everyone begins anew");

        // One count of a charge, by itself.
        denied_and_cached(&*store, &whole(&rule, "bob", "x")).await;
        let (take, receipt) = &charged[1];
        let (user, receipt) = (take.only(0), &receipt.counts()[0]);
        assert_eq!(store.refund(&user, receipt).await.expect("an answer"), 1);
        assert!(ask(&*store, &whole(&rule, "bob", "x")).await.is_allowed());
    }
}

/// What shares no count with a change stays, unless it shares a place by chance.
#[tokio::test]
async fn other_tuples_stay_cached() {
    let store = Resilient::new(MemoryStore::new()).denial_cache(Duration::MAX);
    let rule = joint("api", [subject("user", 1), subject("address", 100)]);
    let of = |user: &str| super::take(&rule, &[("user", user), ("address", &format!("of {user}"))]);
    let users: Vec<_> = (0..20).map(|i| of(&format!("user {i}"))).collect();
    for take in &users {
        assert!(ask(&store, take).await.is_allowed());
        denied_and_cached(&store, take).await;
    }
    store.reset(&of("another")).await.expect("an answer");
    let mut stayed = 0;
    for take in &users {
        stayed += usize::from(is_cached(&ask(&store, take).await));
    }
    assert!(stayed > 10, "{stayed}");
}

/// An answer that was on its way during a refund of another tuple may be older than the refund.
#[tokio::test(start_paused = true)]
async fn no_denial_is_kept_during_a_change() {
    let second = Duration::from_secs(1);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
    let far = Arc::clone(&memory);
    let stub = Stub::around(memory).refund_fn(move |_, take, receipt| {
        let (take, receipt) = (take.clone(), receipt.clone());
        travel(&far, (second, second), move |far| {
            far.refund(&take, &receipt)
        })
    });
    let store = Resilient::new(stub).denial_cache(Duration::MAX);
    let rule = joint("api", [subject("user", 1), subject("everyone", 1)]);
    let of = |user: &str| super::take(&rule, &[("user", user), ("everyone", "")]);
    let alice = of("alice");
    let receipt = ask(&store, &alice).await.receipt().expect("it was charged");
    let refund = tokio::spawn(store.refund(&alice, &receipt));
    for _ in 0..2 {
        assert!(!is_cached(&ask(&store, &of("bob")).await));
    }
    sleep(3 * second / 2).await;
    // It is done, and not heard of.
    assert!(ask(&store, &of("bob")).await.is_allowed());
    assert_eq!(refund.await.expect("no panic").expect("an answer"), 1);
    denied_and_cached(&store, &of("carol")).await;
}
