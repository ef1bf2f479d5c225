//! Those who wait for a permit.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use futures_util::future::join_all;
use http::Request;
use tidegate::RateLimitLayer;
use tidegate::rule::Quotas;
use tower::ServiceExt;

use super::*;

/// How many run, and the most that ever did.
#[derive(Default)]
struct Running(AtomicUsize, AtomicUsize);

impl Running {
    async fn work(&self, time: Duration) {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(now, Ordering::SeqCst);
        sleep(time).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn app(layer: RateLimitLayer, running: &Arc<Running>, time: Duration) -> Router {
    let running = Arc::clone(running);
    let handler = any(move || {
        let running = Arc::clone(&running);
        async move { running.work(time).await }
    });
    Router::new().route("/", handler.layer(layer))
}

async fn send(app: Router) -> u16 {
    let request = Request::post("/").body(Body::empty()).expect("valid");
    let response = app.oneshot(request).await.expect("axum does not fail");
    response.status().as_u16()
}

/// One key takes a quarter of the places. All are served, some leave, and a bystander is answered
/// meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_wait_on_one_name() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(40), store);
        let running = Arc::new(Running::default());
        let layer = limits.layer("p").max_waiting(40_000).wait(15 * PATIENT);
        let app = app(layer, &running, Duration::ZERO);
        let first: Vec<_> = join_all((0..40).map(|_| check(&limits, "k"))).await;
        assert!(first.iter().all(Result::is_ok));
        let all: Vec<_> = (0..10_000)
            .map(|_| tokio::spawn(send(app.clone())))
            .collect();
        let began = Instant::now();
        while limits.snapshot().rules[0].waiting < 10_000 {
            let waiting = limits.snapshot().rules[0].waiting;
            assert!(began.elapsed() < PATIENT, "{waiting} wait");
            sleep(millis(5)).await;
        }
        all.iter()
            .step_by(10)
            .for_each(tokio::task::JoinHandle::abort);
        drop(first);
        drop(check(&limits, "bystander").await.expect("another key"));
        // By their status; those who left have none.
        let mut answers = BTreeMap::from([(None, 0), (Some(200), 0)]);
        for answer in join_all(all).await {
            *answers.entry(answer.ok()).or_default() += 1;
        }
        println!("{answers:?} after {:?}", began.elapsed());
        let (served, gone) = (answers[&Some(200)], answers[&None]);
        assert_eq!(served + gone, 10_000, "{answers:?}");
        assert!(gone <= 1_000);
        assert!(running.1.load(Ordering::SeqCst) <= 40);
        until_free(&limits, "k", 40).await;
    }
    until_held(&server, 0).await;
}

/// Five processes take turns: whoever waits in one is woken by the release of another, and never
/// more than max run in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_take_turns() {
    let server = Redis::start();
    let running = Arc::new(Running::default());
    let mut processes = Vec::new();
    for _ in 0..5 {
        let limits = limits(at_a_time(3), store_at(&server.url, PATIENT).await);
        let layer = limits.layer("p").wait(2 * PATIENT);
        processes.push(app(layer, &running, millis(2)));
    }
    let began = Instant::now();
    let sent = (0..600).map(|number| tokio::spawn(send(processes[number % 5].clone())));
    for status in join_all(sent.collect::<Vec<_>>()).await {
        assert_eq!(status.expect("no panic"), 200);
    }
    println!("{:?}", began.elapsed());
    assert!(running.1.load(Ordering::SeqCst) <= 3);
    until_held(&server, 0).await;
}

/// One bound for permits and quotas; who waits for both goes when both are there.
#[tokio::test(start_paused = true)]
async fn one_bound_for_permits_and_quotas() {
    // When the permit comes back, how long the second one waits, and when it is admitted. The quota
    // has a unit again after 2 s.
    for (back, bound, admitted) in [
        (1_000, 3_000, Some(2_000)),
        (2_500, 3_000, Some(2_500)),
        (1_000, 1_500, None),
        (4_000, 3_000, None),
    ] {
        let quota = Quota::new(2 * SECOND, 1).expect("valid");
        let rule = Rule::new("p", [quota]).expect("valid");
        let rule = rule.with_max_concurrent(1).expect("valid");
        let limits = limits(rule, MemoryStore::new().tokio_clock());
        let first = check(&limits, "k").await.expect("free");
        tokio::spawn(async move {
            sleep(millis(back)).await;
            drop(first);
        });
        let began = Instant::now();
        let second = limits.check("p", "k").wait(millis(bound)).await;
        let after = began.elapsed();
        assert_eq!(
            second.is_ok(),
            admitted.is_some(),
            "{back} {bound}: {after:?}"
        );
        assert!(after <= millis(bound + 20), "{back} {bound}: {after:?}");
        if let Some(admitted) = admitted {
            let expected = millis(admitted)..millis(admitted + 20);
            assert!(expected.contains(&after), "{back} {bound}: {after:?}");
        }
        drop(second);
        sleep(5 * SECOND).await;
        assert_eq!(left(&limits, "k").await, 1);
    }
}

