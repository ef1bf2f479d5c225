//! Quotas of a file that have a key, a subject or a cost of their own.

use std::fs;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate::{Limits, Rule, Rules};

use kit::app_of;

/// The rules of a text whose table `[rules.api]` begins with these lines.
fn rules(lines: &str) -> Result<Rules, String> {
    let text = format!("client-ip = {{ hops = 1 }}\n[rules.api]\n{lines}");
    Rules::from_toml(&text).map_err(|error| error.to_string())
}

fn rule(lines: &str) -> Arc<Rule> {
    let rules = rules(lines).unwrap_or_else(|error| panic!("{error}\n{lines}"));
    Arc::clone(rules.get("api").expect("a rule"))
}

/// What is said of a rule with these lines; the first of them is line 3.
fn said(lines: &str) -> String {
    match rules(lines) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error,
    }
}

/// The quotas of a rule: the subject of each, its name and what else was said of it.
fn shown(rule: &Rule) -> String {
    let policies = rule.policies().iter().map(|policy| {
        let subject = policy.subject().unwrap_or("none");
        let cost = policy.cost().map(|cost| format!(" at {cost}"));
        let hidden = if policy.is_hidden() { " hidden" } else { "" };
        let (name, quota) = (policy.name(), policy.quota());
        format!(
            "{subject}: {name} {quota}{}{hidden}",
            cost.unwrap_or_default()
        )
    });
    policies.collect::<Vec<_>>().join("\n")
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
    let of = |quotas: &str| {
        let quotas = quotas.replace("MAX", "max-count = 5, window");
        let subjects = rule(&quotas);
        let names = subjects.subjects().iter().map(|it| it.name().to_owned());
        names.collect::<Vec<_>>()
    };
    // Without a key: the rule's own.
    let of_user = "quotas = [{ MAX = \"1s\" }, { MAX = \"1m\", key = \"everyone\" }]";
    assert_eq!(
        of(&format!("key = \"bearer\"\n{of_user}")),
        ["bearer", "everyone"]
    );
    // Its own key by its text, and by a name that no other has.
    let own = "key = \"bearer | client-ip\"\nquotas = [{ MAX = \"1s\", key = \"bearer|client-ip\", \
         subject = \"user\" }, { MAX = \"1h\" }, { MAX = \"1m\", key = \"method\" }]";
    assert_eq!(of(own), ["user", "method"]);
    let named =
        "quotas = [{ MAX = \"1s\", subject = \"all\" }, { MAX = \"1m\", key = \"bearer\" }]";
    assert_eq!(of(named), ["bearer", "all"]);
    // A list, and a field in capitals.
    let list = "quotas = [{ MAX = \"1s\" }, \
         { MAX = \"1m\", key = [\"client-ip\", \"header:X-Tenant\"] }, \
         { MAX = \"1h\", key = [\"client-ip\", \"header:x-tenant\"] }]";
    assert_eq!(of(list), ["everyone", "client-ip, header:x-tenant"]);
    // One at two costs.
    let tokens = "quotas = [{ MAX = \"1m\", cost = 1 }, { MAX = \"1s\" }]";
    assert_eq!(of(tokens), ["everyone"]);
}

/// The names in Redis stay those of before.
#[test]
fn a_rule_of_one_subject_is_plain() {
    for quotas in [
        "key = \"bearer\"\nquotas = [{ max-count = 5, window = \"1s\" }]",
        "quotas = [{ max-count = 5, window = \"1s\", key = \"bearer\", subject = \"user\" }]",
        "key = \"bearer\"\nquotas = [{ max-count = 5, window = \"1s\", subject = \"user\" }]",
    ] {
        let plain = rule(quotas);
        assert!(plain.subjects().is_empty(), "{quotas}");
        assert_eq!(shown(&plain), "none: api 5 per 1s");
        assert!(
            format!("{plain:?}").contains("key: Some(bearer)"),
            "{plain:?}"
        );
    }
    let hidden = "quotas = [{ max-count = 5, window = \"1s\", hidden = true }]";
    assert_eq!(shown(&rule(hidden)), "none: api 5 per 1s hidden");
}

