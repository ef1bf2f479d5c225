//! Closures that panic, change their mind or take long: a 500 for the one request, and nothing for
//! the others.

use super::*;

fn limits() -> Limits {
    Limits::new([hourly("api", 5, &[("pro", 50)])])
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
