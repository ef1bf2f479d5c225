//! Permits beside everything else that a rule says.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http::request::Parts;
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use tidegate::decision::Verdict;
use tidegate::key::{Everyone, Header};
use tidegate::rule::{Quotas, Share, Subject};
use tidegate::store::Charges;
use tidegate::{Decision, Resilient};
use tower::ServiceExt;

use super::*;

fn verdict(refused: &Refused) -> Verdict {
    refused.decision().expect("a denial").verdict()
}

/// What is left of each quota, and of the permits.
fn states(decision: &Decision) -> Vec<u64> {
    decision.quotas().iter().map(|it| it.remaining()).collect()
}

async fn peeked(limits: &Limits, key: &str) -> Vec<u64> {
    let decision = limits.peek("p", key).await.expect("an answer");
    states(&decision.expect("a rule"))
}

/// The permits of a rule without a key of its own are those of the key that a check is given, as
/// its units are: what alice does costs bob nothing.
#[tokio::test]
async fn a_check_counts_the_key_it_is_given() {
    let server = Redis::start();
    for store in stores(&server).await {
        for rule in [
            Rule::with_policies("p", [Policy::concurrent(1)]),
            Rule::new("p", [Quota::per_hour(5)]).and_then(|rule| rule.with_max_concurrent(1)),
        ] {
            let limits = limits(rule.expect("valid"), Arc::clone(&store));
            let alice = check(&limits, "alice").await.expect("free");
            let bob = check(&limits, "bob").await.expect("another key");
            assert_eq!(left(&limits, "alice").await, 0);
            drop((alice, bob));
            until_free(&limits, "alice", 1).await;
        }
    }
}

/// The same behind a layer, whose key is that of the `Limits`.
#[tokio::test]
async fn a_layer_counts_the_key_of_its_limits() {
    let server = Redis::start();
    for store in stores(&server).await {
        let rule = Rule::with_policies("p", [Policy::concurrent(1)]).expect("valid");
        let limits = limits(rule, store).key(Header::new("x-user"));
        let app = Router::new().route("/", any(async || "1").layer(limits.layer("p")));
        let send = async |user: &str| {
            let request = Request::post("/").header("x-user", user);
            let request = request.body(Body::empty()).expect("valid");
            app.clone()
                .oneshot(request)
                .await
                .expect("axum does not fail")
        };
        let alice = send("alice").await;
        let bob = send("bob").await;
        assert_eq!([alice.status(), bob.status()], [200, 200]);
        assert_eq!(send("alice").await.status(), 429);
    }
}

/// All or none: of two subjects with permits, and a quota, whichever denies.
#[tokio::test]
async fn a_denied_take_holds_and_charges_nothing() {
    let server = Redis::start();
    for store in stores(&server).await {
        let subject = |name, max| {
            let subject = Subject::new(name, Header::new(name));
            subject.limit(Policy::concurrent(max))
        };
        let user = subject("user", 2).limit(Quota::per_hour(6));
        let all = Subject::new("all", Everyone).limit(Quota::per_hour(1_000));
        let rule = Rule::joint("p", [user, subject("org", 3), all]).expect("valid");
        let limits = limits(rule.with_permit_lease(DAY).expect("valid"), store);
        let keys = |user, org| [("user", Key::from(user)), ("org", Key::from(org))];
        let check = async |user, org| limits.check("p", keys(user, org)).await;
        let peek = async |user, org| {
            let decision = limits.peek("p", keys(user, org)).await;
            states(&decision.expect("an answer").expect("a rule"))
        };
        let free = peek("a", "x").await;
        let mut kept = vec![
            check("a", "x").await.expect("free"),
            check("a", "x").await.expect("free"),
        ];
        let before = (
            peek("a", "y").await,
            peek("b", "x").await,
            peek("b", "y").await,
        );
        for _ in 0..5 {
            let refused = check("a", "y").await.expect_err("the user is busy");
            assert!(matches!(verdict(&refused), Verdict::Busy { .. }));
        }
        kept.push(check("b", "x").await.expect("the third of x"));
        for _ in 0..5 {
            check("b", "x").await.expect_err("the organisation is busy");
        }
        drop(kept.pop());
        let began = Instant::now();
        let mut after = before.clone();
        while began.elapsed() < SECOND {
            after = (
                peek("a", "y").await,
                peek("b", "x").await,
                peek("b", "y").await,
            );
            if after
                .2
                .iter()
                .zip(&before.2)
                .filter(|(a, b)| a != b)
                .count()
                <= 2
            {
                break;
            }
        }
        assert_eq!(after.0[0], before.0[0], "a holds what it held");
        // Up to the quota of b, which a denial by permits did not charge.
        let mut units = 0;
        while let Ok(admitted) = check("b", "z").await {
            units += 1;
            drop(admitted);
            while peek("b", "z").await[0] < 2 {
                tokio::task::yield_now().await;
            }
            assert!(units < 10);
        }
        assert_eq!(units, 5, "one was charged before");
        drop(kept);
        while peek("a", "x").await[0] < free[0] {
            sleep(millis(5)).await;
        }
        assert_eq!(peek("a", "x").await[0], free[0]);
    }
    until_held(&server, 0).await;
}

