//! Mistakes in the plans of a file: each is an error that names the key and the line.

use tidegate::config::ConfigError;
use tidegate::rule::{Quotas, RuleError};
use tidegate::{Limits, Quota, Rule, Rules};

use super::{of_own, quotas};
use kit::HOUR;

const RULE: &str = "[rules.p]\nmax-count = 5\nwindow = \"1m\"\n";

/// A file whose text behind line 3 is this.
fn rules(text: &str) -> Result<Rules, ConfigError> {
    Rules::from_toml(&format!("{RULE}{text}\n"))
}

/// The mistake is in this line, under this key.
fn check_mistake(text: &str, line: usize, key: &str) {
    let error = match rules(text) {
        Ok(rules) => panic!("{text:?} is no mistake: {:?}", rules.get("p")),
        Err(error) => error,
    };
    let said = error.to_string();
    println!("{said}");
    assert_eq!(error.line(), Some(line), "{text:?}: {said}");
    assert!(
        error.key().is_some_and(|it| it.starts_with(key)),
        "{text:?}: {said}"
    );
    let is_one_line = said.lines().count() == 1 && !said.chars().any(char::is_control);
    assert!(
        is_one_line && said.chars().count() < 600,
        "{text:?}: {said:?}"
    );
}

#[test]
fn mistakes_of_plans() {
    let window = "window = \"1m\"";
    let pro = "rules.p.plans.pro";
    for (text, line, key) in [
        (
            "[rules.p.plans.\"\"]\nmax-count = 1\nwindow = \"1m\"",
            4,
            "rules.p.plans",
        ),
        ("[rules.p.plans.pro]", 4, pro),
        ("[rules.p.plans.pro]\nmax-count = 1", 5, pro),
        (&*format!("[rules.p.plans.pro]\n{window}"), 4, pro),
        (
            &*format!("[rules.p.plans.pro]\nmax-count = -1\n{window}"),
            5,
            pro,
        ),
        (
            &*format!("[rules.p.plans.pro]\nmax-count = \"1\"\n{window}"),
            5,
            pro,
        ),
        (
            "[rules.p.plans.pro]\nmax-count = 1\nwindow = \"0s\"",
            6,
            pro,
        ),
        (
            "[rules.p.plans.pro]\nmax-count = 1\nwindow = \"11000d\"",
            6,
            pro,
        ),
        ("[rules.p.plans.pro]\nquotas = []", 4, pro),
        ("[rules.p.plans]\npro = 5", 5, pro),
        (
            &*format!("[rules.p.plans.pro]\nmax-count = 1\n{window}\nburst = 0"),
            7,
            pro,
        ),
    ] {
        check_mistake(text, line, key);
    }
    for word in [
        "algorithm = \"gcra\"",
        "sub-windows = 4",
        "lease = \"1ms\"",
        "cost = 2",
        "key = \"everyone\"",
        "on-error = \"proceed\"",
        "enabled = false",
        "shadow = true",
        "prefix = \"x\"",
        "plans = {}",
        "maxcount = 3",
        "\"odd \\u0000 key\" = 3",
    ] {
        let text = format!("[rules.p.plans.pro]\nmax-count = 1\n{window}\n{word}");
        check_mistake(&text, 7, pro);
    }
    let error = Rules::from_toml(&format!("{RULE}plans = 5\n")).expect_err("a mistake");
    assert_eq!(
        (error.line(), error.key()),
        (Some(4), Some("rules.p.plans")),
        "{error}"
    );
    // A list beside a quota, two quotas of one window, two of one name.
    for quotas in [
        "max-count = 1\nwindow = \"1m\"\nquotas = [{ max-count = 1, window = \"1m\" }]",
        "quotas = [{ max-count = 1, window = \"60s\" }, { max-count = 2, window = \"1m\" }]",
        "quotas = [{ max-count = 1, window = \"1s\", name = \"n\" }, \
         { max-count = 2, window = \"1m\", name = \"n\" }]",
    ] {
        let error = rules(&format!("[rules.p.plans.pro]\n{quotas}")).expect_err("a mistake");
        println!("{error}");
        assert!(
            error.line().is_some_and(|line| (4..=7).contains(&line)),
            "{error}"
        );
        assert!(
            error.key().is_some_and(|key| key.starts_with(pro)),
            "{error}"
        );
    }
}

