//! Plans behind the wrappers of a store: the fallback's share, the cache of denials, the breaker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use tidegate::decision::Source;
use tidegate::rule::{Quotas, Share};
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::test_util::ManualClock;
use tidegate::{
    Decision, Header, Key, Limits, MemoryStore, RedisStore, Resilient, Rule, Store, StoreError,
    Take,
};
use tokio::time::sleep;

use super::oracle::Oracle;
use super::{ALGORITHMS, all_of, of_own, quotas, send, status, with_plans, wrap};
use kit::stub::Stub;
use kit::{HOUR, PATIENT, connect, millis};

fn take_of(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost)
}

async fn ask(store: &dyn Store, rule: &Arc<Rule>, cost: u64) -> Decision {
    store
        .take(&take_of(rule, "x", cost))
        .await
        .expect("a decision")
}

/// A store that always fails, and a fallback that reads a clock of the test.
fn fallback(share: Share) -> (Resilient<Stub>, ManualClock) {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    let dead = Stub::answering(MemoryStore::new(), |_| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "it is gone");
        Some(StoreFuture::ready(Err(error)))
    });
    let local = MemoryStore::new().clock(clock.clone());
    (
        Resilient::bare(dead).fallback(share).fallback_store(local),
        clock,
    )
}

/// A quarter of each plan, whichever is asked in turn: law 1 by an oracle for the shares.
#[tokio::test]
async fn the_fallback_has_the_share_of_the_plan() {
    let mut random = Random::new(0xfa);
    for algorithm in ALGORITHMS {
        let (store, clock) = fallback(Share::of_processes(4));
        let rule = of_own("share", &[(8, Duration::from_secs(1))]).with_algorithm(algorithm);
        let rules = all_of(with_plans(
            rule,
            &[
                (
                    "large",
                    &[(400, Duration::from_secs(60)), (40, Duration::from_secs(2))],
                ),
                ("pro", &[(33, Duration::from_secs(5))]),
            ],
        ));
        let shares = [
            quotas(&[(2, Duration::from_secs(1))]),
            quotas(&[(100, Duration::from_secs(60)), (10, Duration::from_secs(2))]),
            quotas(&[(8, Duration::from_secs(5))]),
        ];
        let shares: Vec<Vec<_>> = shares
            .iter()
            .map(|it| it.iter().copied().collect())
            .collect();
        let mut oracle = Oracle::new(algorithm);
        let mut allowed = [0; 3];
        for _ in 0..2_000 {
            clock.set(clock.now() + 1_001 + random.below(400_000));
            let which = random.below(3) as usize;
            let decision = ask(&store, &rules[which], 1).await;
            assert_eq!(decision.source(), Source::Fallback);
            if decision.is_allowed() {
                allowed[which] += 1;
                oracle.charge(clock.now(), 1, u64::MAX);
                oracle.check_allowed(clock.now(), &shares[which], &decision);
            } else {
                oracle.check_denied(clock.now(), &shares[which], 1, &decision);
            }
        }
        println!("{algorithm:?}: {allowed:?}");
        assert!(allowed.iter().sum::<u64>() > 300);
    }
}

/// A share of less than one request is one in a longer window, and what other plans charged counts
/// in all of it: law 3 for the retry-after that says so, and law 1 for the share.
#[tokio::test]
async fn a_share_of_less_than_one_request() {
    let mut wrong = Vec::new();
    for algorithm in ALGORITHMS {
        let (store, clock) = fallback(Share::of_processes(4));
        // One in 4 s, and 25 in 1 s.
        let rule = of_own("less", &[(1, Duration::from_secs(1))]).with_algorithm(algorithm);
        let rules = all_of(with_plans(
            rule,
            &[("pro", &[(100, Duration::from_secs(1))])],
        ));
        for _ in 0..25 {
            assert!(ask(&store, &rules[1], 1).await.is_allowed());
        }
        assert!(!ask(&store, &rules[1], 1).await.is_allowed());
        let denied = ask(&store, &rules[0], 1).await;
        let wait = denied.retry_after().expect("it may come back");
        assert!(wait <= Duration::from_secs(4), "{algorithm:?}: {wait:?}");
        clock.set(clock.now() + 1_500_000);
        if ask(&store, &rules[0], 1).await.is_allowed() && wait > millis(1_500) {
            wrong.push((algorithm, wait));
        }
    }
    assert!(
        wrong.is_empty(),
        "allowed after 1.5 s, and told to wait for {wrong:?}"
    );
}

/// A table of customers that are all denied: the cache answers, and the store is hardly asked.
async fn denied_customers(max: fn(u64) -> u64, window: fn(u64) -> Duration) -> usize {
    let listening = Stub::listening(MemoryStore::new());
    let store = Resilient::bare(listening.clone()).denial_cache(Duration::MAX);
    let rule = of_own("table", &[(5, Duration::from_secs(60))]).with_key(Header::new("x-key"));
    let limits = Limits::new([rule]).store(store);
    let table: Vec<_> = (0..20)
        .map(|at| Arc::new(quotas(&[(max(at), window(at))])))
        .collect();
    let layer = limits.layer("table").quotas(move |head| {
        let name = head.headers.get("x-key")?.to_str().ok()?;
        table.get(name.parse::<usize>().ok()?).cloned()
    });
    let service = wrap(layer);
    for round in 0..100_u64 {
        for customer in 0..20_u64 {
            let expected = if round < max(customer) { 200 } else { 429 };
            let got = status(&service, &customer.to_string(), None).await;
            assert_eq!(got, expected, "{customer} in round {round}");
        }
    }
    let used: u64 = (0..20).map(max).sum();
    let asked = listening.asked(|_| true) - used as usize;
    println!("asked {asked} times too often for {} denials", 2_000 - used);
    asked
}

