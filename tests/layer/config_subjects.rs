//! Quotas of a file that have a key, a subject or a cost of their own.

use crate::*;

/// The rule of a text whose table `[rules.api]` has these lines, in which `MAX` stands for
/// `max-count = 5, window`.
fn rule(lines: &str) -> Arc<Rule> {
    let lines = lines.replace("MAX", "max-count = 5, window");
    Arc::clone(of_api(&lines).rules().load().get("api").expect("a rule"))
}

/// Limits of a text whose table `[rules.api]` has these lines.
pub(crate) fn of_api(lines: &str) -> Limits {
    let trust = match lines.contains("client-ip") {
        true => "client-ip = { hops = 1 }\n",
        false => "",
    };
    of_toml(&format!("{trust}[rules.api]\n{lines}"))
}

/// The quotas of a rule: the subject of each, its name and what else was said of it.
pub(crate) fn shown(rule: &Rule) -> String {
    let policies = rule.policies().iter().map(|policy| {
        let subject = policy.subject().unwrap_or("none");
        let cost = policy.cost().map(|cost| format!(" at {cost}"));
        let cost = cost.unwrap_or_default();
        let hidden = if policy.is_hidden() { " hidden" } else { "" };
        let quota = match policy.is_concurrent() {
            true => format!("{} at a time", policy.quota().max()),
            false => policy.quota().to_string(),
        };
        format!("{subject}: {} {quota}{cost}{hidden}", policy.name())
    });
    policies.collect::<Vec<_>>().join("\n")
}

/// The quotas of the plan `pro` of a rule with these lines.
fn of_plan(lines: &str) -> String {
    shown(&rule(lines).of_plan("pro").expect("a plan"))
}

const API: &str = r#"
quotas = [
  { max-count = 10,    window = "1s", key = "bearer", absent = "skip" },
  { max-count = 500,   window = "1h", subject = "bearer" },
  { max-count = 100,   window = "1m", key = "client-ip", subject = "address", hidden = true },
  { max-count = 5_000, window = "1s", key = "everyone" },
]
"#;

