//! Rules with leases: values at their ends, in code and in files.

use crate::prelude::*;

fn of(windows: &[Duration]) -> Rule {
    let quotas = windows.iter().map(|window| kit::quota(10, *window));
    Rule::new("rule", quotas).expect("valid")
}

/// The lease in effect is min(lease, shortest window / 50) in whole milliseconds, at every end.
#[test]
fn leases_at_their_ends() {
    let cases = [
        (Duration::ZERO, HOUR, None),
        (Duration::from_nanos(1), HOUR, None),
        (Duration::from_micros(999), HOUR, None),
        (Duration::from_micros(1_999), HOUR, Some(millis(1))),
        (millis(50), HOUR, Some(millis(50))),
        (Duration::MAX, HOUR, Some(HOUR / 50)),
        (Duration::MAX, millis(49), None),
        (Duration::MAX, millis(50), Some(millis(1))),
        (millis(20), SECOND, Some(millis(20))),
        (millis(21), SECOND, Some(millis(20))),
    ];
    for (lease, window, effective) in cases {
        for algorithm in LEASED {
            let rule = of(&[window, 7 * window]).with_algorithm(algorithm);
            let rule = rule.with_lease(lease).expect("leases");
            assert_eq!(rule.lease(), effective, "{lease:?} of {window:?}");
            for (at, window) in [window, 7 * window].into_iter().enumerate() {
                assert_eq!(rule.policies()[at].quota().window(), window);
                assert_eq!(rule.quotas()[at].window(), window);
                assert_eq!(rule.quotas()[at].max(), 10);
            }
        }
    }
}

/// Windows of ten years cannot be longer: an error, and not a panic or a lease that is not counted.
#[test]
fn windows_of_ten_years() {
    for algorithm in LEASED {
        for windows in [&[Quota::MAX_WINDOW][..], &[SECOND, Quota::MAX_WINDOW]] {
            for lease in [Duration::ZERO, millis(50), Duration::MAX] {
                match of(windows).with_algorithm(algorithm).with_lease(lease) {
                    Ok(rule) => {
                        let lease = rule.lease().unwrap_or_default();
                        let is_fixed = algorithm == Algorithm::FixedWindow;
                        assert!(is_fixed || lease == Duration::ZERO, "{lease:?}");
                    }
                    Err(error) => assert_eq!(error, RuleError::LeaseTooLong),
                }
            }
        }
    }
}

/// The last setting counts, once; another algorithm ends leases, and GCRA has none.
#[test]
fn settings_that_follow_each_other() {
    let rule = || of(&[10 * SECOND]);
    let leasing = |rule: Rule, lease| rule.with_lease(lease).expect("leases");
    let twice = leasing(leasing(rule(), HOUR), millis(30));
    assert_eq!(twice.lease(), Some(millis(30)));
    let off = leasing(twice, Duration::ZERO);
    assert_eq!((off.lease(), off.quotas()[0].window()), (None, 10 * SECOND));
    for algorithm in Algorithm::ALL {
        let other = leasing(rule(), millis(30)).with_algorithm(algorithm);
        assert_eq!(other.lease(), None, "{algorithm:?}");
        assert_eq!(other.quotas()[0].window(), 10 * SECOND, "{algorithm:?}");
    }
    let gcra = rule().with_algorithm(Algorithm::Gcra);
    let error = gcra.with_lease(millis(30)).expect_err("no leases");
    assert_eq!(error, RuleError::NoLeases("gcra"));
    assert!(error.to_string().contains("gcra"));
    let all = leasing(rule(), millis(30)).with_prefix("other:");
    let all = all.with_cost(3).with_shadow(leasing(rule(), millis(20)));
    let all = all.into_shadow();
    assert_eq!(all.lease(), Some(millis(30)));
    assert_eq!(all.quotas()[0].window(), 10 * SECOND);
    // A copy of the rule is the same rule.
    assert_eq!(all.clone().lease(), Some(millis(30)));
}

/// A wrong file says which line and key is wrong, and why; a reload with it keeps the rules.
#[test]
fn files() {
    let text = |lease: &str, algorithm: &str| {
        let rule = "[rules.feed]\nmax-count = 10\nwindow = \"1s\"";
        format!("{rule}\nalgorithm = \"{algorithm}\"\nlease = {lease}\n")
    };
    for algorithm in LEASED {
        for (lease, effective) in [("50ms", 20), ("1ms", 1), ("1d", 20), ("213000000d", 20)] {
            let text = text(&format!("{lease:?}"), algorithm.name());
            let rules = Rules::from_toml(&text).expect("valid");
            let told = rules.get("feed").expect("a rule").lease();
            assert_eq!(told, Some(millis(effective)), "{lease}");
        }
    }
    let limits = Limits::from_toml(&text("\"10ms\"", "sliding-log")).expect("valid");
    let file = kit::LimitsFile::new("");
    let words = ["50ms", "0s", "-5ms", "", "a while", "99999999999999999999s"];
    let words = words.map(|lease| format!("{lease:?}"));
    let others = ["50", "true", "[\"50ms\"]"].map(str::to_owned);
    for (at, lease) in words.iter().chain(&others).enumerate() {
        let text = text(lease, if at < 2 { "gcra" } else { "sliding-log" });
        let Err(error) = Rules::from_toml(&text) else {
            let rules = Rules::from_toml(&text).expect("valid");
            let rule = rules.get("feed").expect("a rule");
            assert_eq!((&**lease, rule.lease()), ("\"0s\"", None), "{text}");
            continue;
        };
        let error = error.to_string();
        let is_right = error.contains("line 5") && error.contains("rules.feed.lease");
        assert!(is_right, "{error}");
        file.write(&text);
        limits.reload(&file.path).expect_err("not valid");
        let rules = limits.rules().load();
        assert_eq!(rules.get("feed").expect("a rule").lease(), Some(millis(10)));
    }
    // A candidate's lease is read or refused, and is no panic.
    let shadow = "[rules.feed.shadow]\nmax-count = 3\nwindow = \"1s\"\nlease = \"5ms\"\n";
    let _ = Rules::from_toml(&(text("\"10ms\"", "sliding-log") + shadow));
    let ten_years = "[rules.feed]\nmax-count = 10\nwindow = \"3652d 12h\"\nlease = \"50ms\"\n";
    let error = Rules::from_toml(ten_years)
        .expect_err("too long")
        .to_string();
    let is_right = error.contains("rules.feed.lease") && error.contains("line 4");
    assert!(is_right, "{error}");
}
