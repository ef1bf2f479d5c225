//! Rules that change between a reservation and its settlement, plans, quotas from a table, shadows
//! and permits.

use std::sync::Arc;
use std::time::Duration;

use tidegate::rule::Quotas;
use tidegate::{Algorithm, Limits, Quota, Rule, Rules, Store};

use super::{COUNTING, charge, counted, flushed, per_hour, settled, used};
use kit::clocked::Stores;
use kit::{HOUR, PATIENT};

const MICRO: Duration = Duration::from_micros(1);

fn quotas(max: u64) -> Quotas {
    Quotas::new([Quota::new(HOUR, max).expect("valid")]).expect("valid")
}

/// Each change that a reload may bring between a take and its settlement: all is charged, or
/// forgiven, once, where the take was charged, and whoever is denied then is told the truth.
#[tokio::test]
async fn reloads_before_a_settlement() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in COUNTING {
            let of = |max| per_hour("a", max).with_algorithm(algorithm);
            let changes: [(&str, Option<Rule>); 9] = [
                ("less", Some(of(4))),
                ("none", Some(of(0))),
                ("more", Some(of(1_000))),
                (
                    "window",
                    Some({
                        let quota = Quota::new(3 * HOUR, 10).expect("valid");
                        Rule::new("a", [quota])
                            .expect("valid")
                            .with_algorithm(algorithm)
                    }),
                ),
                (
                    "algorithm",
                    Some(per_hour("a", 10).with_algorithm(Algorithm::Gcra)),
                ),
                ("no debts", Some(of(10).with_owe_at_most(0))),
                ("debts", Some(of(10).with_owe_at_most(1_000))),
                ("shadow", Some(of(10).into_shadow())),
                ("gone", None),
            ];
            for (what, after) in changes {
                let case = format!("{} {algorithm:?} {what}", clocked.name);
                let limits = Limits::new([of(10)]).store(Arc::clone(&clocked.store));
                let reserved = charge(&limits, "a", "x", 3).await;
                let rules = after.clone().into_iter().chain([per_hour("b", 1)]);
                limits.rules().replace(Rules::from_iter(rules));
                let answer = reserved.settle(53).await.expect("an answer");
                assert_eq!(answer, settled(0, 17, 33), "{case}: the rule of the take");
                assert_eq!(used(&*clocked.store, &of(10), "x").await, 20, "{case}");
                let again = reserved.settle(900).await.expect("an answer");
                assert_eq!(again, settled(0, 0, 0), "{case}");
                let next = limits.check("a", "x").await;
                match what {
                    "more" | "algorithm" | "shadow" | "gone" => {
                        next.unwrap_or_else(|refused| panic!("{case}: {refused}"));
                    }
                    "none" => {
                        let refused = next.expect_err("none is allowed");
                        assert_eq!(refused.retry_after(), None, "{case}");
                    }
                    _ => {
                        let refused = next.expect_err("it owes");
                        let wait = refused.retry_after().expect("some time");
                        clocked.advance(wait - MICRO);
                        // A charge counts no longer than the window under which it was charged.
                        if what != "window" {
                            limits.check("a", "x").await.expect_err("a step earlier");
                        }
                        clocked.advance(MICRO);
                        let next = limits.check("a", "x").await;
                        next.unwrap_or_else(|refused| panic!("{case}: law 3: {refused}"));
                    }
                }
                clocked.advance(20 * HOUR);
            }
        }
    }
}

/// Another plan, and quotas from a table, see the debt; a large plan's debts are as large as the
/// plan, not as the smallest one.
#[tokio::test]
async fn plans_see_the_debt() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in COUNTING {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = per_hour("p", 10).with_algorithm(algorithm);
            let rule = rule.with_plan("pro", quotas(1_000)).expect("valid");
            let limits = Limits::new([rule.clone()]).store(Arc::clone(&clocked.store));
            let pro = limits
                .check("p", "x")
                .plan("pro")
                .cost(5)
                .await
                .expect("room");
            let pro = pro.charge.expect("charged");
            let answer = pro.settle(605).await.expect("an answer");
            assert_eq!(answer, settled(0, 600, 0), "{case}");
            assert_eq!(used(&*clocked.store, &rule, "x").await, 605, "{case}");
            limits
                .check("p", "x")
                .await
                .expect_err("the small plan is used up");
            let table = Some(Arc::new(quotas(605)));
            let by_table = limits.check("p", "x").quotas(table).await;
            by_table.expect_err("so is the table's");
            let table = Some(Arc::new(quotas(700)));
            let by_table = limits
                .check("p", "x")
                .quotas(table)
                .cost(10)
                .await
                .expect("room");
            let by_table = by_table.charge.expect("charged");
            // 615 are used, and 1,400 may be.
            let answer = by_table.settle(2_010).await.expect("an answer");
            assert_eq!(answer, settled(0, 785, 1_215), "{case}");
            let refused = limits
                .check("p", "x")
                .plan("pro")
                .await
                .expect_err("1,400 of 1,000");
            clocked.advance(refused.retry_after().expect("some time") - MICRO);
            limits
                .check("p", "x")
                .plan("pro")
                .await
                .expect_err("a step earlier");
            clocked.advance(MICRO);
            limits.check("p", "x").plan("pro").await.expect("law 3");
            clocked.advance(20 * HOUR);
        }
    }
}

