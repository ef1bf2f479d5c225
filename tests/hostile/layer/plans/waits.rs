//! Requests that wait under a plan.

use super::*;

/// A rule of one quota by `x-key`, with these plans.
fn api(algorithm: Algorithm, own: (u64, Duration), plans: &[(&str, Pairs<'_>)]) -> Rule {
    let rule = of_own("api", &[own]).with_key(Header::new("x-key"));
    with_plans(rule.with_algorithm(algorithm), plans)
}

/// The retry-after of the plan is what a waiting request goes by: neither that of the own quotas,
/// nor that of a larger plan.
#[tokio::test]
async fn waits_by_the_retry_after_of_the_plan() {
    let server = Redis::start();
    let rule = api(
        Algorithm::SlidingLog,
        (1, HOUR),
        &[("pro", &[(3, millis(400))])],
    );
    let limits = Limits::new([rule]).store(connect(&server.url, PATIENT).await);
    let service = wrap(limits.layer("api").wait(5 * SECOND));
    assert_eq!(admitted(&service, "x", Some("pro"), 3).await, 3);
    let began = Instant::now();
    assert_eq!(status(&service, "x", Some("pro")).await, 200);
    let waited = began.elapsed();
    assert!(waited > millis(300), "{waited:?}");
    // An hour is too long to wait for: denied at once.
    assert_eq!(status(&service, "x", None).await, 429);
    let rule = counters(&limits, "api");
    let of_plan = (rule.plans[0].allowed, rule.plans[0].denied);
    assert_eq!((rule.waiting, of_plan), (0, (4, 0)));
}
