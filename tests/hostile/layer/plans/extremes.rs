//! Plans at the ends of what a quota may be, beside one another on one key: no panic, no error, and
//! the same in memory and in Redis.

use super::*;

/// Units beyond 2^53 in a window of ten years, which a double does not hold. Not of a log: it
/// counts modulo 2^52 units, and other plans may charge more than its max.
#[tokio::test]
async fn the_largest_numbers_along_the_longest_window() {
    let stores = Stores::start().await;
    for algorithm in ALGORITHMS.into_iter().skip(1) {
        let most = Quota::MAX_UNITS;
        let rule = of_own("most", &[(most, millis(1))]).with_algorithm(algorithm);
        let plans: [(&str, Pairs<'_>); 3] = [
            ("a", &[(1, Quota::MAX_WINDOW)]),
            ("b", &[(most, Quota::MAX_WINDOW)]),
            ("c", &[(most, SECOND)]),
        ];
        let rules = all_of(with_plans(rule, &plans));
        for one in stores
            .all
            .iter()
            .filter(|one| !one.name.starts_with("wrapped"))
        {
            let case = format!("{}, {algorithm:?}", one.name);
            for round in 0..40 {
                let decision = ask(&*one.store, &rules[0], most).await;
                assert!(decision.is_allowed(), "{case} {round}: {decision:?}");
                one.advance(millis(2));
                for denied in [1, 2, 3] {
                    let decision = ask(&*one.store, &rules[denied], 1).await;
                    let is_free = denied == 3 && algorithm == Algorithm::FixedWindow;
                    let may_pass = is_free || algorithm == Algorithm::Gcra;
                    let is_right = may_pass || !decision.is_allowed();
                    assert!(is_right, "{case} {round}, plan {denied}: {decision:?}");
                }
                one.advance(millis(1));
            }
            let wait = ask(&*one.store, &rules[1], 1).await.retry_after();
            let wait = wait.unwrap_or_else(|| panic!("{case}: it is denied"));
            assert!(wait <= 2 * Quota::MAX_WINDOW, "{case}: {wait:?}");
            one.advance(wait);
            let then = ask(&*one.store, &rules[1], 1).await;
            assert!(then.is_allowed(), "{case}: {then:?}");
            one.advance(3 * Quota::MAX_WINDOW / 100);
        }
    }
    let ten_years = Quota::MAX_WINDOW.as_millis() as i64;
    for key in keys(&stores.server, "*") {
        let life: i64 = stores.server.connection().pttl(&key).expect("a time");
        let is_bounded = (0..=ten_years / 8 * 9 + 10_000).contains(&life);
        assert!(is_bounded, "law 4: {key} {life}");
    }
}
