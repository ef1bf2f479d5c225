//! Rules with leases: values at their ends, in code and in files.

use tidegate::rule::RuleError;

use crate::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn of(windows: &[Duration]) -> Rule {
    let quotas = windows
        .iter()
        .map(|window| Quota::new(*window, 10).expect("valid"));
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
        for algorithm in super::LEASED {
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
    for algorithm in super::LEASED {
        for windows in [&[Quota::MAX_WINDOW][..], &[SECOND, Quota::MAX_WINDOW]] {
            for lease in [Duration::ZERO, millis(50), Duration::MAX] {
                match of(windows).with_algorithm(algorithm).with_lease(lease) {
                    Ok(rule) => {
                        let lease = rule.lease().unwrap_or_default();
                        let is_fixed = algorithm == Algorithm::FixedWindow;
                        let is_right = is_fixed || lease == Duration::ZERO;
                        assert!(is_right, "{lease:?} is not counted");
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
    let twice = rule()
        .with_lease(HOUR)
        .expect("leases")
        .with_lease(millis(30))
        .expect("leases");
    assert_eq!(twice.lease(), Some(millis(30)));
    let off = twice.with_lease(Duration::ZERO).expect("no leases");
    assert_eq!((off.lease(), off.quotas()[0].window()), (None, 10 * SECOND));
    for algorithm in Algorithm::ALL {
        let other = rule()
            .with_lease(millis(30))
            .expect("leases")
            .with_algorithm(algorithm);
        assert_eq!(other.lease(), None, "{algorithm:?}");
        assert_eq!(other.quotas()[0].window(), 10 * SECOND, "{algorithm:?}");
    }
    let gcra = rule()
        .with_algorithm(Algorithm::Gcra)
        .with_lease(millis(30));
    let error = gcra.expect_err("no leases");
    assert_eq!(error, RuleError::NoLeases("gcra"));
    assert!(error.to_string().contains("gcra"));
    let candidate = rule().with_lease(millis(20)).expect("leases");
    let all = rule()
        .with_lease(millis(30))
        .expect("leases")
        .with_prefix("other:")
        .with_cost(3)
        .with_shadow(candidate)
        .into_shadow();
    assert_eq!(all.lease(), Some(millis(30)));
    assert_eq!(all.quotas()[0].window(), 10 * SECOND);
    // A copy of the rule is the same rule.
    assert_eq!(all.clone().lease(), Some(millis(30)));
}

/// A file that cannot be right says which line and key is wrong, and why; a reload with it keeps
/// the rules.
#[test]
fn files() {
    let text = |lease: &str, algorithm: &str| {
        format!(
            "[rules.feed]\nmax-count = 10\nwindow = \"1s\"\nalgorithm = \"{algorithm}\"\nlease = {lease}\n"
        )
    };
    for algorithm in super::LEASED {
        for (lease, effective) in [
            ("\"50ms\"", Some(millis(20))),
            ("\"1ms\"", Some(millis(1))),
            ("\"1d\"", Some(millis(20))),
            ("\"584000years\"", Some(millis(20))),
        ] {
            let rules = Rules::from_toml(&text(lease, algorithm.name())).expect("valid");
            let told = rules.get("feed").expect("a rule").lease();
            assert_eq!(told, effective, "{lease}");
        }
    }
    let limits = Limits::from_toml(&text("\"10ms\"", "sliding-log")).expect("valid");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    for (lease, algorithm) in [
        ("\"50ms\"", "gcra"),
        ("\"0s\"", "gcra"),
        ("\"-5ms\"", "sliding-log"),
        ("\"\"", "sliding-log"),
        ("50", "sliding-log"),
        ("true", "sliding-log"),
        ("[\"50ms\"]", "sliding-log"),
        ("\"a while\"", "sliding-log"),
        ("\"99999999999999999999s\"", "sliding-log"),
    ] {
        let text = text(lease, algorithm);
        let Err(error) = Rules::from_toml(&text) else {
            let rules = Rules::from_toml(&text).expect("valid");
            let rule = rules.get("feed").expect("a rule");
            assert_eq!((lease, rule.lease()), ("\"0s\"", None), "{text}");
            continue;
        };
        let error = error.to_string();
        assert!(error.contains("line 5"), "{error}");
        assert!(error.contains("rules.feed.lease"), "{error}");
        std::fs::write(&file, &text).expect("is written");
        limits.reload(&file).expect_err("not valid");
        let rules = limits.rules().load();
        assert_eq!(rules.get("feed").expect("a rule").lease(), Some(millis(10)));
    }
    let shadow = format!(
        "{}[rules.feed.shadow]\nmax-count = 3\nwindow = \"1s\"\nlease = \"5ms\"\n",
        text("\"10ms\"", "sliding-log")
    );
    println!(
        "{:?}",
        Rules::from_toml(&shadow)
            .map(|rules| rules.get("feed").and_then(|rule| rule.shadow()?.lease()))
    );
    let ten_years = "[rules.feed]\nmax-count = 10\nwindow = \"10years\"\nlease = \"50ms\"\n";
    let error = Rules::from_toml(ten_years)
        .expect_err("too long")
        .to_string();
    let is_right = error.contains("rules.feed.lease") && error.contains("line 4");
    assert!(is_right, "{error}");
}