#[test]
fn mistakes_in_subjects() {
    let of = |entries: &str| {
        let entries = entries.replace("MAX", "max-count = 5, window");
        said(&format!("quotas = [\n{entries}\n]"))
    };
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"ip\" },"), @r#"line 4: rules.api.quotas.key: found "ip", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = 7 },"), @r#"line 4: rules.api.quotas.key: found 7, expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", subject = \"\" },"), @r#"line 4: rules.api.quotas.subject: found "", expected a name"#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", absent = \"pass\" },"), @r#"line 4: rules.api.quotas.absent: found "pass", expected "skip""#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", hidden = 1 },"), @"line 4: rules.api.quotas.hidden: found 1, expected true or false");
    insta::assert_snapshot!(of("{ MAX = \"1s\", subjects = \"a\" },"), @"line 4: rules.api.quotas.subjects: unknown field `subjects`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `name`, `key`, `subject`, `hidden`, `cost`, `absent`");
    insta::assert_snapshot!(of("{ MAX = \"1s\", cost = 0 },"), @"line 4: rules.api.quotas.cost: requests that cost 0 are not limited, expected 1 or more");
    insta::assert_snapshot!(of("{ MAX = \"1s\", cost = 6 },"), @"line 4: rules.api.quotas.cost: more than max-count (or burst), so that no request would ever be allowed");
    // Names.
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"bearer\", subject = \"a\" },\n{ MAX = \"1m\", key = \"bearer\", subject = \"b\" },"), @r#"line 5: rules.api.quotas.subject: "a" and "b" are names for one key, expected one of them, or the key of the other"#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", subject = \"a\" },\n{ MAX = \"1m\", subject = \"b\" },"), @r#"line 5: rules.api.quotas.subject: "a" and "b" are names for one key, expected one of them, or the key of the other"#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"bearer\", subject = \"a\" },\n{ MAX = \"1m\", key = \"client-ip\", subject = \"a\" },"), @r#"line 5: rules.api.quotas.key: two keys have the name "a", expected another name for one of them: subject = "..""#);
    insta::assert_snapshot!(of("{ MAX = \"1s\" },\n{ MAX = \"1m\", key = \"everyone\" },"), @r#"line 5: rules.api.quotas.key: two keys have the name "everyone", expected another name for one of them: subject = "..""#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", subject = \"bearer\" },\n{ MAX = \"1m\", key = \"client-ip\" },"), @r#"line 4: rules.api.quotas.subject: "bearer" is the name of another key, expected key = "bearer", or a name of your own"#);
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"client-ip\", subject = \"bearer\" },"), @r#"line 4: rules.api.quotas.subject: "bearer" is the name of another key, expected key = "bearer", or a name of your own"#);
    // Requests that count nowhere.
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"bearer\", absent = \"skip\" },"), @"line 4: rules.api.quotas.absent: each subject may be absent, expected one at least that is in every request");
    insta::assert_snapshot!(of("{ MAX = \"1s\", key = \"bearer\", absent = \"skip\" },\n{ MAX = \"1m\", key = \"cookie:a\", absent = \"skip\" },"), @"line 5: rules.api.quotas.absent: each subject may be absent, expected one at least that is in every request");
    // Too many.
    let nine = (0..9).map(|at| format!("{{ MAX = \"1s\", key = \"header:x{at}\" }},\n"));
    insta::assert_snapshot!(of(&nine.collect::<String>()), @"line 2: rules.api: 9 subjects, expected 1 to 8");
}

#[test]
fn mistakes_in_joint_rules() {
    let with = |more: &str| said(&format!("{}\n{more}", API.trim()));
    insta::assert_snapshot!(with("lease = \"50ms\""), @"line 9: rules.api.lease: no leases for several subjects: a unit that is held ahead counts in one of them alone");
    insta::assert_snapshot!(with("key = \"cookie:a\""), @"line 9: rules.api.key: each quota has another key, expected one without a key of its own");
    insta::assert_snapshot!(with("cost = 11"), @"line 9: rules.api.cost: more than max-count (or burst), so that no request would ever be allowed");
    insta::assert_snapshot!(with("absent = \"skip\""), @"line 9: rules.api.absent: unknown field `absent`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `permit-lease`, `busy-retry-after`, `quotas`, `algorithm`, `sub-windows`, `enabled`, `key`, `client-ip`, `exempt`, `cost`, `on-error`, `lease`, `refund-on`, `settles`, `owe-at-most`, `shadow`, `plans`, `outgoing`, `hold-at-most`");
    // The cost of a request is not that of quotas with another.
    let chat =
        "[{ max-count = 90_000, window = \"1m\" }, { max-count = 60, window = \"1m\", cost = 1 }]";
    assert_eq!(rule(&format!("cost = 100\nquotas = {chat}")).cost(), 100);
    insta::assert_snapshot!(said(&format!("lease = \"1s\"\nquotas = {chat}")), @"line 3: rules.api.lease: no leases for several subjects: a unit that is held ahead counts in one of them alone");
}