#[test]
fn quotas_of_one_key_are_one_subject() {
    insta::assert_snapshot!(shown(&rule(API)), @"
    bearer: api-bearer-1s 10 per 1s
    bearer: api-bearer-1h 500 per 1h
    address: api-address 100 per 1m hidden
    everyone: api-everyone 5000 per 1s
    ");
    // What is said of the rule, and its subjects; lines are divided by semicolons.
    for case in [
        // Without a key: the rule's own.
        "key = 'bearer'; quotas = [{ MAX = '1s' }, { MAX = '1m', key = 'everyone' }] \
         -> bearer / everyone",
        // Its own key by its text, and by a name that no other has.
        "key = 'bearer | client-ip'; quotas = [{ MAX = '1h' }, { MAX = '1m', key = 'method' }, \
         { MAX = '1s', key = 'bearer|client-ip', subject = 'user' }] -> user / method",
        "quotas = [{ MAX = '1s', subject = 'all' }, { MAX = '1m', key = 'bearer' }] \
         -> bearer / all",
        // A list, and a field in capitals.
        "quotas = [{ MAX = '1s' }, { MAX = '1m', key = ['client-ip', 'header:X-Tenant'] }, \
         { MAX = '1h', key = ['client-ip', 'header:x-tenant'] }] \
         -> key / client-ip, header:x-tenant",
        // One address by two sizes of its network.
        "quotas = [{ MAX = '1s', key = 'client-ip/64' }, { MAX = '1m', key = 'client-ip/48' }, \
         { MAX = '1m', key = 'bearer | client-ip/24/48' }] \
         -> client-ip/64 / client-ip/48 / bearer | client-ip/24/48",
        // One at two costs.
        "quotas = [{ MAX = '1m', cost = 1 }, { MAX = '1s' }] -> key",
    ] {
        let (lines, expected) = case.split_once(" -> ").expect("subjects");
        let lines = &*lines.replace("; ", "\n");
        let rule = rule(lines);
        let names = rule.subjects().iter().map(|it| it.name().to_owned());
        let names = names.collect::<Vec<_>>().join(" / ");
        assert_eq!(names, expected, "{case}");
    }
}

/// The names in Redis stay those of before.
#[test]
fn a_rule_of_one_subject_is_plain() {
    for quotas in [
        "key = \"bearer\"\nquotas = [{ MAX = \"1s\" }]",
        "quotas = [{ MAX = \"1s\", key = \"bearer\", subject = \"user\" }]",
        "key = \"bearer\"\nquotas = [{ MAX = \"1s\", subject = \"user\" }]",
    ] {
        let plain = rule(quotas);
        assert!(plain.subjects().is_empty(), "{quotas}");
        assert_eq!(shown(&plain), "none: api 5 per 1s");
        let debug = format!("{plain:?}");
        assert!(debug.contains("key: Some(bearer)"), "{debug}");
    }
    let hidden = rule("quotas = [{ MAX = \"1s\", hidden = true }]");
    assert_eq!(shown(&hidden), "none: api 5 per 1s hidden");
}

/// The cost of a request is not that of quotas with another.
#[test]
fn a_cost_above_a_quota_with_a_cost_of_its_own() {
    let chat = "cost = 100\nquotas = [{ max-count = 90_000, window = \"1m\" }, \
         { max-count = 60, window = \"1m\", cost = 1 }]";
    assert_eq!(rule(chat).cost(), 100);
}

#[test]
fn quotas_of_plans_have_subjects() {
    let of = |plan: &str| {
        let api = API.replace("\"everyone\"", "\"cookie:a\"");
        of_plan(&format!(
            "key = \"cookie:a\"\n{api}[rules.api.plans.pro]\n{plan}"
        ))
    };
    insta::assert_snapshot!(of("quotas = [{ MAX = \"1s\", key = \"bearer\" }, { MAX = \"1m\", subject = \"address\", hidden = true }, { MAX = \"2s\", cost = 2 }]"), @"
    bearer: api-bearer 5 per 1s
    address: api-address 5 per 1m hidden
    cookie:a: api-cookie:a 5 per 2s at 2
    ");
    let own = "max-count = 7\nwindow = \"1s\"\n";
    insta::assert_snapshot!(of(own), @"
    cookie:a: api-cookie:a 7 per 1s
    bearer: api-bearer-1s 10 per 1s
    bearer: api-bearer-1h 500 per 1h
    address: api-address 100 per 1m hidden
    ");
    let lifted = of(&format!("{own}unlimited = [\"address\", \"bearer\"]"));
    insta::assert_snapshot!(lifted, @"cookie:a: api-cookie:a 7 per 1s");
}

const TWO: &str = "[rules.api]\nmax-count = 2\nwindow = \"1h\"";

/// Replaces the rules by `api` with these quotas.
fn reload(limits: &Limits, file: &LimitsFile, quotas: &str) {
    let quotas = quotas.replace("MAX", "max-count = 2, window = \"1h\"");
    file.reload(limits, format!("[rules.api]\nquotas = [{quotas}]"));
}

/// A count keeps its name while its subject has it, whatever becomes of the others.
#[tokio::test]
async fn counts_stay_with_the_names_of_subjects() {
    let file = LimitsFile::new(TWO);
    let limits = file.limits();
    let app = kit::app(limits.layer("api"));
    let admitted = async || {
        let mut admitted = 0;
        while status(&app, "/").await == 200 {
            admitted += 1;
        }
        admitted
    };
    assert_eq!(admitted().await, 2);
    // Each of these ends with the same two requests, or lets two more pass.
    for case in [
        "{ MAX, cost = 1 } -> 2: another cost",
        "{ MAX, cost = 1 }, { MAX, key = 'method' } -> 0: one more subject",
        "{ MAX, key = 'method' }, { MAX, cost = 1, hidden = true } -> 0: another order",
        "{ MAX, key = 'method', subject = 'verb' }, { MAX, cost = 2 } -> 1: other names",
        "{ MAX } -> 0: one subject, which is named as in the beginning",
    ] {
        let (quotas, more) = case.split_once(" -> ").expect("a number");
        reload(&limits, &file, quotas);
        assert_eq!(admitted().await.to_string(), more[..1], "{case}");
        assert_eq!(limits.status().kept_rules.len(), 0);
    }
}

/// What the log says of counts that begin anew, if it does.
fn anew(log: &Log) -> Option<String> {
    let mut lines = log.lines().into_iter();
    let first = lines.next().expect("the rules apply");
    assert!(first.contains("apply from now on"), "{first}");
    let anew = lines.next()?;
    let is_right = anew.contains("WARN") && anew.contains("begin anew");
    assert!(is_right, "{anew}");
    assert_eq!(lines.next(), None);
    Some(anew)
}

/// Reloads these quotas one after the other: each is told with the counts that begin anew.
fn tells_of(limits: &Limits, quotas: &[(&str, Option<&str>)]) {
    let (log, file) = (Log::start(), LimitsFile::new(""));
    for (quotas, expected) in quotas {
        reload(limits, &file, quotas);
        match (anew(&log), expected) {
            (None, None) => {}
            (Some(line), Some(expected)) => assert!(line.contains(expected), "{line}"),
            other => panic!("{quotas}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_log_says_which_counts_begin_anew() {
    let limits = of_toml(TWO);
    let _ = limits.layer("api");
    let two = Some("number=2 counts=\"{api}:bearer {api}:key\"");
    let user = Some("number=1 counts=\"{api}:user\"");
    let cost = Some("number=1 counts=\"{api}:key~1\"");
    let of_user = "{ MAX, key = \"bearer\", subject = \"user\" }";
    let quotas = [
        ("{ MAX }", None),
        ("{ MAX }, { MAX, key = \"bearer\" }", two),
        ("{ MAX }, { MAX, key = \"bearer\", hidden = true }", None),
        (&format!("{{ MAX }}, {of_user}"), user),
        (&format!("{{ MAX }}, {{ MAX, cost = 1 }}, {of_user}"), cost),
        (&format!("{{ MAX, cost = 1 }}, {of_user}"), None),
        ("{ MAX }", Some("number=1 counts=\"api\"")),
    ];
    tells_of(&limits, &quotas);
}
