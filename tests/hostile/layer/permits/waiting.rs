//! Those who wait for a permit.

use super::*;

/// One bound for permits and quotas; who waits for both goes when both are there.
#[tokio::test(start_paused = true)]
async fn one_bound_for_permits_and_quotas() {
    // When the permit comes back, how long the second one waits, and when it is admitted. The quota
    // has a unit again after 2 s.
    for (back, bound, expected) in [
        (1_000, 3_000, Some(2_000)),
        (2_500, 3_000, Some(2_500)),
        (1_000, 1_500, None),
        (4_000, 3_000, None),
    ] {
        let rule = kit::owned_rule("p", 1, 2 * SECOND).with_max_concurrent(1);
        let limits = limits(rule.expect("valid"), MemoryStore::new().tokio_clock());
        let first = admitted(&limits, "k").await;
        tokio::spawn(async move {
            sleep(millis(back)).await;
            drop(first);
        });
        let began = Instant::now();
        let second = limits.check("p", "k").wait(millis(bound)).await;
        let after = began.elapsed();
        let case = format!("{back} {bound}: {after:?}");
        assert_eq!(second.is_ok(), expected.is_some(), "{case}");
        assert!(after <= millis(bound + 20), "{case}");
        if let Some(expected) = expected {
            let is_right = (millis(expected)..millis(expected + 20)).contains(&after);
            assert!(is_right, "{case}");
        }
        drop(second);
        sleep(5 * SECOND).await;
        assert_eq!(left(&limits, "k").await, 1);
    }
}

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