/// More quotas than a rule may have.
#[test]
fn seventeen_quotas() {
    let list: Vec<_> = (1..=17)
        .map(|at| format!("{{ max-count = 1, window = \"{at}s\" }}"))
        .collect();
    let of = |number: usize| {
        format!(
            "[rules.p.plans.pro]\nquotas = [{}]",
            list[..number].join(", ")
        )
    };
    assert!(rules(&of(16)).is_ok());
    check_mistake(&of(17), 4, "rules.p.plans.pro");
    let seventeen = (1..=17).map(|at| Quota::new(at * HOUR, 1).expect("valid"));
    assert!(matches!(
        Quotas::new(seventeen),
        Err(RuleError::NumberOfQuotas(17))
    ));
    assert!(matches!(Quotas::new([]), Err(RuleError::NumberOfQuotas(0))));
}

/// A bad reload keeps the plans that were there, and says why.
#[test]
fn a_bad_reload_keeps_the_plans() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let plan =
        |max: i32| format!("{RULE}[rules.p.plans.pro]\nmax-count = {max}\nwindow = \"1m\"\n");
    std::fs::write(&file, plan(7)).expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let max = || {
        let rules = limits.rules().load();
        let pro = rules.get("p").expect("a rule").of_plan("pro");
        pro.map(|pro| pro.quotas()[0].max())
    };
    std::fs::write(&file, plan(-7)).expect("is written");
    let error = limits.reload(&file).expect_err("a mistake");
    assert!(
        error.to_string().contains("rules.p.plans.pro.max-count"),
        "{error}"
    );
    assert_eq!(max(), Some(7));
    // Nothing but a plan changes, and then only its name.
    std::fs::write(&file, plan(9)).expect("is written");
    limits.reload(&file).expect("valid");
    assert_eq!(max(), Some(9));
    std::fs::write(&file, plan(9).replace("pro", "max")).expect("is written");
    limits.reload(&file).expect("valid");
    assert_eq!(max(), None);
}

/// In code: no name, one name twice, a window that a lease makes too long.
#[test]
fn mistakes_in_code() {
    let one = || quotas(&[(1, HOUR)]);
    let rule = || of_own("p", &[(1, HOUR)]);
    assert!(matches!(
        rule().with_plan("", one()),
        Err(RuleError::EmptyPlan)
    ));
    let twice = rule()
        .with_plan("pro", one())
        .expect("valid")
        .with_plan("pro", one());
    assert!(matches!(twice, Err(RuleError::SamePlan(_))));
    let long = || quotas(&[(1, Quota::MAX_WINDOW)]);
    let leased = |rule: Rule| rule.with_lease(std::time::Duration::from_millis(50));
    let after = leased(rule()).expect("valid").with_plan("pro", long());
    assert!(matches!(after, Err(RuleError::LeaseTooLong)), "{after:?}");
    let before = leased(rule().with_plan("pro", long()).expect("valid"));
    assert!(matches!(before, Err(RuleError::LeaseTooLong)), "{before:?}");
}

/// A cost above what a plan has at once: the file is refused, or the plan says never.
#[tokio::test]
async fn a_cost_above_the_max_of_a_plan() {
    let text = "cost = 5\n[rules.p.plans.small]\nmax-count = 4\nwindow = \"1m\"";
    match Limits::from_toml(&format!("{RULE}{text}\n")) {
        Err(error) => println!("{error}"),
        Ok(limits) => {
            let refused = limits
                .check("p", "x")
                .plan("small")
                .await
                .expect_err("never");
            assert_eq!(refused.retry_after(), None);
            assert!(limits.check("p", "x").await.is_ok());
        }
    }
}
