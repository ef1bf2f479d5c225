//! Mistakes in the plans of a file: each is an error that names the key and the line.

use super::*;

const RULE: &str = "[rules.p]\nmax-count = 5\nwindow = \"1m\"\n";

/// A file whose text behind line 3 is this.
fn rules(text: &str) -> Result<Rules, ConfigError> {
    Rules::from_toml(&format!("{RULE}{text}\n"))
}

/// The mistake is in this line, under this key.
fn check_mistake(text: &str, lines: std::ops::RangeInclusive<usize>, key: &str) {
    let said = match rules(text) {
        Ok(rules) => panic!("{text:?} is no mistake: {:?}", rules.get("p")),
        Err(error) => {
            let is_there = error.line().is_some_and(|it| lines.contains(&it));
            let names_it = error.key().is_some_and(|it| it.starts_with(key));
            assert!(is_there && names_it, "{text:?}: {error}");
            error.to_string()
        }
    };
    let is_one_line = said.lines().count() == 1 && !said.chars().any(char::is_control);
    let is_short = said.chars().count() < 600;
    assert!(is_one_line && is_short, "{text:?}: {said:?}");
}

#[test]
fn mistakes_of_plans() {
    const PRO: &str = "[rules.p.plans.pro]\n";
    let window = "window = \"1m\"";
    // What follows the table of a plan, and the line of the mistake.
    for (text, line) in [
        ("", 4),
        ("max-count = 1", 5),
        (window, 5),
        ("max-count = -1\nwindow = \"1m\"", 5),
        ("max-count = \"1\"\nwindow = \"1m\"", 5),
        ("max-count = 1\nwindow = \"0s\"", 6),
        ("max-count = 1\nwindow = \"11000d\"", 6),
        ("quotas = []", 4),
        ("max-count = 1\nwindow = \"1m\"\nburst = 0", 7),
    ] {
        check_mistake(&format!("{PRO}{text}"), line..=line, "rules.p.plans.pro");
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
        let text = format!("{PRO}max-count = 1\n{window}\n{word}");
        check_mistake(&text, 7..=7, "rules.p.plans.pro");
    }
    let no_name = "[rules.p.plans.\"\"]\nmax-count = 1\nwindow = \"1m\"";
    check_mistake(no_name, 4..=4, "rules.p.plans");
    check_mistake("[rules.p.plans]\npro = 5", 5..=5, "rules.p.plans.pro");
    check_mistake("plans = 5", 4..=4, "rules.p.plans");
    // A list beside a quota, two quotas of one window, two of one name.
    for quotas in [
        "max-count = 1\nwindow = \"1m\"\nquotas = [{ max-count = 1, window = \"1m\" }]",
        "quotas = [{ max-count = 1, window = \"60s\" }, { max-count = 2, window = \"1m\" }]",
        "quotas = [{ max-count = 1, window = \"1s\", name = \"n\" }, \
         { max-count = 2, window = \"1m\", name = \"n\" }]",
    ] {
        check_mistake(&format!("{PRO}{quotas}"), 4..=7, "rules.p.plans.pro");
    }
}

/// More quotas than a rule may have.
#[test]
fn seventeen_quotas() {
    let of = |number: usize| {
        let list = (1..=number).map(|at| format!("{{ max-count = 1, window = \"{at}s\" }}"));
        let list = list.collect::<Vec<_>>().join(", ");
        format!("[rules.p.plans.pro]\nquotas = [{list}]")
    };
    assert!(rules(&of(16)).is_ok());
    check_mistake(&of(17), 4..=4, "rules.p.plans.pro");
    let seventeen = Quotas::new((1..=17).map(|at| quota((1, at * HOUR))));
    assert!(matches!(seventeen, Err(RuleError::NumberOfQuotas(17))));
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
    let reload = |text: String| {
        std::fs::write(&file, text).expect("is written");
        let reloaded = limits.reload(&file).map(drop).map_err(|it| it.to_string());
        let rules = limits.rules().load();
        let pro = rules.get("p").expect("a rule").of_plan("pro");
        (reloaded, pro.map(|pro| pro.quotas()[0].max()))
    };
    let (reloaded, max) = reload(plan(-7));
    let error = reloaded.expect_err("a mistake");
    assert!(error.contains("rules.p.plans.pro.max-count"), "{error}");
    assert_eq!(max, Some(7));
    // Nothing but a plan changes, and then only its name.
    assert_eq!(reload(plan(9)), (Ok(()), Some(9)));
    assert_eq!(reload(plan(9).replace("pro", "max")), (Ok(()), None));
}

/// In code: no name, one name twice, a window that a lease makes too long.
#[test]
fn mistakes_in_code() {
    let rule = || of_own("p", &[(1, HOUR)]);
    let with = |rule: Rule, name, window| rule.with_plan(name, quotas(&[(1, window)]));
    let unnamed = with(rule(), "", HOUR);
    assert!(matches!(unnamed, Err(RuleError::EmptyPlan)));
    let twice = with(with(rule(), "pro", HOUR).expect("valid"), "pro", HOUR);
    assert!(matches!(twice, Err(RuleError::SamePlan(_))));
    let leased = |rule: Rule| rule.with_lease(millis(50));
    let after = with(leased(rule()).expect("valid"), "pro", Quota::MAX_WINDOW);
    assert!(matches!(after, Err(RuleError::LeaseTooLong)), "{after:?}");
    let before = leased(with(rule(), "pro", Quota::MAX_WINDOW).expect("valid"));
    assert!(matches!(before, Err(RuleError::LeaseTooLong)), "{before:?}");
}
