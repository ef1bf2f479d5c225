//! Closures that panic, change their mind or take long: a 500 for the one request, and nothing for
//! the others.

use super::*;

fn named(head: &Parts) -> Option<&str> {
    head.extensions.get::<Plan>()?.name()
}

fn limits() -> Limits {
    Limits::new([hourly("api", 5, &[("pro", 50)])])
}

/// Without a word in the log of the tests.
fn panic_if(it_shall: bool) {
    if it_shall {
        std::panic::resume_unwind(Box::new("a closure of a test"));
    }
}

/// Panics for the plan "panic" of a request.
fn panicking_plan(head: &Parts) -> Option<&str> {
    panic_if(named(head) == Some("panic"));
    named(head)
}

#[tokio::test]
async fn a_panic_is_a_500_and_nobody_elses() {
    let (_server, stores) = kit::redis_and_memory().await;
    for store in stores {
        let limits = limits().store(store);
        let layers = [
            limits.layer("api").plan(panicking_plan),
            limits.layer("api").plan_value(|head| {
                panicking_plan(head);
                None
            }),
            limits.clone().plan(panicking_plan).layer("api"),
        ];
        for (at, layer) in layers.into_iter().enumerate() {
            let service = wrap(layer.wait(PATIENT));
            let name = format!("k{at}");
            let plans = ["panic", "pro", "panic"];
            let asked = (0..300).map(|at| status(&service, &name, Some(plans[at % 3])));
            // 100 ask, 50 are served; those that wait would for an hour.
            let answers = join_all(asked).await;
            let number = |status| answers.iter().filter(|it| **it == status).count();
            assert_eq!((number(500), number(200), number(429)), (200, 50, 50));
            let left = left(&limits, "api", key(&name), Some("pro")).await;
            assert_eq!(left, [0], "a panic is not charged");
        }
    }
}

/// A closure that names another plan, or makes other quotas, at each call: it is asked once for
/// each request, and what the client sees belongs together.
#[tokio::test]
async fn closures_are_asked_once_for_each_request() {
    let calls = Arc::new(AtomicU64::new(0));
    let limits = limits();
    let counted = Arc::clone(&calls);
    let plan = limits.layer("api").plan(move |_| {
        let at = counted.fetch_add(1, Ordering::Relaxed) as usize;
        ["pro", "free", "", "pro"].get(at % 5).copied()
    });
    let counted = Arc::clone(&calls);
    let table = limits.layer("api").plan_value(move |_| {
        let at = counted.fetch_add(1, Ordering::Relaxed);
        let pair = (at % 11, Duration::from_secs(1 + at % 50));
        (!at.is_multiple_of(3)).then(|| Plan::from(quotas(&[pair])))
    });
    for layer in [plan, table] {
        let before = calls.load(Ordering::Relaxed);
        let service = wrap(layer.wait(millis(5)));
        for at in 0..400 {
            let (head, _) = send(&service, "x", None).await.into_parts();
            let field = |name| head.headers[name].to_str().expect("text");
            let (policy, state) = (field("ratelimit-policy"), field("ratelimit"));
            let number = |text: &str, key: &str| -> u64 {
                let (_, rest) = text.split_once(key).expect("it is there");
                let digits = rest.split(';').next().expect("some");
                digits.parse().expect("a number")
            };
            let (max, window) = (number(policy, ";q="), number(policy, ";w="));
            let (left, reset) = (number(state, ";r="), number(state, ";t="));
            assert!(left <= max && reset <= window, "{policy} and {state}");
            assert_eq!(calls.load(Ordering::Relaxed) - before, at + 1);
        }
    }
    let rule = counters(&limits, "api");
    let all = DecisionOutcome::ALL.iter().map(|it| rule.decisions(*it));
    assert_eq!(all.sum::<u64>(), 800);
}

/// A closure that panics while others hold what it touches: the rule and its derived rules stay
/// usable from all threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_on_all_threads() {
    let limits = limits().store(MemoryStore::new());
    let made = Arc::new(AtomicU64::new(0));
    let layer = limits.layer("api").plan_value(move |_| -> Option<Plan> {
        let at = made.fetch_add(1, Ordering::Relaxed);
        panic_if(at.is_multiple_of(3));
        Some(Plan::from(quotas(&[(
            1_000_000,
            millis(1_000 + at % 2_000),
        )])))
    });
    let service = wrap(layer);
    let answers = in_tasks((0..16).map(|_| {
        let service = service.clone();
        async move {
            let mut answers = Vec::new();
            for _ in 0..300 {
                answers.push(status(&service, "x", None).await);
            }
            answers
        }
    }))
    .await;
    let number = |status| answers.iter().flatten().filter(|it| **it == status).count();
    assert_eq!((number(200), number(500)), (3_200, 1_600));
}
