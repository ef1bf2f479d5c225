//! Plans that come, change and go while requests run and wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use tidegate::{Header, Limits, Resilient, Rule, Rules};
use tokio::time::{sleep, timeout};

use super::{of_own, quotas, seen, send, status, with_plans, wrap};
use kit::{HOUR, PATIENT, connect, millis};

fn api() -> Rule {
    of_own("api", &[(4, HOUR)]).with_key(Header::new("x-key"))
}

fn replace(limits: &Limits, rule: Rule) {
    limits.rules().replace(Rules::from_iter([rule]));
}

/// Each is felt by the next request, whatever layers and caches are between, and no count is lost.
#[tokio::test]
async fn plans_come_change_and_go() {
    let server = Redis::start();
    let store = Resilient::new(connect(&server.url, PATIENT).await);
    let limits = Limits::new([api()]).store(store);
    let service = wrap(limits.layer("api"));
    let policy = async |plan| {
        let answer = seen(send(&service, "x", plan).await).await;
        let at = answer.find(";q=").expect("a policy");
        (
            answer[..3].to_owned(),
            answer[at + 3..].split(';').next().expect("some").to_owned(),
        )
    };
    let is = |status: &str, max: u64| (status.to_owned(), max.to_string());
    assert_eq!(policy(Some("pro")).await, is("200", 4));
    replace(&limits, with_plans(api(), &[("pro", &[(9, HOUR)])]));
    assert_eq!(policy(Some("pro")).await, is("200", 9));
    for _ in 0..7 {
        assert_eq!(policy(Some("pro")).await, is("200", 9));
    }
    assert_eq!(policy(Some("pro")).await, is("429", 9));
    replace(&limits, with_plans(api(), &[("pro", &[(11, HOUR)])]));
    assert_eq!(policy(Some("pro")).await, is("200", 11));
    replace(
        &limits,
        with_plans(api(), &[("pro", &[(5, HOUR)]), ("max", &[(12, HOUR)])]),
    );
    assert_eq!(policy(Some("pro")).await, is("429", 5));
    assert_eq!(policy(Some("max")).await, is("200", 12));
    assert_eq!(policy(Some("gone")).await, is("429", 4));
    replace(&limits, api());
    assert_eq!(policy(Some("max")).await, is("429", 4));
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("used");
    println!("{:?} {}", rule.plans, rule.unknown_plans);
    assert!(rule.plans.len() <= 2, "{:?}", rule.plans);
}

/// A window that all plans shared goes with its plan: what was charged counts for it still.
#[tokio::test]
async fn a_plan_with_the_longest_window_goes_and_comes_back() {
    let server = Redis::start();
    for algorithm in super::ALGORITHMS {
        let limits = Limits::new([api()]).store(connect(&server.url, PATIENT).await);
        let service = wrap(limits.layer("api"));
        let own = || of_own("api", &[(5, millis(300))]).with_key(Header::new("x-key"));
        let own = || own().with_algorithm(algorithm);
        let with = || with_plans(own(), &[("long", &[(5, HOUR)])]);
        replace(&limits, with());
        for _ in 0..5 {
            assert_eq!(status(&service, "x", None).await, 200);
        }
        replace(&limits, own());
        sleep(millis(900)).await;
        assert_eq!(status(&service, "x", None).await, 200, "{algorithm:?}");
        replace(&limits, with());
        assert_eq!(
            status(&service, "x", Some("long")).await,
            429,
            "{algorithm:?}"
        );
        assert!(
            limits
                .reset("api", Header::new("x-key").key("x"))
                .await
                .expect("an answer")
        );
    }
}

/// Requests that wait under a plan keep to the rule that they began with: they are served or denied
/// in time, none of them hangs, and no handler runs twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_while_requests_wait() {
    let server = Redis::start();
    for algorithm in super::ALGORITHMS {
        let path = |plans: &[(&str, super::Pairs<'_>)]| {
            let rule = of_own("api", &[(5, millis(200))]).with_key(Header::new("x-key"));
            with_plans(rule.with_algorithm(algorithm), plans)
        };
        let pro: (&str, super::Pairs<'_>) = ("pro", &[(20, millis(250)), (60, millis(700))]);
        let limits = Limits::new([path(&[pro])]).store(connect(&server.url, PATIENT).await);
        let table = Arc::new(quotas(&[(15, millis(220))]));
        let layer = limits.layer("api").quotas(move |head| {
            head.headers
                .get("x-key")
                .filter(|key| *key == "t")
                .map(|_| Arc::clone(&table))
        });
        let service = wrap(layer.wait(PATIENT));
        let is_over = AtomicBool::new(false);
        let reloads = async {
            let mut random = Random::new(1);
            while !is_over.load(Ordering::Relaxed) {
                match random.below(4) {
                    0 => replace(&limits, path(&[])),
                    1 => replace(&limits, path(&[("pro", &[(25, millis(200))])])),
                    2 => replace(&limits, path(&[("max", &[(25, millis(900))]), pro])),
                    _ => replace(&limits, path(&[pro])),
                }
                sleep(millis(random.below(40))).await;
            }
        };
        let requests = async {
            let asked = (0..120).map(|at| {
                let plan = [None, Some("pro"), Some("max")][at % 3];
                let key = ["x", "t"][at % 2];
                timeout(PATIENT, status(&service, key, plan))
            });
            let began = Instant::now();
            let answers = join_all(asked).await;
            is_over.store(true, Ordering::Relaxed);
            (answers, began.elapsed())
        };
        let ((answers, time), ()) = tokio::join!(requests, reloads);
        let served = answers
            .iter()
            .filter(|it| it.as_ref().is_ok_and(|it| *it == 200))
            .count();
        println!("{algorithm:?}: {served} served in {time:?}");
        assert!(
            answers.iter().all(Result::is_ok),
            "one hangs, {algorithm:?}"
        );
        assert_eq!(served, 120, "{algorithm:?}: all have time enough");
    }
}

/// The retry-after of the plan is what a waiting request goes by: neither that of the own quotas,
/// nor that of a larger plan.
#[tokio::test]
async fn waits_by_the_retry_after_of_the_plan() {
    let server = Redis::start();
    let rule = of_own("api", &[(1, HOUR)]).with_key(Header::new("x-key"));
    let rule = with_plans(rule, &[("pro", &[(3, millis(400))])]);
    let limits = Limits::new([rule]).store(connect(&server.url, PATIENT).await);
    let service = wrap(limits.layer("api").wait(Duration::from_secs(5)));
    for _ in 0..3 {
        assert_eq!(status(&service, "x", Some("pro")).await, 200);
    }
    let began = Instant::now();
    assert_eq!(status(&service, "x", Some("pro")).await, 200);
    let waited = began.elapsed();
    assert!(waited > millis(300), "{waited:?}");
    // An hour is too long to wait for: denied at once.
    assert_eq!(status(&service, "x", None).await, 429);
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("used");
    assert_eq!(
        (rule.waiting, rule.plans[0].allowed, rule.plans[0].denied),
        (0, 4, 0)
    );
}