/// While ten wait: more may run, fewer, and none.
#[tokio::test]
async fn rules_that_change_while_requests_wait() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(1), store);
        let replace = |rule: Rule| limits.rules().replace([rule].into());
        let first = check(&limits, "k").await.expect("free");
        let running = Arc::new(Mutex::new(Vec::new()));
        let ask = |number: usize| {
            let ask = |_| {
                let check = limits.check("p", "k").wait(PATIENT).into_future();
                let running = Arc::clone(&running);
                tokio::spawn(async move {
                    let admitted = check.await.map_err(|refused| refused.to_string());
                    running.lock().expect("no panic").push(admitted);
                })
            };
            (0..number).map(ask).collect::<Vec<_>>()
        };
        let admitted = async |number| {
            let began = Instant::now();
            while running.lock().expect("no panic").len() < number {
                assert!(began.elapsed() < PATIENT / 2, "{number} expected");
                sleep(millis(5)).await;
            }
        };
        let asked = ask(10);
        sleep(millis(100)).await;
        replace(at_a_time(4));
        admitted(3).await;
        replace(at_a_time(2));
        sleep(millis(100)).await;
        assert_eq!(running.lock().expect("no panic").len(), 3, "four run");
        running.lock().expect("no panic").truncate(0);
        // The first one still runs, so one more may.
        admitted(1).await;
        drop(first);
        admitted(2).await;
        replace(at_a_time(50));
        admitted(7).await;
        for asked in asked {
            asked.await.expect("no panic");
        }
        let all = std::mem::take(&mut *running.lock().expect("no panic"));
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        drop(all);
        // None may run: whoever waits hears it long before the end of its patience.
        replace(at_a_time(1));
        let first = limits.check("p", "k").wait(PATIENT).await.expect("free");
        let asked = ask(3);
        sleep(millis(100)).await;
        replace(at_a_time(0));
        admitted(3).await;
        join_all(asked).await;
        let all = std::mem::take(&mut *running.lock().expect("no panic"));
        assert!(all.iter().all(Result::is_err), "{all:?}");
        drop(first);
        replace(at_a_time(2));
        until_free(&limits, "k", 2).await;
    }
    until_held(&server, 0).await;
}

/// Plans with numbers of their own share what runs: of 1, 2 and 4, the smaller ones wait longer.
#[tokio::test]
async fn plans_wait_for_the_same_permits() {
    let server = Redis::start();
    for store in stores(&server).await {
        let mut rule = at_a_time(4);
        for (name, max) in [("one", 1), ("two", 2)] {
            let quotas = Quotas::with_policies([Policy::concurrent(max)]).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
        let limits = limits(rule, store);
        let first = check(&limits, "k").await.expect("free");
        limits
            .check("p", "k")
            .plan("one")
            .await
            .expect_err("one runs");
        let second = limits.check("p", "k").plan("two").await.expect("two may");
        let third = check(&limits, "k").await.expect("four may");
        let ask = |plan| {
            tokio::spawn(
                limits
                    .check("p", "k")
                    .plan(plan)
                    .wait(PATIENT)
                    .into_future(),
            )
        };
        let (one, two) = (ask("one"), ask("two"));
        sleep(millis(50)).await;
        drop(third);
        sleep(millis(50)).await;
        assert!(!one.is_finished() && !two.is_finished(), "two run");
        drop(second);
        let two = two.await.expect("no panic").expect("one runs");
        assert!(!one.is_finished());
        drop((first, two));
        drop(one.await.expect("no panic").expect("none runs"));
        until_free(&limits, "k", 4).await;
    }
    until_held(&server, 0).await;
}

/// A rule that has no number any more admits those who wait, as it admits those who come.
#[tokio::test]
async fn a_number_that_goes_admits_who_waits() {
    let server = Redis::start();
    for store in stores(&server).await {
        let free = Rule::new("p", [Quota::per_hour(1_000)]).expect("valid");
        let free = free.with_key(|_: &http::request::Parts| Ok(Key::from("k")));
        for rules in [vec![free], Vec::new()] {
            let limits = limits(at_a_time(1), Arc::clone(&store));
            let first = check(&limits, "k").await.expect("free");
            let second = limits.check("p", "k").wait(PATIENT / 2).into_future();
            let second = tokio::spawn(second);
            sleep(millis(100)).await;
            limits.rules().replace(tidegate::Rules::from_iter(rules));
            let second = second.await.expect("no panic");
            drop(second.expect("nothing limits it any more"));
            drop(first);
            until_held(&server, 0).await;
        }
    }
}
