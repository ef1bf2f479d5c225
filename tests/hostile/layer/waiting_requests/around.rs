//! What happens around requests that wait: rules change, counts are reset, other layers decide.

use tidegate::rule::{OnError, Quotas, Share};
use tidegate::{Quota, Resilient, Rules};

use super::*;
use kit::stub::far;

/// Rules that change while 10 requests wait: a larger quota, no `refund-on`, switched off, gone.
#[tokio::test(start_paused = true)]
async fn rules_change_meanwhile() {
    type Change = fn(&Limits);
    let changes: [(&str, Change); 6] = [
        ("larger", |limits| {
            limits.rules().replace([logins(100)].into_iter().collect())
        }),
        ("smaller", |limits| {
            limits.rules().replace([logins(0)].into_iter().collect())
        }),
        ("nothing back", |limits| {
            limits
                .rules()
                .replace([units_a_minute(1)].into_iter().collect())
        }),
        ("shadow", |limits| {
            limits
                .rules()
                .replace([logins(1).into_shadow()].into_iter().collect())
        }),
        ("off", |limits| {
            let mut rules = Rules::from_iter([logins(1)]);
            assert!(rules.disable("p"));
            limits.rules().replace(rules);
        }),
        ("gone", |limits| limits.rules().replace(Rules::default())),
    ];
    for store in [paused(), Arc::new(far(millis(10))) as Arc<dyn Store>] {
        for (what, change) in changes {
            let limits = limits([logins(1)], store.clone());
            limits.reset("p", "k").await.expect("an answer");
            // Nothing of the instant of a reset is given back.
            sleep(millis(1)).await;
            let app = app([limits.layer("p").wait(2 * SECOND)]);
            let held = start(&app, 0, "x-hold: 1000");
            let asked: Vec<_> = (0..10).map(|_| start(&app, 100, "")).collect();
            sleep(millis(500)).await;
            change(&limits);
            assert_eq!(held.await.expect("no panic").status, OK);
            let mut seen = Vec::new();
            for asked in asked {
                let answer = asked.await.expect("no panic");
                assert!(answer.after <= 2_050, "{what}: {} ms", answer.after);
                seen.push((answer.status.as_u16(), answer.after));
            }
            let later = ask(&app, "").await;
            assert_eq!(later.status == DENIED, what == "smaller", "{what}");
            assert_eq!(waiting(&limits), 0, "{what}");
        }
    }
}

/// A reset frees units: those who wait ask within a second, or within 100 ms.
#[tokio::test(start_paused = true)]
async fn a_reset_meanwhile() {
    for (rule, bound) in [
        (logins(5), 110),
        (units_a_minute(5).with_settling(true), 110),
        (units_a_minute(5), 1_010),
    ] {
        let limits = limits([rule], paused());
        let app = app([limits.layer("p").wait(90 * SECOND)]);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(limits.check("p", "k").await.expect("a unit"));
        }
        let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "x-status: 401")).collect();
        sleep(millis(2_500)).await;
        assert_eq!(waiting(&limits), 5);
        assert!(limits.reset("p", "k").await.expect("an answer"));
        for asked in asked {
            let answer = asked.await.expect("no panic");
            assert!(answer.after <= 2_500 + bound, "{} ms", answer.after);
        }
        // Nothing that was forgotten is given back.
        for held in held {
            assert_eq!(
                held.charge
                    .expect("charged")
                    .refund()
                    .await
                    .expect("an answer"),
                0
            );
        }
        check_rest(&limits).await;
        assert_eq!(left(&limits, "k").await, 0);
    }
}

/// Three rules in turn with one bound; what the outer ones charged is given back if an inner one
/// denies.
#[tokio::test(start_paused = true)]
async fn three_layers_share_one_bound() {
    let three = || {
        ["a", "b", "c"].map(|path| {
            let rule = rule_of(path, 5);
            rule.with_refund_on(["2xx"]).expect("valid")
        })
    };
    for busy in ["a", "b", "c"] {
        for store in [paused(), Arc::new(far(millis(10))) as Arc<dyn Store>] {
            let limits = limits(three(), store);
            let layers = ["c", "b", "a"].map(|path| limits.layer(path).wait(2 * SECOND));
            let app = app(layers);
            // Four remain as they are, and one is given back: after 1.5 s, or too late.
            for (comes_back, expected) in [(1_500, OK), (2_500, DENIED)] {
                let mut held = Vec::new();
                for _ in 0..5 {
                    held.push(limits.check(busy, "k").await.expect("a unit"));
                }
                let asked = start(&app, 0, "");
                sleep(millis(comes_back)).await;
                let charge = held.pop().and_then(|it| it.charge).expect("charged");
                charge.refund().await.expect("an answer");
                let answer = asked.await.expect("no panic");
                assert_eq!(answer.status, expected, "{busy}");
                assert!(answer.after <= 2_100, "{busy}: {} ms", answer.after);
                check_rest(&limits).await;
                for path in ["a", "b", "c"] {
                    let expected = if path == busy { 1 } else { 5 };
                    assert_eq!(
                        left_of(&limits, path, "k").await,
                        expected,
                        "{path} of {busy}"
                    );
                    limits.reset(path, "k").await.expect("an answer");
                }
                sleep(millis(1)).await;
            }
        }
    }
}

