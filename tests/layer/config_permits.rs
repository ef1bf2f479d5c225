//! `max-concurrent` in files: what it means, also in plans and of subjects.

use crate::config_subjects::{of_api, shown};
use crate::*;

/// Limits of a text whose table `[rules.api]` has these lines, in which `MAX` stands for
/// `max-count = 5, window = "1s"`.
fn limits(lines: &str) -> Limits {
    of_api(&lines.replace("MAX", "max-count = 5, window = \"1s\""))
}

fn rule(lines: &str) -> Arc<Rule> {
    Arc::clone(limits(lines).rules().load().get("api").expect("a rule"))
}

const PER_MINUTE: &str = "max-count = 60\nwindow = \"1m\"\n";

/// What the lines of a rule mean, or of its plan, which stand behind a slash. Lines are divided by
/// semicolons.
#[test]
fn what_lines_mean() {
    for case in [
        "max-concurrent = 4 -> none: api 4 at a time",
        "max-concurrent = 0 -> none: api 0 at a time",
        "SIXTY; max-concurrent = 4 -> none: api-1m 60 per 1m, none: api-concurrent 4 at a time",
        "quotas = [{ max-count = 60, window = '1m' }, { max-concurrent = 4 }] \
         -> none: api-1m 60 per 1m, none: api-concurrent 4 at a time",
        "quotas = [{ max-concurrent = 4, name = 'at once', hidden = true }] \
         -> none: at once 4 at a time hidden",
        // Of subjects.
        "quotas = [{ MAX, key = 'client-ip' }, \
         { max-concurrent = 4, key = 'bearer', subject = 'org', hidden = true }] \
         -> client-ip: api-client-ip 5 per 1s, org: api-org 4 at a time hidden",
        // That of the rule is of the rule's key, although no quota is.
        "key = 'bearer'; max-concurrent = 4; quotas = [{ MAX, key = 'client-ip' }] \
         -> client-ip: api-client-ip 5 per 1s, bearer: api-bearer 4 at a time",
        "max-concurrent = 4; quotas = [{ MAX }, { MAX, key = 'client-ip' }] \
         -> key: api-key-1s 5 per 1s, key: api-key-concurrent 4 at a time, \
         client-ip: api-client-ip 5 per 1s",
        // The only key is that of the rule, wherever it stands.
        "max-concurrent = 4; quotas = [{ MAX, key = 'bearer', subject = 'user' }] \
         -> none: api-1s 5 per 1s, none: api-concurrent 4 at a time",
        // A rule of one subject has it, whether its key is said in the rule or in the quota.
        "quotas = [{ MAX, key = 'bearer' }] / SEVEN -> none: api 7 per 1s",
        "quotas = [{ MAX, subject = 'user' }] / SEVEN -> none: api 7 per 1s",
        "quotas = [{ MAX, key = 'bearer', subject = 'user' }] / SEVEN -> none: api 7 per 1s",
        "key = 'bearer'; FIFTY / quotas = [{ MAX, subject = 'bearer' }] -> none: api 5 per 1s",
        "key = 'bearer'; FIFTY / quotas = [{ MAX, key = 'bearer', hidden = true }] \
         -> none: api 5 per 1s hidden",
        // Of plans.
        "JOINT / quotas = [{ max-concurrent = 8, key = 'bearer' }] \
         -> bearer: api-bearer 8 at a time, key: api-key 5 per 1s",
        "JOINT / max-concurrent = 8 -> key: api-key-concurrent 8 at a time, \
         key: api-key 5 per 1s, bearer: api-bearer 4 at a time",
        "SIXTY / max-concurrent = 9; SEVEN \
         -> none: api-1s 7 per 1s, none: api-concurrent 9 at a time",
        "max-concurrent = 1 / max-concurrent = 9; SEVEN \
         -> none: api-1s 7 per 1s, none: api-concurrent 9 at a time",
        // What a plan does not say stays.
        "SIXTY; max-concurrent = 4 / SEVEN \
         -> none: api-1s 7 per 1s, none: api-concurrent 4 at a time",
        "SIXTY; max-concurrent = 4 / max-concurrent = 9 \
         -> none: api-concurrent 9 at a time, none: api-1m 60 per 1m",
        "SIXTY / max-concurrent = 9 -> none: api-concurrent 9 at a time, none: api 60 per 1m",
        "max-concurrent = 4 / SEVEN -> none: api-1s 7 per 1s, none: api 4 at a time",
        // Unless the plan says that it goes.
        "SIXTY; max-concurrent = 4 / SEVEN; unlimited = ['max-concurrent'] \
         -> none: api 7 per 1s",
        "SIXTY; max-concurrent = 4 / max-concurrent = 9; unlimited = ['max-count'] \
         -> none: api 9 at a time",
        "quotas = [{ MAX, key = 'bearer' }, { max-concurrent = 4, key = 'bearer' }, \
         { max-concurrent = 2, key = 'method' }, { MAX, key = 'method' }] \
         / quotas = [{ max-count = 7, window = '1s', key = 'bearer' }] \
         -> bearer: api-bearer-1s 7 per 1s, bearer: api-bearer-concurrent 4 at a time, \
         method: api-method-concurrent 2 at a time, method: api-method-1s 5 per 1s",
    ] {
        let (lines, expected) = case.split_once(" -> ").expect("a meaning");
        let lines = lines
            .replace("SIXTY", "max-count = 60; window = '1m'")
            .replace("FIFTY", "max-count = 50; window = '1s'")
            .replace("SEVEN", "max-count = 7; window = '1s'")
            .replace("JOINT", "quotas = [{ MAX }, { FOUR, key = 'bearer' }]")
            .replace("FOUR", "max-concurrent = 4")
            .replace(" / ", "; [rules.api.plans.pro]; ");
        let rule = rule(&lines.replace("; ", "\n"));
        let is_plain = expected.starts_with("none");
        assert_eq!(rule.subjects().is_empty(), is_plain, "{case}");
        let meant = rule.of_plan("pro").unwrap_or(rule);
        assert_eq!(shown(&meant).replace('\n', ", "), expected, "{case}");
    }
}