/// A candidate is charged along with its rule, as much as it may owe itself.
#[tokio::test]
async fn candidates_are_charged_along() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in COUNTING {
            let case = format!("{} {algorithm:?}", clocked.name);
            let candidate = per_hour("c", 20).with_algorithm(algorithm);
            let rule = per_hour("c", 1_000).with_algorithm(algorithm);
            let rule = rule.with_shadow(candidate);
            let dry = Arc::clone(rule.shadow().expect("a candidate"));
            let limits = Limits::new([rule.clone()]).store(Arc::clone(&clocked.store));
            let one = charge(&limits, "c", "x", 2).await;
            flushed(&limits).await;
            assert_eq!(
                one.settle(14).await.expect("an answer"),
                settled(0, 12, 0),
                "{case}"
            );
            flushed(&limits).await;
            let left = async || {
                let take = tidegate::Take::new(Arc::clone(&dry), tidegate::Key::from("x"));
                clocked
                    .store
                    .peek(&take)
                    .await
                    .expect("an answer")
                    .remaining()
            };
            assert_eq!(left().await, 6, "{case}: of the candidate");
            let one = charge(&limits, "c", "x", 2).await;
            flushed(&limits).await;
            // The candidate may owe its max once more, and the rule is charged all.
            assert_eq!(
                one.settle(302).await.expect("an answer"),
                settled(0, 300, 0),
                "{case}"
            );
            flushed(&limits).await;
            assert_eq!(left().await, 0, "{case}");
            let (owed, forgiven, lost) = counted(&limits, "c");
            assert_eq!(
                (owed, forgiven, lost),
                (312, 0, 0),
                "{case}: the rule's alone"
            );
            let before = limits
                .snapshot()
                .rule("c")
                .expect("used")
                .shadow_denials
                .clone();
            charge(&limits, "c", "x", 1).await;
            flushed(&limits).await;
            let after = limits
                .snapshot()
                .rule("c")
                .expect("used")
                .shadow_denials
                .clone();
            assert_ne!(before, after, "{case}: the candidate would deny it");

            clocked.advance(20 * HOUR);
        }
    }
}

/// Permits: a settlement charges the quota and keeps the permit, which goes back as ever.
#[tokio::test]
async fn permits_stay() {
    let stores = Stores::start().await;
    for clocked in stores
        .all
        .iter()
        .filter(|it| it.store.capabilities().permits)
    {
        for algorithm in COUNTING {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = per_hour("m", 10).with_algorithm(algorithm);
            let rule = rule.with_max_concurrent(2).expect("valid");
            let limits = Limits::new([rule]).store(Arc::clone(&clocked.store));
            let [one, two] = [limits.check("m", "x").await, limits.check("m", "x").await];
            let (one, two) = (one.expect("room"), two.expect("room"));
            let answer = one.charge.as_ref().expect("charged").settle(5).await;
            assert_eq!(answer.expect("an answer"), settled(0, 4, 0), "{case}");
            let busy = limits.check("m", "x").await.expect_err("two run");
            assert!(busy.decision().expect("decided").is_busy(), "{case}");
            drop(two);
            flushed(&limits).await;
            let three = limits.check("m", "x").await.expect("one runs");
            // It owes everything that it may.
            let answer = three.charge.as_ref().expect("charged").settle(40).await;
            assert_eq!(answer.expect("an answer"), settled(0, 13, 26), "{case}");
            drop((one, three));
            flushed(&limits).await;
            let denied = limits.check("m", "x").await.expect_err("it owes");
            assert!(!denied.decision().expect("decided").is_busy(), "{case}");
            clocked.advance(3 * HOUR);
            let both = [limits.check("m", "x").await, limits.check("m", "x").await];
            assert!(
                both.iter().all(Result::is_ok),
                "{case}: both permits are there"
            );
            drop(both);
            assert!(limits.flush(PATIENT).await);
            clocked.advance(20 * HOUR);
        }
    }
}