/// Each of three layers lets wait for 0.9 s of 2 s, then for what is left.
#[tokio::test(start_paused = true)]
async fn a_bound_is_used_up_by_all_layers() {
    let three = ["a", "b", "c"].map(|path| {
        let rule = rule_of(path, 1);
        rule.with_refund_on(["2xx"]).expect("valid")
    });
    let limits = limits(three, paused());
    let layers = ["c", "b", "a"].map(|path| limits.layer(path).wait(2 * SECOND));
    let app = app(layers);
    let mut held = Vec::new();
    for path in ["a", "b", "c"] {
        let admitted = limits.check(path, "k").await.expect("a unit");
        held.push(admitted.charge.expect("charged"));
    }
    let asked = start(&app, 0, "");
    for charge in held {
        sleep(millis(900)).await;
        charge.refund().await.expect("an answer");
    }
    let answer = asked.await.expect("no panic");
    assert_eq!(answer.status, DENIED);
    assert!(
        (1_800..=2_010).contains(&answer.after),
        "{} ms",
        answer.after
    );
    check_rest(&limits).await;
    for path in ["a", "b", "c"] {
        assert_eq!(left_of(&limits, path, "k").await, 1, "{path}");
    }
}

/// An inner layer of the same limits denies, whatever its callback answers; one of other limits.
#[tokio::test(start_paused = true)]
async fn a_degraded_answer_gives_the_outer_charge_back() {
    for outcomes in [["401"], ["denied"], ["2xx"]] {
        for degraded in [200, 401, 429, 503] {
            let outer = rule_of("outer", 5).with_refund_on(outcomes).expect("valid");
            let limits = limits([outer, rule_of("inner", 0)], paused());
            let inner = limits.layer("inner").degrade_fn(move |_| async move {
                StatusCode::from_u16(degraded).expect("a status")
            });
            let app = app([inner, limits.layer("outer")]);
            assert_eq!(ask(&app, "").await.status.as_u16(), degraded);
            check_rest(&limits).await;
            assert_eq!(
                left_of(&limits, "outer", "k").await,
                5,
                "{outcomes:?} {degraded}"
            );

            // Another Limits: its answers are no outcome.
            let others = super::limits([rule_of("inner", 0)], paused());
            let inner = others.layer("inner").degrade_fn(move |_| async move {
                StatusCode::from_u16(degraded).expect("a status")
            });
            let app = super::app([inner, limits.layer("outer")]);
            assert_eq!(ask(&app, "").await.status.as_u16(), degraded);
            check_rest(&limits).await;
            assert_eq!(
                left_of(&limits, "outer", "k").await,
                4,
                "{outcomes:?} {degraded}"
            );
        }
    }
}

/// A plan, a candidate, a shadow rule.
#[tokio::test(start_paused = true)]
async fn plans_and_candidates() {
    let plan = Quotas::new([Quota::new(MINUTE, 2).expect("valid")]).expect("valid");
    let rules = [
        logins(1),
        logins(1).with_shadow(logins(0)),
        logins(1).with_plan("pro", plan).expect("valid"),
    ];
    for rule in rules {
        let limits = limits([rule], paused());
        let app = app([limits.layer("p").wait(2 * SECOND)]);
        let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "x-hold: 300")).collect();
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").status, OK);
        }
        check_rest(&limits).await;
        assert_eq!(left(&limits, "k").await, 1);
    }
    let limits = limits([logins(1).into_shadow()], paused());
    let app = app([limits.layer("p").wait(2 * SECOND)]);
    let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "x-hold: 300")).collect();
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!((answer.status, answer.after), (OK, 300));
    }
    check_rest(&limits).await;
    assert_eq!(left(&limits, "k").await, 1);
}

