//! While Redis is gone: each process admits its share, in all subjects or in none.

use super::*;

async fn gone(processes: u32) -> Arc<dyn Store> {
    let (mut server, store) = near().await;
    server.kill();
    let store = Resilient::new(store).processes(processes);
    store.denial_cache(None).build()
}

const HOUR: u64 = 3_600_000;
const GROWING: [Algorithm; 2] = [Algorithm::SlidingLog, Algorithm::FixedWindow];

/// A take of a rule of a user with tokens and requests, and of the tokens of all.
fn tokens(algorithm: Algorithm, requests: Policy, of_all: u64, user: &str) -> Take {
    let own = Subject::new("user", Everyone).limit(quota(4_000, HOUR));
    let all = Subject::new("all", Everyone).limit(quota(of_all, HOUR));
    let rule = named(algorithm, [own.limit(requests), all]);
    super::take(&rule, &[("user", user), ("all", "")])
}

/// A share that has no room for one request of its own cost admits one in a longer window.
#[tokio::test]
async fn a_share_below_its_own_cost_admits_one() {
    let store = gone(4).await;
    for algorithm in GROWING {
        let requests = Policy::from(quota(10, HOUR)).with_cost(5);
        let take = tokens(algorithm, requests, 4_000, "u");
        let first = charge(&store, &take).await;
        let second = decide(&store, &take).await;
        assert!(second.retry_after().is_some(), "{algorithm:?}: {second:?}");
        assert_eq!(give_back(&first).await, 1, "{algorithm:?}");
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
    let left = left(&store, &tuple(&rule, "u9", "a9")).await;
    assert_eq!(left, [2, 3, 0]);
}
