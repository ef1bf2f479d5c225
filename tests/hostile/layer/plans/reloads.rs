//! Plans that come, change and go while requests run and wait.

use super::*;

/// A rule of one quota by `x-key`, with these plans.
fn api(algorithm: Algorithm, own: (u64, Duration), plans: &[(&str, Pairs<'_>)]) -> Rule {
    let rule = of_own("api", &[own]).with_key(Header::new("x-key"));
    with_plans(rule.with_algorithm(algorithm), plans)
}

/// Each is felt by the next request, whatever layers and caches are between, and no count is lost.
#[tokio::test]
async fn plans_come_change_and_go() {
    let server = Redis::start();
    let store = Resilient::new(connect(&server.url, PATIENT).await);
    let limits = Limits::new([hourly("api", 4, &[])]).store(store);
    let service = wrap(limits.layer("api"));
    let check = async |plan, status: &str, max: u64| {
        let answer = see(&service, "x", Some(plan)).await;
        let is_right = answer.starts_with(status) && answer.contains(&format!(";q={max};"));
        assert!(is_right, "{plan}, not {status} of {max}: {answer}");
    };
    check("pro", "200", 4).await;
    replace(&limits, hourly("api", 4, &[("pro", 9)]));
    for _ in 0..8 {
        check("pro", "200", 9).await;
    }
    check("pro", "429", 9).await;
    replace(&limits, hourly("api", 4, &[("pro", 11)]));
    check("pro", "200", 11).await;
    replace(&limits, hourly("api", 4, &[("pro", 5), ("max", 12)]));
    check("pro", "429", 5).await;
    check("max", "200", 12).await;
    check("gone", "429", 4).await;
    replace(&limits, hourly("api", 4, &[]));
    check("max", "429", 4).await;
    let plans = counters(&limits, "api").plans;
    assert!(plans.len() <= 2, "{plans:?}");
}

/// A window that all plans shared goes with its plan: what was charged counts for it still.
#[tokio::test]
async fn a_plan_with_the_longest_window_goes_and_comes_back() {
    let server = Redis::start();
    for algorithm in ALGORITHMS {
        let own = || api(algorithm, (5, millis(300)), &[]);
        let with = || with_plans(own(), &[("long", &[(5, HOUR)])]);
        let limits = Limits::new([with()]).store(connect(&server.url, PATIENT).await);
        let service = wrap(limits.layer("api"));
        assert_eq!(admitted(&service, "x", None, 5).await, 5);
        replace(&limits, own());
        sleep(millis(900)).await;
        assert_eq!(status(&service, "x", None).await, 200, "{algorithm:?}");
        replace(&limits, with());
        let long = status(&service, "x", Some("long")).await;
        assert_eq!(long, 429, "{algorithm:?}");
        assert!(limits.reset("api", key("x")).await.expect("an answer"));
    }
}

/// Requests that wait under a plan keep to the rule that they began with: they are served or denied
/// in time, none of them hangs, and no handler runs twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_while_requests_wait() {
    let server = Redis::start();
    for algorithm in ALGORITHMS {
        let rule = |plans: &[(&str, Pairs<'_>)]| api(algorithm, (5, millis(200)), plans);
        let pro: (&str, Pairs<'_>) = ("pro", &[(20, millis(250)), (60, millis(700))]);
        let limits = Limits::new([rule(&[pro])]).store(connect(&server.url, PATIENT).await);
        let table = Plan::from(quotas(&[(15, millis(220))]));
        let layer = limits.layer("api").plan_value(move |head| {
            let has_table = field(head, "x-key") == Some("t");
            has_table.then(|| table.clone())
        });
        let service = wrap(layer.wait(PATIENT));
        let is_over = AtomicBool::new(false);
        let reloads = async {
            let mut random = Random::new(1);
            while !is_over.load(Ordering::Relaxed) {
                let plans: &[(&str, Pairs<'_>)] = match random.below(4) {
                    0 => &[],
                    1 => &[("pro", &[(25, millis(200))])],
                    2 => &[("max", &[(25, millis(900))]), pro],
                    _ => &[pro],
                };
                replace(&limits, rule(plans));
                sleep(millis(random.below(40))).await;
            }
        };
        let requests = async {
            let asked = (0..120).map(|at| {
                let plan = [None, Some("pro"), Some("max")][at % 3];
                timeout(PATIENT, status(&service, ["x", "t"][at % 2], plan))
            });
            let answers = join_all(asked).await;
            is_over.store(true, Ordering::Relaxed);
            answers
        };
        let (answers, ()) = tokio::join!(requests, reloads);
        let none_hangs = answers.iter().all(Result::is_ok);
        assert!(none_hangs, "one hangs, {algorithm:?}");
        let served = answers.iter().flatten().filter(|it| **it == 200).count();
        assert_eq!(served, 120, "{algorithm:?}: all have time enough");
    }
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