/// A random history of checks, of plans and costs, drops, peeks and resets, on two keys: memory and
/// Redis do as a model says that only counts.
#[tokio::test]
async fn a_random_history_is_as_a_model_says() {
    const UNITS: u64 = 60;
    let server = Redis::start();
    for (store, seed) in stores(&server).await.into_iter().zip([17, 17]) {
        let mut rule = with_quota(UNITS as u32, 3);
        for (name, max) in [("more", Some(5)), ("any", None)] {
            let mut policies = vec![Policy::from(Quota::per_hour(UNITS as u32))];
            policies.extend(max.map(Policy::concurrent));
            let quotas = Quotas::with_policies(policies).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
        let limits = limits(rule, store);
        let mut random = Random::new(seed);
        let mut kept: [Vec<Admitted>; 2] = [Vec::new(), Vec::new()];
        let (mut plain, mut used) = ([0, 0], [0, 0]);
        let mut counted = [0; 3];
        for step in 0..3_000 {
            let number = random.below(2) as usize;
            let key = ["a", "b"][number];
            match random.below(20) {
                0..10 => {
                    let plan = random.below(3) as usize;
                    let cost = random.below(4) + 1;
                    let max = [Some(3), Some(5), None][plan];
                    let check = limits.check("p", key).cost(cost);
                    let asked = match plan {
                        0 => check.await,
                        _ => check.plan(["more", "any"][plan - 1]).await,
                    };
                    let busy = max.is_some_and(|max| kept[number].len() >= max);
                    let used_up = used[number] + cost > UNITS;
                    match (&asked, busy, used_up) {
                        (Ok(_), false, false) => counted[0] += 1,
                        (Err(refused), true, false) => {
                            let Verdict::Busy { .. } = verdict(refused) else {
                                panic!("{step}: {refused:?}");
                            };
                            counted[1] += 1;
                        }
                        (Err(refused), _, true) => {
                            let Verdict::Denied { .. } = verdict(refused) else {
                                panic!("{step}: {refused:?}");
                            };
                            counted[2] += 1;
                        }
                        other => panic!("{step}: {other:?}, {} held", kept[number].len()),
                    }
                    if let Ok(admitted) = asked {
                        used[number] += cost;
                        assert_eq!(admitted.permit.is_some(), max.is_some(), "{step}");
                        match max {
                            Some(_) => kept[number].push(admitted),
                            None => plain[number] += 1,
                        }
                    }
                }
                10..18 if !kept[number].is_empty() => {
                    let which = random.below(kept[number].len() as u64) as usize;
                    drop(kept[number].swap_remove(which));
                    // Behind it in the queue, or after a while.
                    let free = 3_u64.saturating_sub(kept[number].len() as u64);
                    let began = Instant::now();
                    while peeked(&limits, key).await[1] != free {
                        assert!(began.elapsed() < PATIENT, "{step}");
                    }
                }
                18 => {
                    limits.reset("p", key).await.expect("an answer");
                    used[number] = 0;
                }
                _ => {
                    let free = 3_u64.saturating_sub(kept[number].len() as u64);
                    assert_eq!(
                        peeked(&limits, key).await,
                        [UNITS - used[number], free],
                        "{step}"
                    );
                }
            }
        }
        println!("{counted:?} {plain:?}");
        assert!(counted.iter().all(|&it| it > 20), "{counted:?}");
        drop(kept);
        until_held(&server, 0).await;
    }
}

/// Two layers in a row with the same key: a request needs two permits. Where there is one only, it
/// stands in its own way, and leaves nothing.
#[tokio::test]
async fn two_layers_in_a_row() {
    let server = Redis::start();
    for store in stores(&server).await {
        for (max, expected) in [(1, 429), (2, 200)] {
            let limits = limits(at_a_time(max), Arc::clone(&store));
            let app = Router::new().route("/", any(async || "1"));
            let app = app.layer(limits.layer("p")).layer(limits.layer("p"));
            for _ in 0..20 {
                let request = Request::new(Body::empty());
                let response = app.clone().oneshot(request).await;
                let response = response.expect("axum does not fail");
                assert_eq!(response.status(), expected);
                drop(response);
                until_free(&limits, "k", max).await;
            }
        }
    }
    until_held(&server, 0).await;
}

/// Refunds and settlements give back units and no permit; the end of the request no units.
#[tokio::test]
async fn refunds_are_of_units() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(with_quota(100, 2), store);
        let admitted = limits.check("p", "k").cost(5).await.expect("free");
        let charge = admitted.charge.clone().expect("a charge");
        assert_eq!(charge.refund().await.expect("an answer"), 5);
        assert_eq!(peeked(&limits, "k").await, [100, 1]);
        assert_eq!(charge.refund().await.expect("an answer"), 0);
        assert_eq!(peeked(&limits, "k").await, [100, 1]);
        drop(admitted);
        until_free(&limits, "k", 2).await;
        // Its charges stay longer than its permit.
        let later = check(&limits, "k").await.expect("free");
        let (charge, permit) = (
            later.charge.clone().expect("a charge"),
            later.permit.clone(),
        );
        drop((later, permit));
        until_free(&limits, "k", 2).await;
        let other = check(&limits, "k").await.expect("free");
        assert_eq!(charge.refund().await.expect("an answer"), 1);
        assert_eq!(peeked(&limits, "k").await[1], 1, "the other one's stays");
        drop(other);

        let rule = with_quota(100, 2).with_refund_on(["2xx"]).expect("valid");
        limits.rules().replace([rule].into());
        limits.reset("p", "k").await.expect("an answer");
        let handler =
            any(async |charges: Charges| charges.refund().await.expect("an answer").to_string());
        let app = Router::new().route("/", handler.layer(limits.layer("p")));
        for _ in 0..20 {
            let response = app.clone().oneshot(Request::new(Body::empty())).await;
            drop(response.expect("axum does not fail"));
        }
        assert!(limits.flush(PATIENT).await);
        let began = Instant::now();
        while peeked(&limits, "k").await != [100, 2] {
            assert!(
                began.elapsed() < PATIENT,
                "{:?}",
                peeked(&limits, "k").await
            );
            sleep(millis(5)).await;
        }
    }
    until_held(&server, 0).await;
}

