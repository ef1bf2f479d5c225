//! A dry run tells the truth: a shadow rule and a candidate are given back as the enforced rule is.

use std::sync::Arc;
use std::time::Duration;

use kit::random::Random;
use tidegate::metrics::DecisionOutcome;
use tidegate::{Algorithm, Header, Limits, Quota, Rule};

use super::histories::{Holding, Open};
use super::{ALGORITHMS, flushed, left_in, limits, of, request, send, wrap};
use kit::clocked::Stores;
use kit::millis;

fn strict(path: &str, algorithm: Algorithm) -> Rule {
    let quotas = [(4, 900), (9, 4_000)].map(|(max, window)| Quota::new(millis(window), max));
    let rule = Rule::new(path, quotas.map(|it| it.expect("valid"))).expect("valid");
    rule.with_key(Header::new("x-key"))
        .with_algorithm(algorithm)
}

fn shadow_denied(limits: &Limits, path: &str) -> u64 {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("used");
    rule.decisions(DecisionOutcome::ShadowDenied)
}

fn candidate_denied(limits: &Limits, path: &str) -> bool {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("used");
    rule.shadow_denials.iter().any(|it| it.1 > 0)
}

fn candidate_denials(limits: &Limits, path: &str) -> Vec<u64> {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("used");
    rule.shadow_denials.iter().map(|it| it.1).collect()
}

/// One random history with overlapping handlers under the rule, its shadow, and a candidate of a
/// rule that admits all: they deny the same requests.
#[tokio::test]
async fn a_dry_run_equals_the_rule() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let shared = || Arc::clone(&clocked.store);
            let good = |rule: Rule| rule.with_refund_on(["2xx"]).expect("valid");
            let enforced = limits(good(strict("enforced", algorithm)), shared());
            let shadow = limits(good(strict("shadow", algorithm).into_shadow()), shared());
            let lax = of("lax", 1_000_000, &["2xx"]);
            let tried = limits(lax.with_shadow(strict("lax", algorithm)), shared());
            let mut layers = [
                Holding::new(&enforced, "enforced"),
                Holding::new(&shadow, "shadow"),
                Holding::new(&tried, "lax"),
            ];
            let mut random = Random::new(0x5ad0);
            let mut open: Vec<Vec<Open>> = Vec::new();
            let (mut denied, mut allowed) = (0, 0);
            for step in 0..200 {
                let case = format!("{} {algorithm:?} step {step}", clocked.name);
                clocked.advance(Duration::from_micros(1_001 + random.below(150_000)));
                if random.is(55) || open.is_empty() {
                    let cost = 1 + random.below(2);
                    let before = (shadow_denied_or_0(&shadow, "shadow"), sum_of(&tried));
                    let one = layers[0].begin("x", cost).await;
                    let two = layers[1]
                        .begin("x", cost)
                        .await
                        .expect("a shadow denies nobody");
                    let three = layers[2].begin("x", cost).await.expect("there is room");
                    // The candidate is asked beside the request.
                    flushed(&tried).await;
                    let is_denied = one.is_none();
                    let by_shadow = shadow_denied(&shadow, "shadow") - before.0;
                    assert_eq!(by_shadow, u64::from(is_denied), "{case}");
                    open.push(one.into_iter().chain([two, three]).collect());
                    if is_denied {
                        denied += 1;
                    } else {
                        allowed += 1;
                    }
                    super::until(is_denied, async || sum_of(&tried) > before.1).await;
                } else {
                    let at = random.below(open.len() as u64) as usize;
                    let status = [200, 500][usize::from(random.is(40))];
                    let is_dropped = random.is(10);
                    for one in open.swap_remove(at) {
                        match is_dropped {
                            true => one.abort().await,
                            false => one.end(status).await,
                        }
                    }
                    for limits in [&enforced, &shadow, &tried] {
                        flushed(limits).await;
                    }
                }
            }
            println!(
                "{} {algorithm:?}: {allowed} allowed, {denied} denied",
                clocked.name
            );
            assert!(denied > 10 && allowed > 10);
            assert!(candidate_denied(&tried, "lax"));
            for one in open.into_iter().flatten() {
                one.abort().await;
            }
            for (limits, path) in [
                (&enforced, "enforced"),
                (&shadow, "shadow"),
                (&tried, "lax"),
            ] {
                limits
                    .reset(path, super::key("x"))
                    .await
                    .expect("an answer");
            }
            clocked.advance(Duration::from_secs(100_000));
        }
    }
}

fn shadow_denied_or_0(limits: &Limits, path: &str) -> u64 {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path);
    rule.map_or(0, |it| it.decisions(DecisionOutcome::ShadowDenied))
}

fn sum_of(limits: &Limits) -> u64 {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("lax");
    rule.map_or(0, |it| it.shadow_denials.iter().map(|it| it.1).sum())
}

/// What a rule and its candidate were charged comes back together, by whatever gives it back; also
/// where the rule itself was charged nothing that the other was.
#[tokio::test]
async fn a_candidate_comes_back_with_its_rule() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for (refund_on, how) in [(&["2xx"][..], ""), (&[], "refund"), (&[], "settle")] {
            let candidate = || of("both", 7, &[]);
            let rule = of("both", 50, refund_on)
                .with_cost(2)
                .with_shadow(candidate().with_cost(2));
            let dry = rule.shadow().expect("a candidate").clone();
            let limits = limits(rule, Arc::clone(&clocked.store));
            let service = wrap(&limits.layer("both"));
            for _ in 0..20 {
                super::ask(&service, request(&[("x-how", how)])).await;
                flushed(&limits).await;
            }
            let case = format!("{} {refund_on:?} {how}", clocked.name);
            super::until(7, async || left_in(&*clocked.store, &dry, "x").await).await;
            assert_eq!(super::left_of(&limits, "both", "x").await, 50, "{case}");
            assert_eq!(
                candidate_denials(&limits, "both").iter().sum::<u64>(),
                0,
                "{case}"
            );
            if how.is_empty() {
                for used in 1..=3 {
                    send(&service, 500).await;
                    super::until(7 - 2 * used, async || {
                        left_in(&*clocked.store, &dry, "x").await
                    })
                    .await;
                }
            }
            clocked.advance(3 * kit::HOUR);
        }
    }
}