#[tokio::test]
async fn denied_customers_with_different_windows() {
    let asked = denied_customers(|_| 10, |at| Duration::from_secs(3_600 + at)).await;
    assert!(asked <= 40, "{asked}");
}

#[tokio::test]
async fn denied_customers_with_different_maxima() {
    let asked = denied_customers(|at| 1 + at, |_| HOUR).await;
    assert!(asked <= 40, "{asked}");
}

/// A denial under one plan denies no other; an upgrade is felt at once, though the cache remembers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_while_denials_are_cached() {
    let server = Redis::start();
    let store = Resilient::new(connect(&server.url, PATIENT).await).denial_cache(PATIENT);
    let rule = of_own("api", &[(2, HOUR)]).with_key(Header::new("x-key"));
    let rule = with_plans(rule, &[("none", &[(0, HOUR)]), ("pro", &[(40, HOUR)])]);
    let limits = Limits::new([rule]).store(store);
    let service = wrap(limits.layer("api"));
    let tasks = (0..16).map(|at| {
        let service = service.clone();
        tokio::spawn(async move {
            let key = format!("k{}", at % 4);
            let mut allowed = 0;
            for round in 0..30 {
                let plan = [None, Some("none"), Some("pro"), Some("unknown")][(at + round) % 4];
                let status = status(&service, &key, plan).await;
                assert!(status == 200 || status == 429, "{status}");
                assert!(plan != Some("none") || status == 429);
                allowed += u64::from(status == 200);
            }
            allowed
        })
    });
    let allowed = join_all(tasks.collect::<Vec<_>>()).await;
    let allowed: u64 = allowed.into_iter().map(|one| one.expect("no panic")).sum();
    // Each key was asked 30 times under "pro" by four tasks.
    assert!((4 * 28..=4 * 40).contains(&allowed), "{allowed}");
    for key in 0..4 {
        let key = format!("k{key}");
        assert_eq!(status(&service, &key, None).await, 429);
        let left = limits
            .peek("api", Header::new("x-key").key(key.as_str()))
            .plan("pro")
            .await;
        let left = left.expect("an answer").expect("a rule").remaining();
        let answer = status(&service, &key, Some("pro")).await;
        assert_eq!(
            answer,
            if left > 0 { 200 } else { 429 },
            "{key} has {left} left"
        );
    }
}

/// Redis goes, and comes back: plans are decided all the time, in bounded time, and by the share
/// while it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_and_comes_back() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = RedisStore::connect(&*proxy.url)
        .await
        .expect("a running server");
    let store = Resilient::new(redis).processes(2).timeout(millis(200));
    let rule = of_own("api", &[(4, HOUR)]).with_key(Header::new("x-key"));
    let rule = with_plans(rule, &[("pro", &[(20, HOUR)])]);
    let limits = Limits::new([rule]).store(store);
    let none: Option<Arc<Quotas>> = None;
    let service = wrap(limits.layer("api").quotas(move |_| none.clone()));
    let spent = async |key: &str, plan: Option<&str>| {
        let mut allowed = 0;
        let mut policy = String::new();
        for _ in 0..30 {
            let asked = Instant::now();
            let answer = send(&service, key, plan).await;
            assert!(asked.elapsed() < PATIENT / 4, "{:?}", asked.elapsed());
            assert!(
                [200, 429].contains(&answer.status().as_u16()),
                "{}",
                answer.status()
            );
            allowed += u64::from(answer.status() == 200);
            if let Some(field) = answer.headers().get("ratelimit-policy") {
                policy = field.to_str().expect("text").to_owned();
            }
        }
        (allowed, policy)
    };
    assert_eq!(spent("before", None).await.0, 4);
    assert_eq!(spent("before", Some("pro")).await.0, 16);
    proxy.all(Mode::BlackHole);
    let (own, policy) = spent("gone", None).await;
    assert_eq!(own, 2, "{policy}");
    let (pro, policy) = spent("gone", Some("pro")).await;
    assert_eq!(pro, 8, "{policy}");
    assert_eq!(spent("gone", None).await.0, 0);
    proxy.all(Mode::Pass);
    let began = Instant::now();
    let is_back = async || {
        let left = limits.peek("api", "probe").plan("pro").await;
        left.is_ok_and(|left| left.is_some_and(|left| left.source() == Source::Redis))
    };
    while !is_back().await {
        assert!(began.elapsed() < PATIENT);
        sleep(millis(20)).await;
    }
    assert_eq!(
        spent("before", Some("pro")).await.0,
        0,
        "Redis has not forgotten"
    );
    assert_eq!(spent("after", Some("pro")).await.0, 20);
    assert_eq!(spent("after", None).await.0, 0);
}
