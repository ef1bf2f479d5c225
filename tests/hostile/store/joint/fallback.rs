//! While Redis is gone: each process admits its share of each quota, by that quota's own cost, in
//! all subjects or in none.

use tidegate::rule::OnError;

use super::{joint, left, quota, three, tuple};
use crate::prelude::*;

async fn gone(processes: u32) -> Arc<dyn Store> {
    let mut server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    server.kill();
    Resilient::new(store)
        .processes(processes)
        .denial_cache(None)
        .build()
}

const HOUR: u64 = 3_600_000;
const GROWING: [Algorithm; 2] = [Algorithm::SlidingLog, Algorithm::FixedWindow];

/// Shares of requests beside shares of tokens; what one share denies is charged in none.
#[tokio::test]
async fn shares_of_each_quota_by_its_cost() {
    let store = gone(4).await;
    for algorithm in GROWING {
        // Quarters: 1,000 tokens and 5 requests of a user, 3,000 tokens of all.
        let user = Subject::new("user", Everyone)
            .limit(quota(4_000, HOUR))
            .limit(tidegate::rule::Policy::from(quota(20, HOUR)).with_cost(1));
        let all = Subject::new("all", Everyone).limit(quota(12_000, HOUR));
        let rule = joint(algorithm, algorithm.name(), [user, all]);
        let of = |user: &str| super::take(&rule, &[("user", user), ("all", "")]);
        for at in 0..7 {
            let decision = decide(&store, &of("requests")).await;
            assert_eq!(decision.source(), Source::Fallback);
            let told = decision.is_allowed();
            assert_eq!(told, at < 5, "{algorithm:?}, {at}: {decision:?}");
        }
        let tokens = of("tokens").with_cost(500);
        for at in 0..4 {
            let decision = decide(&store, &tokens).await;
            let told = decision.is_allowed();
            assert_eq!(told, at < 2, "{algorithm:?}, {at}: {decision:?}");
        }
        // 1,005 of 3,000 are used by all: 1,995 remain for them.
        for (user, cost, is_allowed) in [
            ("c", 1_000, true),
            ("d", 996, false),
            ("d", 995, true),
            ("e", 1, false),
        ] {
            let decision = store.take(&of(user).with_cost(cost)).await;
            let decision = decision.expect("a decision");
            let told = decision.is_allowed();
            assert_eq!(told, is_allowed, "{algorithm:?}, {user}: {decision:?}");
        }
    }
}

/// A share that has no room for one request of its own cost admits one in a longer window.
#[tokio::test]
async fn a_share_below_its_own_cost_admits_one() {
    let store = gone(4).await;
    for algorithm in GROWING {
        let user = Subject::new("user", Everyone).limit(quota(4_000, HOUR));
        let user = user.limit(tidegate::rule::Policy::from(quota(10, HOUR)).with_cost(5));
        let all = Subject::new("all", Everyone).limit(quota(4_000, HOUR));
        let rule = joint(algorithm, algorithm.name(), [user, all]);
        let take = super::take(&rule, &[("user", "u"), ("all", "")]);
        let first = decide(&store, &take).await;
        assert!(first.is_allowed(), "{algorithm:?}: {first:?}");
        let second = decide(&store, &take).await;
        assert!(second.retry_after().is_some(), "{algorithm:?}: {second:?}");
        let receipt = first.receipt().expect("charged");
        let charge = Charge::new(Arc::clone(&store), take.clone(), receipt);
        assert_eq!(give_back(&charge).await, 1, "{algorithm:?}");
        let third = decide(&store, &take).await;
        assert!(third.is_allowed(), "{algorithm:?}: {third:?}");
    }
}

/// Rules without a fallback get the error, and those with one all their subjects.
#[tokio::test]
async fn rules_that_want_no_fallback() {
    let store = gone(1).await;
    let rule = three(Algorithm::SlidingLog, "p", [2, 3, 4]);
    let none = Arc::new((*rule).clone().with_on_error(OnError::Respond));
    assert!(store.take(&tuple(&none, "u", "a")).await.is_err());
    for at in 0..9 {
        let take = tuple(&rule, &format!("u{}", at % 3), &format!("a{}", at % 2));
        decide(&store, &take).await;
    }
    let left = left(&*store, &tuple(&rule, "u9", "a9")).await;
    assert_eq!(left, [2, 3, 0]);
}

/// The breaker, the fallback, and Redis again: what Redis has decided is not forgotten.
#[tokio::test]
async fn redis_comes_back() {
    let mut server = Redis::start();
    let plain = connect(&server.url, PATIENT).await;
    let store = Resilient::new(plain.clone())
        .processes(2)
        .denial_cache(None)
        .build();
    let rule = three(Algorithm::FixedWindow, "p", [100, 100, 100]);
    let take = tuple(&rule, "u", "a");
    for _ in 0..10 {
        assert!(decide(&store, &take).await.is_allowed());
    }
    server.kill();
    let mut admitted = 0;
    for _ in 0..60 {
        let decision = decide(&store, &take).await;
        assert_eq!(decision.source(), Source::Fallback);
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, 50, "a half");
    server.restart();
    let began = std::time::Instant::now();
    loop {
        let decision = decide(&store, &take).await;
        if decision.source() != Source::Fallback {
            assert!(decision.is_allowed());
            break;
        }
        assert!(!decision.is_allowed());
        assert!(began.elapsed() < PATIENT, "Redis is not asked again");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    let left = left(&plain, &take).await;
    assert!(left.iter().all(|it| *it == left[0]), "{left:?}");
}