/// A shadow rule and a candidate deny nothing, hold what runs, and leave nothing.
#[tokio::test]
async fn shadows_hold_permits_without_a_bound() {
    let server = Redis::start();
    for store in stores(&server).await {
        let candidate = at_a_time(1);
        let free = Rule::new("p", [Quota::per_hour(10_000)]).expect("valid");
        let free = free.with_key(|_: &Parts| Ok(Key::from("k")));
        for rule in [at_a_time(1).into_shadow(), free.with_shadow(candidate)] {
            let limits = limits(rule, Arc::clone(&store));
            let app = Router::new().route("/", any(async || "1").layer(limits.layer("p")));
            let mut all = Vec::new();
            for _ in 0..30 {
                let response = app.clone().oneshot(Request::new(Body::empty())).await;
                let response = response.expect("axum does not fail");
                assert_eq!(response.status(), 200);
                all.push((Some(response), None));
                all.push((None, check(&limits, "k").await.ok()));
            }
            assert!(all.iter().all(|(one, two)| one.is_some() || two.is_some()));
            if limits.shared_store().name() == "redis" {
                until_held(&server, 60).await;
            }
            drop(all);
            until_held(&server, 0).await;
            // Those who leave before the store has heard of them.
            for _ in 0..50 {
                let check = limits.check("p", "k").into_future();
                drop(tokio::time::timeout(Duration::ZERO, check).await);
            }
            until_held(&server, 0).await;
        }
        let limits = limits(at_a_time(2), store);
        until_free(&limits, "k", 2).await;
    }
}

/// From without to with a number and back, while requests run and end.
#[tokio::test]
async fn a_rule_that_changes_all_the_time() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(4), store);
        let free = || Rule::new("p", [Quota::per_hour(100_000)]).expect("valid");
        let mut kept = Vec::new();
        for round in 0..200_usize {
            let rule = match round % 4 {
                0 => at_a_time(4),
                1 => free().with_key(|_: &Parts| Ok(Key::from("k"))),
                2 => with_quota(100_000, 6),
                _ => at_a_time(2).into_shadow(),
            };
            limits.rules().replace([rule].into());
            for _ in 0..3 {
                kept.extend(check(&limits, "k").await);
            }
            while kept.len() > 7 {
                drop(kept.swap_remove(round % kept.len()));
            }
        }
        drop(kept);
        limits.rules().replace([at_a_time(4)].into());
        until_free(&limits, "k", 4).await;
    }
    until_held(&server, 0).await;
}