/// gRPC requests, whose good answers have a status in their fields.
#[tokio::test(start_paused = true)]
async fn grpc_requests_wait() {
    let rule = units_a_minute(1).with_refund_on(["grpc-0"]).expect("valid");
    let limits = limits([rule], paused());
    let grpc = async |_: Request| {
        sleep(millis(300)).await;
        (
            [("grpc-status", "0"), ("content-type", "application/grpc")],
            "",
        )
    };
    let layer = limits.layer("p").wait(SECOND);
    let app = Router::new().route("/", any(grpc)).layer(layer);
    let fields = "content-type: application/grpc";
    let asked: Vec<_> = (0..5).map(|_| start(&app, 0, fields)).collect();
    let mut seen = Vec::new();
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, OK);
        let status = answer.field("grpc-status").expect("there").to_owned();
        seen.push((answer.after, status));
    }
    seen.sort();
    let seen: Vec<_> = seen.iter().map(|(at, status)| (*at, &**status)).collect();
    assert_eq!(&seen[..3], [(300, "0"), (600, "0"), (900, "0")]);
    assert!(seen[3..].iter().all(|(at, _)| *at <= 1_200), "{seen:?}");
    assert_eq!(
        seen.iter().filter(|(_, status)| *status == "0").count(),
        4,
        "{seen:?}"
    );
    check_rest(&limits).await;
    assert_eq!(left(&limits, "k").await, 1);
}

/// Two limits over one store do not know of each other: those who wait ask every 100 ms.
#[tokio::test(start_paused = true)]
async fn two_limits_over_one_store() {
    let store = paused();
    let [one, two] = [(), ()].map(|()| limits([logins(1)], Arc::clone(&store)));
    let [one, two] = [one, two].map(|limits| (app([limits.layer("p").wait(2 * SECOND)]), limits));
    let held = start(&one.0, 0, "x-hold: 350");
    let waits = start(&two.0, 10, "").await.expect("no panic");
    assert_eq!(waits.status, OK);
    assert!((340..=450).contains(&waits.after), "{} ms", waits.after);
    held.await.expect("no panic");
    check_rest(&one.1).await;
    check_rest(&two.1).await;
}

/// Wrappers answer by themselves: a denial that is cached, units that are leased, a fallback.
#[tokio::test(start_paused = true)]
async fn wrapped_stores() {
    let stores: [(&str, Arc<dyn Store>); 5] = [
        (
            "cache",
            Arc::new(Resilient::bare(paused()).denial_cache(Duration::from_millis(100))),
        ),
        (
            "slow cache",
            Arc::new(Resilient::bare(paused()).denial_cache(MINUTE)),
        ),
        ("resilient", Resilient::new(paused()).build()),
        ("fallback", {
            let share = Share::of_processes(1);
            let local = MemoryStore::new().tokio_clock();
            Arc::new(
                Resilient::bare(MemoryStore::with_max_keys(0))
                    .fallback(share)
                    .fallback_store(local),
            )
        }),
        ("leases", Arc::new(Resilient::bare(paused()))),
    ];
    for (name, store) in stores {
        for hold in [30_u64, 300, 1_000] {
            let lease = |rule: Rule| match name {
                "leases" => rule.with_lease(millis(50)).expect("valid"),
                "fallback" => rule.with_on_error(OnError::Fallback),
                _ => rule,
            };
            let rules = [
                (
                    "settled",
                    units_a_minute(3).with_settling(true),
                    "x-used: 0, ",
                ),
                ("held", units_a_minute(3), "x-used: 0, "),
                ("by outcome", logins(3), ""),
            ];
            for (how, rule, used) in rules {
                let limits = limits([lease(rule)], Arc::clone(&store));
                let app = app([limits.layer("p").wait(2 * SECOND)]);
                let fields = format!("{used}x-hold: {hold}");
                let first: Vec<_> = (0..3).map(|_| start(&app, 0, &fields)).collect();
                let second: Vec<_> = (0..3).map(|_| start(&app, 10, &fields)).collect();
                for asked in first.into_iter().chain(second) {
                    let answer = asked.await.expect("no panic");
                    assert_eq!(answer.status, OK, "{name}, {how}, {hold}");
                    let most = 2 * hold + 110;
                    assert!(
                        answer.after <= most.into(),
                        "{name}, {how}, {hold}: {} ms",
                        answer.after
                    );
                }
                check_rest(&limits).await;
                limits.reset("p", "k").await.expect("an answer");
                sleep(2 * MINUTE).await;
            }
        }
    }
}