#[test]
fn of_a_rule() {
    let keyed = format!("{:?}", rule("key = \"bearer\"\nmax-concurrent = 4"));
    assert!(keyed.contains("Some(bearer)"));
    let plain = rule("max-concurrent = 4");
    assert_eq!(plain.permit_lease(), Rule::DEFAULT_PERMIT_LEASE);
    assert_eq!(plain.busy_retry(), Rule::DEFAULT_BUSY_RETRY);
    let told = rule("max-concurrent = 4\npermit-lease = \"20s\"\nbusy-retry-after = \"250ms\"");
    assert_eq!(told.permit_lease(), Duration::from_secs(20));
    assert_eq!(told.busy_retry(), kit::millis(250));
    // Also where only a plan holds permits.
    rule(&format!(
        "{PER_MINUTE}permit-lease = \"15s\"\nplans = {{ pro = {{ max-concurrent = 4 }} }}"
    ));
    // A plan may have a quota where the rule itself has none.
    rule("max-concurrent = 4\ncost = 2\n[rules.api.plans.pro]\nmax-count = 7\nwindow = \"1s\"");
}

/// What a customer bought of a rule does not lift how many of its requests run at a time.
#[tokio::test]
async fn a_plan_without_permits_keeps_those_of_the_rule() {
    let limits = limits(&format!("{PER_MINUTE}max-concurrent = 1"));
    let more = Quotas::new([Quota::per_minute(600)]).expect("valid");
    let lifted = more.clone().unlimited(["max-concurrent"]);
    let check = |plan: &Quotas| {
        let plan = Plan::from(plan.clone());
        limits.check("api", Key::default()).plan_value(plan)
    };
    let _held = check(&more).await.expect("the first");
    let refused = check(&more).await.expect_err("one runs");
    assert!(refused.decision().is_some_and(Decision::is_busy));
    check(&lifted).await.expect("any number may run");
}

/// The counts of a rule that gets or loses a max of requests at a time go on.
#[tokio::test]
async fn a_reload_keeps_counts_and_names_none() {
    let (log, file) = (Log::start(), LimitsFile::new(""));
    let limits = of_toml("");
    let joint = "quotas = [{ MAX }, { MAX, key = \"method\" }";
    let with = |key| format!("{joint}, {{ max-concurrent = 4, {key} }}]");
    for (lines, expected) in [
        ("MAX", false),
        ("MAX\nmax-concurrent = 4", false),
        ("MAX\nplans.pro.max-concurrent = 4", false),
        ("max-concurrent = 4", false),
        ("MAX", false),
        // The names of its subjects.
        (&format!("{joint}]"), true),
        (&with("key = 'method'"), false),
        (&with("key = 'everyone', subject = 'all'"), false),
        (&format!("{joint}]\nmax-concurrent = 4"), false),
        (&format!("{joint}]"), false),
    ] {
        let max = ["max-count = 9", "window = \"1h\""];
        let max = max.join(if lines.starts_with("MAX") { "\n" } else { ", " });
        file.reload(
            &limits,
            format!("[rules.api]\n{}", lines.replace("MAX", &max)),
        );
        let begins_anew = log.lines().iter().any(|line| line.contains("begin anew"));
        assert_eq!(begins_anew, expected, "{lines}");
    }
}
