//! Rules that change between a reservation and its settlement, plans, quotas from a table, shadows
//! and permits.

use super::*;

const MICRO: Duration = Duration::from_micros(1);

/// A refusal tells the time to the microsecond, after which such a check is admitted.
async fn check_law_3(
    clocked: &Clocked,
    refused: &Refused,
    mut is_admitted: impl AsyncFnMut() -> bool,
    case: &str,
) {
    let wait = refused.retry_after().expect("some time");
    clocked.advance(wait - MICRO);
    assert!(!is_admitted().await, "{case}: a step earlier");
    clocked.advance(MICRO);
    assert!(is_admitted().await, "{case}: law 3");
}

/// Each change that a reload may bring between a take and its settlement: all is charged, or
/// forgiven, once, where the take was charged, and whoever is denied then is told the truth.
#[tokio::test]
async fn reloads_before_a_settlement() {
    for (case, clocked, algorithm) in Stores::start().await.cases_of(COUNTING) {
        let of = |max| per_hour("a", max).with_algorithm(algorithm);
        let longer = kit::owned_rule("a", 10, 3 * HOUR).with_algorithm(algorithm);
        let changes: [(&str, Option<Rule>); 9] = [
            ("less", Some(of(4))),
            ("none", Some(of(0))),
            ("more", Some(of(1_000))),
            ("window", Some(longer)),
            ("algorithm", Some(of(10).with_algorithm(Algorithm::Gcra))),
            ("no debts", Some(of(10).with_owe_at_most(0))),
            ("debts", Some(of(10).with_owe_at_most(1_000))),
            ("shadow", Some(of(10).into_shadow())),
            ("gone", None),
        ];
        for (what, after) in changes {
            let case = format!("{case} {what}");
            let limits = limits([of(10)], Arc::clone(&clocked.store));
            let reserved = charge(&limits, "a", "x", 3).await;
            let rules = after.into_iter().chain([per_hour("b", 1)]);
            limits.rules().replace(Rules::from_iter(rules));
            let answer = settle(&reserved, 53).await;
            assert_eq!(answer, (0, 17, 33), "{case}: the rule of the take");
            assert_eq!(used(&*clocked.store, &of(10), "x").await, 20, "{case}");
            assert_eq!(settle(&reserved, 900).await, (0, 0, 0), "{case}");
            let is_admitted = async || limits.check("a", "x").await.is_ok();
            match (what, limits.check("a", "x").await) {
                ("more" | "algorithm" | "shadow" | "gone", Ok(_)) => {}
                // Only a log has one count for all windows.
                ("window", Ok(_)) => assert_ne!(algorithm, Algorithm::SlidingLog, "{case}"),
                ("none", Err(refused)) => assert_eq!(refused.retry_after(), None, "{case}"),
                // A charge counts no longer than the window under which it was charged.
                ("window", Err(refused)) => {
                    clocked.advance(refused.retry_after().expect("some time"));
                    assert!(is_admitted().await, "{case}: law 3");
                }
                ("less" | "no debts" | "debts", Err(refused)) => {
                    check_law_3(clocked, &refused, is_admitted, &case).await;
                }
                (_, next) => panic!("{case}: {next:?}"),
            }
            clocked.advance(20 * HOUR);
        }
    }
}

/// Another plan, and quotas from a table, see the debt; a large plan's debts are as large as the
/// plan, not as the smallest one.
#[tokio::test]
async fn plans_see_the_debt() {
    for (case, clocked, algorithm) in Stores::start().await.cases_of(COUNTING) {
        let rule = per_hour("p", 10).with_algorithm(algorithm);
        let rule = rule.with_plan("pro", hourly_quotas(1_000)).expect("valid");
        let limits = limits([rule.clone()], Arc::clone(&clocked.store));
        let check = || limits.check("p", "x");
        let by_table =
            |max| check().plan_value(Some(tidegate::rule::Plan::from(hourly_quotas(max))));
        let pro = check().plan("pro").cost(5).await.expect("room");
        let answer = settle(&pro.charge.expect("charged"), 605).await;
        assert_eq!(answer, (0, 600, 0), "{case}");
        assert_eq!(used(&*clocked.store, &rule, "x").await, 605, "{case}");
        check().await.expect_err("the small plan is used up");
        by_table(605).await.expect_err("so is the table's");
        let table = by_table(700).cost(10).await.expect("room");
        // 615 are used, and 1,400 may be.
        let answer = settle(&table.charge.expect("charged"), 2_010).await;
        assert_eq!(answer, (0, 785, 1_215), "{case}");
        let refused = check().plan("pro").await.expect_err("1,400 of 1,000");
        let is_admitted = async || check().plan("pro").await.is_ok();
        check_law_3(clocked, &refused, is_admitted, &case).await;
        clocked.advance(20 * HOUR);
    }
}

/// Permits: a settlement charges the quota and keeps the permit, which goes back as ever.
#[tokio::test]
async fn permits_stay() {
    for (case, clocked, algorithm) in Stores::start().await.cases_of(COUNTING) {
        if !clocked.store.capabilities().permits {
            continue;
        }
        let rule = per_hour("m", 10).with_algorithm(algorithm);
        let rule = rule.with_max_concurrent(2).expect("valid");
        let limits = limits([rule], Arc::clone(&clocked.store));
        let check = async || limits.check("m", "x").await;
        let is_busy = async || {
            let refused = check().await.expect_err("no permit, or no unit");
            refused.decision().expect("decided").is_busy()
        };
        let one = check().await.expect("room");
        let two = check().await.expect("room");
        let answer = settle(one.charge.as_ref().expect("charged"), 5).await;
        assert_eq!(answer, (0, 4, 0), "{case}");
        assert!(is_busy().await, "{case}: two run");
        drop(two);
        flushed(&limits).await;
        let three = check().await.expect("one runs");
        // It owes everything that it may.
        let answer = settle(three.charge.as_ref().expect("charged"), 40).await;
        assert_eq!(answer, (0, 13, 26), "{case}");
        drop((one, three));
        flushed(&limits).await;
        assert!(!is_busy().await, "{case}: it owes");
        clocked.advance(3 * HOUR);
        let both = [check().await, check().await];
        let are_there = both.iter().all(Result::is_ok);
        assert!(are_there, "{case}: both permits are there");
        drop(both);
        flushed(&limits).await;
        clocked.advance(20 * HOUR);
    }
}
