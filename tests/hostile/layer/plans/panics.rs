//! Closures that panic, change their mind or take long: a 500 for the one request, and nothing for
//! the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use http::request::Parts;
use kit::Redis;
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::{Plan, Quotas};
use tidegate::{Header, Limits, MemoryStore, RateLimitLayer};

use super::{of_own, quotas, send, status, with_plans, wrap};
use kit::{HOUR, PATIENT, connect, millis};

fn named(head: &Parts) -> Option<&str> {
    Some(head.extensions.get::<Plan>()?.name())
}

fn limits() -> Limits {
    let rule = with_plans(of_own("api", &[(5, HOUR)]), &[("pro", &[(50, HOUR)])]);
    Limits::new([rule.with_key(Header::new("x-key"))])
}

/// Without a word in the log of the tests.
fn panic_if(it_shall: bool) {
    if it_shall {
        std::panic::resume_unwind(Box::new("a closure of a test"));
    }
}

/// Panics for the plan "panic" of a request.
fn panicking(limits: &Limits) -> [RateLimitLayer; 3] {
    let plan = |head: &Parts| panic_if(named(head) == Some("panic"));
    [
        limits.layer("api").plan(move |head| {
            plan(head);
            named(head)
        }),
        limits.layer("api").quotas(move |head| {
            plan(head);
            None
        }),
        limits
            .clone()
            .plan(move |head| {
                plan(head);
                named(head)
            })
            .layer("api"),
    ]
}

#[tokio::test]
async fn a_panic_is_a_500_and_nobody_elses() {
    let server = Redis::start();
    for is_redis in [false, true] {
        let limits = match is_redis {
            true => limits().store(connect(&server.url, PATIENT).await),
            false => limits().store(MemoryStore::new()),
        };
        for (at, layer) in panicking(&limits).into_iter().enumerate() {
            let service = wrap(layer.wait(PATIENT));
            let key = format!("k{at}");
            let asked = (0..300).map(|at| {
                let plan = ["panic", "pro", "panic"][at % 3];
                status(&service, &key, Some(plan))
            });
            // 100 ask, 50 are served; those that wait would for an hour.
            let answers = join_all(asked).await;
            let number = |status| answers.iter().filter(|it| **it == status).count();
            assert_eq!((number(500), number(200), number(429)), (200, 50, 50));
            let left = limits.peek("api", key_of(&key)).plan("pro").await;
            let left = left.expect("an answer").expect("a rule").remaining();
            assert_eq!(left, 0, "a panic is not charged");
        }
    }
}

fn key_of(key: &str) -> tidegate::Key {
    Header::new("x-key").key(key)
}

/// A closure that names another plan, or makes other quotas, at each call: it is asked once for
/// each request, and what the client sees belongs together.
#[tokio::test]
async fn closures_are_asked_once_for_each_request() {
    let calls = Arc::new(AtomicU64::new(0));
    let limits = limits();
    let counted = Arc::clone(&calls);
    let plan = limits.layer("api").plan(move |_| {
        ["pro", "free", "", "pro"]
            .get(counted.fetch_add(1, Ordering::Relaxed) as usize % 5)
            .copied()
    });
    let counted = Arc::clone(&calls);
    let table = limits.layer("api").quotas(move |_| {
        let at = counted.fetch_add(1, Ordering::Relaxed);
        (!at.is_multiple_of(3)).then(|| {
            Arc::new(quotas(&[(
                at % 11,
                std::time::Duration::from_secs(1 + at % 50),
            )]))
        })
    });
    for layer in [plan, table] {
        let before = calls.load(Ordering::Relaxed);
        let service = wrap(layer.wait(millis(5)));
        for at in 0..400 {
            let answer = send(&service, "x", None).await;
            let field = |name| {
                answer
                    .headers()
                    .get(name)
                    .expect("a field")
                    .to_str()
                    .expect("text")
            };
            let (policy, state) = (field("ratelimit-policy"), field("ratelimit"));
            let number = |text: &str, key: &str| -> u64 {
                let at = text.find(key).unwrap_or_else(|| panic!("{key} in {text}"));
                let digits = text[at + key.len()..].split(';').next().expect("some");
                digits.parse().expect("a number")
            };
            let (max, window) = (number(policy, ";q="), number(policy, ";w="));
            let (left, reset) = (number(state, ";r="), number(state, ";t="));
            assert!(left <= max && reset <= window, "{policy} and {state}");
            assert_eq!(calls.load(Ordering::Relaxed) - before, at + 1);
        }
    }
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("used");
    let all: u64 = DecisionOutcome::ALL
        .iter()
        .map(|it| rule.decisions(*it))
        .sum();
    assert_eq!(all, 800);
}

/// A closure that panics while others hold what it touches: the rule and its derived rules stay
/// usable from all threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_on_all_threads() {
    let limits = limits().store(MemoryStore::new());
    let made = Arc::new(AtomicU64::new(0));
    let layer = limits.layer("api").quotas(move |_| -> Option<Arc<Quotas>> {
        let at = made.fetch_add(1, Ordering::Relaxed);
        panic_if(at.is_multiple_of(3));
        Some(Arc::new(quotas(&[(1_000_000, millis(1_000 + at % 2_000))])))
    });
    let service = wrap(layer);
    let tasks = (0..16).map(|_| {
        let service = service.clone();
        tokio::spawn(async move {
            let mut answers = [0_u64; 2];
            for _ in 0..300 {
                match status(&service, "x", None).await {
                    200 => answers[0] += 1,
                    500 => answers[1] += 1,
                    other => panic!("{other}"),
                }
            }
            answers
        })
    });
    let answers = join_all(tasks.collect::<Vec<_>>()).await;
    let sum = |at: usize| {
        answers
            .iter()
            .map(|it| it.as_ref().expect("no panic")[at])
            .sum::<u64>()
    };
    assert_eq!((sum(0), sum(1)), (3_200, 1_600));
}
