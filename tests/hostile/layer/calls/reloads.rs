//! Rules that change, are switched off or go away while calls wait and run: law 16, and no permit or
//! charge is lost.

use std::convert::Infallible;

use axum::body::Body;
use futures_util::future::join;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};

use super::*;

type Change = fn(&Limits);

const ADMIT: [(&str, Change); 6] = [
    ("removed", |limits| replace(limits, [])),
    ("another path", |limits| {
        let other = Rule::new("other", [Quota::per_minute(0)]).expect("valid");
        replace(limits, [other]);
    }),
    ("shadow", |limits| {
        replace(limits, [hourly(1).into_shadow()])
    }),
    ("raised", |limits| replace(limits, [hourly(2)])),
    ("disabled", |limits| {
        let mut rules = Rules::from_iter([hourly(1)]);
        rules.disable("p");
        limits.rules().replace(rules);
    }),
    ("all switched off", |limits| {
        let rules = Rules::from_iter([hourly(1)]);
        limits.rules().replace(rules.enabled(false));
    }),
];

/// Of a call, or a request, that waits while another one holds the only unit: whether it ran, and
/// after how many tenths of seconds.
async fn wait_through(change: Change, by_layer: bool, rule: Rule) -> (bool, u128) {
    let limits = paused(rule);
    let ask = async |holds: Duration, waits: Duration| {
        let layer = limits.layer("p").wait(waits);
        if by_layer {
            let service = layer.layer(service_fn(async |_: Request<Body>| {
                sleep(holds).await;
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }));
            let answer = service.oneshot(kit::http::get("/")).await;
            answer.expect("infallible").status().is_success()
        } else {
            let call = limits.call("p").key("k").wait(waits);
            let ran = call.try_run(async || {
                sleep(holds).await;
                Ok::<_, Infallible>(())
            });
            ran.await.is_ok()
        }
    };
    let began = Instant::now();
    let waits = async {
        sleep(millis(1)).await;
        let (ran, ()) = join(ask(Duration::ZERO, PATIENT), async {
            sleep(2 * SECOND).await;
            change(&limits);
        })
        .await;
        let snapshot = limits.snapshot();
        assert_eq!(snapshot.rule("p").map_or(0, |it| it.waiting), 0);
        (ran, began.elapsed().as_millis() / 100)
    };
    let (held, waited) = join(ask(30 * SECOND, Duration::ZERO), waits).await;
    assert!(held);
    waited
}

/// Permits and units alike: a call notices a change of rules as a request does.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_notices_a_change_as_a_request_does() {
    for (name, change) in ADMIT {
        for rule in [refunding(hourly(1)), hourly(1), at_a_time(1)] {
            let called = wait_through(change, false, rule.clone()).await;
            let layered = wait_through(change, true, rule).await;
            assert_eq!(called, layered, "{name}");
        }
    }
}

/// What runs goes on, gives its permit back, and what it failed at is given back as its rule said.
#[tokio::test(start_paused = true)]
async fn a_call_that_runs_ends_by_its_own_rule() {
    let changes = ADMIT.into_iter().chain([
        ("zero", (|limits| replace(limits, [hourly(0)])) as Change),
        ("without refunds", |limits| replace(limits, [hourly(1)])),
    ]);
    for (name, change) in changes {
        let rule = refunding(hourly(9).with_max_concurrent(1).expect("valid"));
        let limits = paused(rule.clone());
        let call = limits.call("p").key("k");
        let ran = call.try_run(async || {
            change(&limits);
            sleep(SECOND).await;
            Err::<(), _>(7)
        });
        assert_eq!(ran.await.expect_err("its own").to_string(), "7", "{name}");
        assert!(limits.flush(PATIENT).await);
        replace(&limits, [rule]);
        assert_eq!(left(&limits).await, 1, "{name}: the permit");
        let admitted = limits.check("p", "k").await.expect("room");
        let decision = admitted.decision.expect("a decision");
        let of_quota = decision.quotas()[0].remaining();
        assert_eq!(of_quota, 8, "{name}: the charge came back");
    }
}

/// The limits of the process are swapped while calls of the earlier ones run and wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_process_are_swapped_while_calls_run() {
    let server = Redis::start();
    let (_proxy, store) = far(&server, millis(4)).await;
    let make = || {
        Limits::new([
            at_a_time(3),
            Rule::new("q", [Quota::per_hour(9)]).expect("valid"),
        ])
    };
    let _installed = crate::INSTALLED.lock().await;
    make().store(store.clone()).install();
    let mut running = tokio::task::JoinSet::new();
    for round in 0..120 {
        if round % 10 == 0 {
            make().store(store.clone()).install();
        }
        running.spawn(async move {
            let call = Limits::installed().call("p").key("k").wait(PATIENT);
            let work = call.run(async || sleep(millis(3)).await);
            if round % 7 > 0 {
                return work.await.is_ok();
            }
            drop(tokio::time::timeout(millis(round / 7), work).await);
            true
        });
    }
    let done = running.join_all().await;
    assert!(done.into_iter().all(|it| it), "all got their turn");
    until("all permits are back", async || held(&server) == 0).await;
    Limits::new([]).install();
}

/// A plan goes while a call of it runs: what it was charged comes back all the same.
#[tokio::test(start_paused = true)]
async fn a_plan_that_goes() {
    let with_plan = |max: u64| {
        let quotas = [Quota::new(HOUR, max).expect("valid")];
        let quotas = tidegate::rule::Quotas::new(quotas).expect("valid");
        refunding(hourly(1))
            .with_plan("pro", quotas)
            .expect("valid")
    };
    let limits = paused(with_plan(5));
    let call = |cost| limits.call("p").key("k").plan("pro").cost(cost);
    let failed = call(4).try_run(async || {
        replace(&limits, [refunding(hourly(1))]);
        sleep(SECOND).await;
        Err::<(), _>(())
    });
    assert!(failed.await.is_err());
    assert_eq!(left_at_last(&limits).await, 1, "all four came back");
}