#[test]
fn quotas_of_plans_have_subjects() {
    let with = |plan: &str| {
        let plan = plan.replace("MAX", "max-count = 50, window");
        format!(
            "key = \"cookie:a\"\n{}\n[rules.api.plans.pro]\n{plan}",
            API.replace("\"everyone\"", "\"cookie:a\"")
        )
    };
    let of = |plan: &str| shown(&rule(&with(plan)).of_plan("pro").expect("a plan"));
    insta::assert_snapshot!(of("quotas = [{ MAX = \"1s\", key = \"bearer\" }, { MAX = \"1m\", subject = \"address\", hidden = true }, { MAX = \"2s\", cost = 2 }]"), @"
    bearer: api-bearer 50 per 1s
    address: api-address 50 per 1m hidden
    cookie:a: api-cookie:a 50 per 2s at 2
    ");
    insta::assert_snapshot!(of("max-count = 7\nwindow = \"1s\""), @"cookie:a: api-cookie:a 7 per 1s");
    let said = |plan: &str| said(&with(plan));
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", key = \"method\" }]"), @r#"line 13: rules.api.plans.pro.quotas.key: no quota of the rule has this key, expected one of "bearer", "address", "cookie:a""#);
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", subject = \"user\" }]"), @r#"line 13: rules.api.plans.pro.quotas.subject: no quota of the rule has this subject, expected one of "bearer", "address", "cookie:a""#);
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", subject = \"address\", key = \"bearer\" }]"), @"line 13: rules.api.plans.pro.quotas.subject: this subject has another key, expected either a key or a subject");
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", subject = \"address\", absent = \"skip\" }]"), @"line 13: rules.api.plans.pro.quotas.absent: unknown field `absent`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `name`, `key`, `subject`, `hidden`, `cost`");
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", cost = 51 }]"), @"line 13: rules.api.plans.pro.quotas.cost: more than max-count (or burst), so that no request would ever be allowed");
}

