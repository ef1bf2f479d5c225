//! Those who wait for a permit.

use super::*;

/// Plans with numbers of their own share what runs: of 1, 2 and 4, the smaller ones wait longer.
#[tokio::test]
async fn plans_wait_for_the_same_permits() {
    on_both(async |store| {
        let mut rule = at_a_time(4);
        for (name, max) in [("one", 1), ("two", 2)] {
            let quotas = Quotas::with_policies([Policy::concurrent(max)]).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
        let limits = limits(rule, store);
        let check = |plan| limits.check("p", "k").plan(plan);
        let first = admitted(&limits, "k").await;
        check("one").await.expect_err("one runs");
        let second = check("two").await.expect("two may");
        let third = admitted(&limits, "k").await;
        let [one, two] = ["one", "two"].map(|plan| {
            let waits = check(plan).wait(PATIENT);
            tokio::spawn(waits.into_future())
        });
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
    })
    .await;
}

#[test]
fn scenes() {
    kit::timeline::play("tests/hostile/layer/permits/waiting.txt");
}