/// One permit for each request, whatever it costs.
#[tokio::test]
async fn costs_do_not_matter() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(with_quota(100, 2), store);
        for cost in [0, 1, 5] {
            for _ in 0..10 {
                let admitted = limits.check("p", "k").cost(cost).await.expect("free");
                let free = peeked(&limits, "k").await[1];
                assert_eq!(
                    free,
                    2 - u64::from(admitted.permit.is_some()),
                    "cost {cost}"
                );
                assert!(cost == 0 || admitted.permit.is_some());
                drop(admitted);
                limits.reset("p", "k").await.expect("an answer");
                let began = Instant::now();
                while peeked(&limits, "k").await != [100, 2] {
                    assert!(began.elapsed() < PATIENT);
                }
            }
        }
    }
    until_held(&server, 0).await;
}

/// Busy is never remembered, and the stronger denials win.
#[tokio::test]
async fn what_a_denial_is() {
    let server = Redis::start();
    let other = limits(with_quota(100, 1), store_at(&server.url, PATIENT).await);
    let store = store_at(&server.url, PATIENT).await;
    let store = Resilient::new(store).timeout(PATIENT).denial_cache(PATIENT);
    let limits = limits(with_quota(2, 1), store.build());
    for _ in 0..2 {
        let first = check(&other, "k").await.expect("free");
        for _ in 0..10 {
            let refused = check(&limits, "k").await.expect_err("one runs");
            let retry_after = SECOND;
            assert_eq!(verdict(&refused), Verdict::Busy { retry_after });
        }
        // In another process.
        drop(first);
        until_held(&server, 0).await;
        drop(
            check(&limits, "k")
                .await
                .expect("nobody runs, and it is not remembered"),
        );
        until_held(&server, 0).await;
        limits.reset("p", "k").await.expect("an answer");
    }
    let one = check(&limits, "k").await.expect("free");
    let refused = limits
        .check("p", "k")
        .cost(2)
        .await
        .expect_err("one unit, no permit");
    let Verdict::Denied { retry_after } = verdict(&refused) else {
        panic!("{refused:?}");
    };
    assert!(retry_after > PATIENT, "the quota's: {retry_after:?}");
    let refused = limits
        .check("p", "k")
        .cost(3)
        .await
        .expect_err("more than max");
    assert_eq!(verdict(&refused), Verdict::Never);
    drop(one);
    limits.rules().replace([at_a_time(0)].into());
    let refused = check(&limits, "k").await.expect_err("none may run");
    assert_eq!(verdict(&refused), Verdict::Never);
    until_held(&server, 0).await;
}

/// While Redis is away, a process admits its share, at least one; when it is back, nothing of that
/// is held, and what was held before goes back.
#[tokio::test]
async fn a_fallback_admits_its_share() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    for (max, processes, share) in [(8, 4, 2), (2, 4, 1)] {
        let store = store_at(&proxy.url, millis(300)).await;
        let store = Resilient::new(store).timeout(millis(300));
        let store = store.fallback(Share::of_processes(processes));
        let limits = limits(at_a_time(max), store.probe_every(millis(100)).build());
        let first = check(&limits, "k").await.expect("free");
        proxy.all(Mode::Reset);
        let mut all = Vec::new();
        for _ in 0..8 {
            all.extend(check(&limits, "k").await);
        }
        assert_eq!(all.len(), share, "of {max} among {processes}");
        drop(all.pop());
        sleep(millis(50)).await;
        all.extend(check(&limits, "k").await);
        assert_eq!(all.len(), share, "it came back");
        drop(first);
        proxy.all(Mode::Pass);
        until_held(&server, 0).await;
        drop(all);
        let began = Instant::now();
        while !check(&limits, "k").await.is_ok_and(|it| {
            let source = it.decision.as_ref().map(Decision::source);
            source == Some(tidegate::decision::Source::Redis)
        }) {
            assert!(began.elapsed() < PATIENT);
            sleep(millis(20)).await;
        }
        until_held(&server, 0).await;
        until_free(&limits, "k", max).await;
    }
}
