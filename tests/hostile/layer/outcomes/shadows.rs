//! A dry run tells the truth: a shadow rule and a candidate are given back as the enforced rule is.

use super::holding::{Holding, Open};
use super::*;

fn strict(path: &str, algorithm: Algorithm) -> Rule {
    let quotas = [(4, 900), (9, 4_000)].map(|(max, window)| kit::quota(max, millis(window)));
    let rule = Rule::new(path, quotas).expect("valid");
    rule.with_key(Header::new("x-key"))
        .with_algorithm(algorithm)
}

/// How often the rule itself, and its candidate, would have denied.
fn dry_denials(limits: &Limits, path: &str) -> [u64; 2] {
    let snapshot = limits.snapshot();
    snapshot.rule(path).map_or([0; 2], |rule| {
        let of_candidate = rule.shadow_denials.iter().map(|it| it.1).sum();
        [rule.decisions(DecisionOutcome::ShadowDenied), of_candidate]
    })
}

/// One random history with overlapping handlers under the rule, its shadow, and a candidate of a
/// rule that admits all: they deny the same requests.
#[tokio::test]
async fn a_dry_run_equals_the_rule() {
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        let good = |rule: Rule| rule.with_refund_on(["2xx"]).expect("valid");
        let lax = of("lax", 1_000_000, &["2xx"]);
        let all = [
            good(strict("enforced", algorithm)),
            good(strict("shadow", algorithm).into_shadow()),
            lax.with_shadow(strict("lax", algorithm)),
        ];
        let paths = ["enforced", "shadow", "lax"];
        let all = all.map(|rule| limits(rule, Arc::clone(&clocked.store)));
        let [_, shadow, tried] = &all;
        let mut layers = [0, 1, 2].map(|at| Holding::new(&all[at], paths[at]));
        let mut random = Random::new(0x5ad0);
        let mut open: Vec<Vec<Open>> = Vec::new();
        let (mut denied, mut allowed) = (0, 0);
        for step in 0..200 {
            let case = format!("{} {algorithm:?} step {step}", clocked.name);
            clocked.advance(Duration::from_micros(1_001 + random.below(150_000)));
            if random.is(55) || open.is_empty() {
                let cost = 1 + random.below(2);
                let before = [
                    dry_denials(shadow, "shadow")[0],
                    dry_denials(tried, "lax")[1],
                ];
                let mut begun = Vec::new();
                for layer in &mut layers {
                    begun.push(layer.begin("x", cost).await);
                }
                let is_denied = begun[0].is_none();
                assert!(begun[1..].iter().all(Option::is_some), "{case}: a dry run");
                // The candidate is asked beside the request.
                flushed(tried).await;
                let by_shadow = dry_denials(shadow, "shadow")[0] - before[0];
                assert_eq!(by_shadow, u64::from(is_denied), "{case}");
                open.push(begun.into_iter().flatten().collect());
                denied += u64::from(is_denied);
                allowed += u64::from(!is_denied);
                until(is_denied, async || dry_denials(tried, "lax")[1] > before[1]).await;
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
                for limits in &all {
                    flushed(limits).await;
                }
            }
        }
        let is_right = denied > 10 && allowed > 10;
        assert!(is_right, "{allowed} allowed, {denied} denied");
        assert!(dry_denials(tried, "lax")[1] > 0);
        for one in open.into_iter().flatten() {
            one.abort().await;
        }
        for (limits, path) in all.iter().zip(paths) {
            reset(limits, path).await;
        }
        clocked.advance(100_000 * SECOND);
    }
}