#[test]
fn quotas_of_plans_without_a_subject() {
    let plan = "[rules.api.plans.pro]\nmax-count = 7\nwindow = \"1s\"";
    insta::assert_snapshot!(said(&format!("{API}{plan}")), @r#"line 11: rules.api.plans.pro.max-count: no quota of the rule is without a key, expected one of "bearer", "address", "everyone""#);
    // A rule of one subject has it, whether its key is said in the rule or in the quota.
    for key in [
        "key = \"bearer\"",
        "subject = \"user\"",
        "key = \"bearer\", subject = \"user\"",
    ] {
        let one = format!("quotas = [{{ max-count = 5, window = \"1s\", {key} }}]\n");
        let plan = rule(&format!("{one}{plan}"))
            .of_plan("pro")
            .expect("a plan");
        assert_eq!(shown(&plan), "none: api 7 per 1s");
    }
    let plain = "key = \"bearer\"\nmax-count = 5\nwindow = \"1s\"\n[rules.api.plans.pro]\n";
    let with =
        |entry: &str| format!("{plain}quotas = [{{ max-count = 50, window = \"1s\", {entry} }}]");
    let of = |entry: &str| shown(&rule(&with(entry)).of_plan("pro").expect("a plan"));
    assert_eq!(of("subject = \"bearer\""), "none: api 50 per 1s");
    assert_eq!(
        of("key = \"bearer\", hidden = true"),
        "none: api 50 per 1s hidden"
    );
    insta::assert_snapshot!(said(&with("key = \"method\"")), @r#"line 7: rules.api.plans.pro.quotas.key: no quota of the rule has this key, expected one of "bearer""#);
    insta::assert_snapshot!(said(&with("cost = 1")), @"line 7: rules.api.plans.pro.quotas.cost: no quota of the rule has a cost of its own, expected one there, too");
    let without_key = with("key = \"bearer\"").replacen("key = \"bearer\"\n", "", 1);
    insta::assert_snapshot!(said(&without_key), @r#"line 6: rules.api.plans.pro.quotas.key: no quota of the rule has this key, expected one of "everyone""#);
}

#[test]
fn candidates_name_subjects() {
    let with = |shadow: &str| {
        let shadow = shadow.replace("MAX", "max-count = 3, window");
        format!("{API}[rules.api.shadow]\n{shadow}")
    };
    let candidate = rule(&with(
        "quotas = [{ MAX = \"1s\", key = \"bearer\" }, { MAX = \"1m\", subject = \"address\" }]",
    ));
    let candidate = candidate.shadow().expect("a candidate");
    insta::assert_snapshot!(shown(candidate), @"
    bearer: api-bearer 3 per 1s
    address: api-address 3 per 1m
    ");
    assert_eq!(candidate.id(), "api~shadow");

    let said = |shadow: &str| said(&with(shadow));
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", key = \"method\" }]"), @r#"line 11: rules.api.shadow.quotas.key: no quota of the rule has this key, expected one of "bearer", "address", "everyone""#);
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", subject = \"user\" }]"), @r#"line 11: rules.api.shadow.quotas.subject: no quota of the rule has this subject, expected one of "bearer", "address", "everyone""#);
    insta::assert_snapshot!(said("quotas = [{ MAX = \"1s\", subject = \"address\" }]"), @"line 10: rules.api.shadow: a candidate of one subject beside a rule of several, expected quotas of two at least: it is asked with the keys of the rule");
    insta::assert_snapshot!(said("max-count = 3\nwindow = \"1s\""), @r#"line 11: rules.api.shadow.max-count: no quota of the rule is without a key, expected one of "bearer", "address", "everyone""#);
    let plain = "max-count = 5\nwindow = \"1s\"\n[rules.api.shadow]\n";
    let of_plain = |quotas: &str| self::said(&format!("{plain}quotas = [{quotas}]"));
    insta::assert_snapshot!(of_plain("{ max-count = 3, window = \"1s\", key = \"bearer\" }"), @r#"line 6: rules.api.shadow.quotas.key: no quota of the rule has this key, expected one of "everyone""#);
    insta::assert_snapshot!(of_plain("{ max-count = 3, window = \"1s\", cost = 1 }"), @"line 6: rules.api.shadow.quotas.cost: no quota of the rule has a cost of its own, expected one there, too");
}

/// Whoever has no token is limited by the address alone, and a denial charges nobody.
#[tokio::test]
async fn a_joint_rule_does_what_it_says() {
    let limits = Limits::from_toml(
        r#"
        [rules.api]
        quotas = [
          { max-count = 2, window = "1h", key = "header:x-user", absent = "skip" },
          { max-count = 3, window = "1h", key = "everyone" },
        ]
    "#,
    )
    .expect("a valid file");
    let app = Router::new().route("/api", get(async || "1").layer(limits.layer("api")));
    let ask = async |user: Option<&str>| {
        let mut request = http::Request::get("/api");
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        let request = request.body(axum::body::Body::empty()).expect("valid");
        let response = tower::ServiceExt::oneshot(app.clone(), request).await;
        response.expect("axum does not fail").status().as_u16()
    };
    assert_eq!(ask(Some("a")).await, 200);
    assert_eq!(ask(Some("a")).await, 200);
    assert_eq!(ask(Some("a")).await, 429, "of this user");
    assert_eq!(ask(None).await, 200, "the denial has charged nobody");
    assert_eq!(ask(Some("b")).await, 429, "of everybody");
}

/// The file of the example, with these subjects in place of its own.
fn reload(limits: &Limits, file: &std::path::Path, quotas: &str) {
    let quotas = quotas.replace("MAX", "max-count = 2, window = \"1h\"");
    fs::write(file, format!("[rules.api]\nquotas = [{quotas}]")).expect("is written");
    limits.reload(file).expect("valid");
}

/// A count keeps its name while its subject has it, whatever becomes of the others.
#[tokio::test]
async fn counts_stay_with_the_names_of_subjects() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let text = "[rules.api]\nmax-count = 2\nwindow = \"1h\"";
    let limits = Limits::from_toml(text).expect("valid");
    let app = app_of(&limits, &["api"]);
    let admitted = async || {
        let mut admitted = 0;
        while crate::status(&app, "/api").await == 200 {
            admitted += 1;
        }
        admitted
    };
    assert_eq!(admitted().await, 2);
    // Each of these ends with the same two requests, or lets two more pass.
    for (quotas, more, why) in [
        ("{ MAX, cost = 1 }", 2, "another cost"),
        (
            "{ MAX, cost = 1 }, { MAX, key = \"method\" }",
            0,
            "one more subject",
        ),
        (
            "{ MAX, key = \"method\" }, { MAX, cost = 1, hidden = true }",
            0,
            "another order",
        ),
        (
            "{ MAX, key = \"method\", subject = \"verb\" }, { MAX, cost = 2 }",
            1,
            "other names",
        ),
        (
            "{ MAX }",
            0,
            "one subject, which is named as in the beginning",
        ),
    ] {
        reload(&limits, &file, quotas);
        assert_eq!(admitted().await, more, "{why}");
        assert_eq!(limits.status().kept_rules.len(), 0);
    }
}

#[tokio::test]
async fn the_log_says_which_counts_begin_anew() {
    let log = kit::log::Log::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let text = "[rules.api]\nmax-count = 2\nwindow = \"1h\"";
    let limits = Limits::from_toml(text).expect("valid");
    let _ = limits.layer("api");
    for (quotas, expected) in [
        ("{ MAX }", None),
        (
            "{ MAX }, { MAX, key = \"bearer\" }",
            Some("number=2 counts=\"{api}:bearer {api}:everyone\""),
        ),
        ("{ MAX }, { MAX, key = \"bearer\", hidden = true }", None),
        (
            "{ MAX }, { MAX, key = \"bearer\", subject = \"user\" }",
            Some("number=1 counts=\"{api}:user\""),
        ),
        (
            "{ MAX }, { MAX, cost = 1 }, { MAX, key = \"bearer\", subject = \"user\" }",
            Some("number=1 counts=\"{api}:everyone~1\""),
        ),
        (
            "{ MAX, cost = 1 }, { MAX, key = \"bearer\", subject = \"user\" }",
            None,
        ),
        ("{ MAX }", Some("number=1 counts=\"api\"")),
    ] {
        reload(&limits, &file, quotas);
        let lines = log.lines();
        let (first, more) = lines.split_first().expect("the rules apply");
        assert!(first.contains("apply from now on"), "{first}");
        match (more, expected) {
            ([], None) => {}
            ([line], Some(expected)) => {
                assert!(
                    line.contains("WARN") && line.contains("begin anew"),
                    "{line}"
                );
                assert!(line.contains(expected), "{line}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_log_says_which_counts_of_a_candidate_begin_anew() {
    let log = kit::log::Log::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let own = "{ MAX }, { MAX, key = \"bearer\" }";
    let limits = Limits::from_toml("").expect("valid");
    for (candidate, expected) in [
        (own, None),
        (
            "{ MAX, cost = 1 }, { MAX, key = \"bearer\" }",
            Some("number=1 counts=\"{api~shadow}:everyone~1\""),
        ),
        (
            "{ MAX, cost = 1 }, { MAX, key = \"bearer\", hidden = true }",
            None,
        ),
        (
            "{ MAX, cost = 1 }, { MAX }",
            Some("number=1 counts=\"{api~shadow}:everyone\""),
        ),
    ] {
        reload(
            &limits,
            &file,
            &format!("{own}]\nshadow.quotas = [{candidate}"),
        );
        let anew = log
            .lines()
            .into_iter()
            .filter(|line| line.contains("begin anew"));
        let anew: Vec<_> = anew.collect();
        assert_eq!(anew.len(), usize::from(expected.is_some()), "{anew:?}");
        assert!(
            anew.iter()
                .all(|line| line.contains(expected.unwrap_or_default())),
            "{anew:?}"
        );
    }
}
