//! `max-concurrent` in files: what it means, and what is said of mistakes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate::rule::{Policy, Quotas};
use tidegate::warning::{Warning, WarningKind};
use tidegate::{Key, Limits, Quota, Rule, Rules};
use tokio::sync::Semaphore;

use crate::{Stores, status};
use kit::app;

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

/// The subject of each quota, its name, and how much it admits.
fn shown(rule: &Rule) -> Vec<String> {
    let policies = rule.policies().iter().map(|policy| {
        let subject = policy.subject().unwrap_or("none");
        let hidden = if policy.is_hidden() { " hidden" } else { "" };
        let quota = match policy.is_concurrent() {
            true => format!("{} at a time", policy.quota().max()),
            false => policy.quota().to_string(),
        };
        format!("{subject}: {} {quota}{hidden}", policy.name())
    });
    policies.collect()
}

const PER_MINUTE: &str = "max-count = 60\nwindow = \"1m\"\n";

#[test]
fn of_a_rule() {
    let of = |lines: &str| shown(&rule(lines));
    assert_eq!(of("max-concurrent = 4"), ["none: api 4 at a time"]);
    assert_eq!(of("max-concurrent = 0"), ["none: api 0 at a time"]);
    let both = ["none: api-1m 60 per 1m", "none: api-concurrent 4 at a time"];
    assert_eq!(of(&format!("{PER_MINUTE}max-concurrent = 4")), both);
    assert_eq!(
        of("quotas = [{ max-count = 60, window = \"1m\" }, { max-concurrent = 4 }]"),
        both
    );
    assert_eq!(
        of("quotas = [{ max-concurrent = 4, name = \"at once\", hidden = true }]"),
        ["none: at once 4 at a time hidden"]
    );
    assert!(format!("{:?}", rule("key = \"bearer\"\nmax-concurrent = 4")).contains("Some(bearer)"));

    let plain = rule("max-concurrent = 4");
    assert_eq!(plain.permit_lease(), Rule::DEFAULT_PERMIT_LEASE);
    assert_eq!(plain.busy_retry(), Rule::DEFAULT_BUSY_RETRY);
    let told = rule("max-concurrent = 4\npermit-lease = \"20s\"\nbusy-retry-after = \"250ms\"");
    assert_eq!(told.permit_lease(), Duration::from_secs(20));
    assert_eq!(told.busy_retry(), Duration::from_millis(250));
}

#[test]
fn of_subjects() {
    let of = |lines: &str| {
        shown(&rule(
            &lines.replace("MAX", "max-count = 5, window = \"1s\""),
        ))
    };
    let own = "quotas = [{ MAX, key = \"client-ip\" }, { max-concurrent = 4, key = \"bearer\", subject = \"org\", hidden = true }]";
    assert_eq!(
        of(own),
        [
            "client-ip: api-client-ip 5 per 1s",
            "org: api-org 4 at a time hidden"
        ]
    );
    // That of the rule is of the rule's key, although no quota is.
    let of_rule = "key = \"bearer\"\nmax-concurrent = 4\nquotas = [{ MAX, key = \"client-ip\" }]";
    assert_eq!(
        of(of_rule),
        [
            "client-ip: api-client-ip 5 per 1s",
            "bearer: api-bearer 4 at a time"
        ]
    );
    let everyone = "max-concurrent = 4\nquotas = [{ MAX }, { MAX, key = \"client-ip\" }]";
    assert_eq!(
        of(everyone),
        [
            "everyone: api-everyone-1s 5 per 1s",
            "everyone: api-everyone-concurrent 4 at a time",
            "client-ip: api-client-ip 5 per 1s"
        ]
    );
    // The only key is that of the rule, wherever it stands.
    let only = "max-concurrent = 4\nquotas = [{ MAX, key = \"bearer\", subject = \"user\" }]";
    assert_eq!(
        of(only),
        ["none: api-1s 5 per 1s", "none: api-concurrent 4 at a time"]
    );
    assert!(
        rule(&only.replace("MAX", "max-count = 5, window = \"1s\""))
            .subjects()
            .is_empty()
    );
}

#[test]
fn of_plans_and_candidates() {
    let of_plan = |lines: &str| shown(&rule(lines).of_plan("pro").expect("a plan"));
    for rest in [PER_MINUTE, "max-concurrent = 1\n"] {
        let with = |plan: &str| format!("{rest}[rules.api.plans.pro]\n{plan}");
        assert_eq!(
            of_plan(&with("max-concurrent = 9\nmax-count = 7\nwindow = \"1s\"")),
            ["none: api-1s 7 per 1s", "none: api-concurrent 9 at a time"]
        );
        assert_eq!(
            of_plan(&with("max-concurrent = 9")),
            ["none: api 9 at a time"]
        );
    }
    let joint =
        "quotas = [{ max-count = 5, window = \"1s\" }, { max-concurrent = 4, key = \"bearer\" }]\n";
    let with = |plan: &str| format!("{joint}[rules.api.plans.pro]\n{plan}");
    assert_eq!(
        of_plan(&with("quotas = [{ max-concurrent = 8, key = \"bearer\" }]")),
        ["bearer: api-bearer 8 at a time"]
    );
    assert_eq!(
        of_plan(&with("max-concurrent = 8")),
        ["everyone: api-everyone 8 at a time"]
    );

    let text = format!("{PER_MINUTE}permit-lease = \"9s\"\nshadow = {{ max-concurrent = 2 }}");
    let rule = rule(&text);
    let candidate = rule.shadow().expect("a candidate");
    assert_eq!(shown(candidate), ["none: api 2 at a time"]);
    assert_eq!(candidate.permit_lease(), Duration::from_secs(9));
}

#[test]
fn mistakes() {
    let with = |line: &str| said(&format!("{PER_MINUTE}{line}"));
    insta::assert_snapshot!(with("max-concurrent = -1"), @"line 5: rules.api.max-concurrent: found -1, expected a whole number, 0 or more");
    insta::assert_snapshot!(with("max-concurrent = \"4\""), @r#"line 5: rules.api.max-concurrent: found "4", expected a whole number, 0 or more"#);
    insta::assert_snapshot!(with("max-concurrent = 1_000_000_000_000_000"), @"line 5: rules.api.max-concurrent: the max count is too large, expected at most 999999999999999");
    insta::assert_snapshot!(with("max-concurrent = 4\nlease = \"50ms\""), @"line 6: rules.api.lease: no leases beside max-concurrent: units that are held ahead hold no permit");
    insta::assert_snapshot!(with("lease = \"50ms\"\n[rules.api.plans.pro]\nmax-concurrent = 4"), @"line 5: rules.api.lease: no leases beside max-concurrent: units that are held ahead hold no permit");
    insta::assert_snapshot!(with("max-concurrent = 4\npermit-lease = \"999ms\""), @"line 6: rules.api.permit-lease: a permit's lease of 999ms, expected 1 s to 1 day");
    insta::assert_snapshot!(with("max-concurrent = 4\npermit-lease = \"25h\""), @"line 6: rules.api.permit-lease: a permit's lease of 90000s, expected 1 s to 1 day");
    insta::assert_snapshot!(with("max-concurrent = 4\nbusy-retry-after = \"0s\""), @"line 6: rules.api.busy-retry-after: a hint of 0ns, expected 1 ms to 1 day");
    insta::assert_snapshot!(with("max-concurrent = 4\nbusy-retry-after = 1"), @r#"line 6: rules.api.busy-retry-after: found 1, expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(with("permit-lease = \"15s\""), @"line 5: rules.api.permit-lease: nothing holds a permit, expected max-concurrent beside it");
    insta::assert_snapshot!(with("busy-retry-after = \"1s\""), @"line 5: rules.api.busy-retry-after: nothing holds a permit, expected max-concurrent beside it");
    for rest in [
        "plans = { pro = { max-concurrent = 4 } }",
        "shadow = { max-concurrent = 4 }",
    ] {
        assert_eq!(with(&format!("permit-lease = \"15s\"\n{rest}")), "nothing");
    }
    // A permit is no unit: nothing is charged, given back or settled.
    let alone = |line: &str| said(&format!("max-concurrent = 4\n{line}"));
    insta::assert_snapshot!(alone("cost = 2"), @"line 4: rules.api.cost: nothing is charged, expected max-count and window beside max-concurrent: each request holds one permit");
    insta::assert_snapshot!(alone("refund-on = [\"5xx\"]"), @"line 4: rules.api.refund-on: nothing is charged, expected max-count and window beside max-concurrent: each request holds one permit");
    assert_eq!(
        alone("cost = 2\n[rules.api.plans.pro]\nmax-count = 7\nwindow = \"1s\""),
        "nothing"
    );
    insta::assert_snapshot!(said("[rules.api.plans.pro]\nmax-concurrents = 4"), @"line 2: rules.api: no quota, expected max-count and window, quotas, or max-concurrent");
}

#[test]
fn mistakes_in_lists() {
    let of = |entries: &str| {
        let entries = entries.replace("MAX", "max-count = 5, window = \"1s\"");
        said(&format!("quotas = [\n{entries}\n]"))
    };
    for (key, value) in [
        ("max-count", "5"),
        ("window", "\"1s\""),
        ("burst", "2"),
        ("cost", "1"),
    ] {
        assert_eq!(
            of(&format!("{{ max-concurrent = 4, {key} = {value} }}")),
            format!(
                "line 4: rules.api.quotas.{key}: beside max-concurrent, expected either max-count \
                 and window, or max-concurrent: each request holds one permit"
            )
        );
    }
    insta::assert_snapshot!(of("{ max-concurrent = 4, permit-lease = \"2s\" }"), @"line 4: rules.api.quotas.permit-lease: unknown field `permit-lease`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `name`, `key`, `subject`, `hidden`, `cost`, `absent`");
    insta::assert_snapshot!(of("{ max-concurrent = 4 },\n{ max-concurrent = 5, name = \"five\" },"), @r#"line 2: rules.api: "five" is a second max of requests at a time for one key, expected one"#);
    let of_rule = "max-concurrent = 4\nquotas = [{ max-count = 5, window = \"1s\", key = \"bearer\" }, { max-count = 5, window = \"1s\", key = \"client-ip\" }]";
    insta::assert_snapshot!(said(of_rule), @r#"line 3: rules.api.max-concurrent: each quota has a key of its own, expected an entry of quotas in place of this: { max-concurrent = 4, key = ".." }"#);
    let plan = of_rule.replacen("max-concurrent = 4\n", "", 1);
    let plan = format!("{plan}\n[rules.api.plans.pro]\nmax-concurrent = 4");
    insta::assert_snapshot!(said(&plan), @r#"line 5: rules.api.plans.pro.max-concurrent: no quota of the rule is without a key, expected one of "bearer", "client-ip""#);
}

/// A request runs until it is told to end.
#[tokio::test]
async fn rules_do_what_they_say() {
    let text =
        "rules.api = { max-concurrent = 1, busy-retry-after = \"7s\", key = \"header:x-org\" }";
    for store in &Stores::start().await.all {
        let limits = Limits::from_toml(text).expect("valid");
        let limits = limits.store(Arc::clone(store));
        let end = Arc::new(Semaphore::new(0));
        let handler = {
            let end = Arc::clone(&end);
            get(move || async move { end.acquire().await.expect("open").forget() })
        };
        let app = Router::new().route("/", handler.layer(limits.layer("api")));
        let ask = |org: &str| {
            let request = http::Request::get("/").header("x-org", org);
            let request = request.body(axum::body::Body::empty()).expect("valid");
            tower::ServiceExt::oneshot(app.clone(), request)
        };
        let running = ["a", "b"].map(|org| tokio::spawn(ask(org)));
        for org in ["a", "b"] {
            let left = async || {
                let state = limits.peek("api", org).await.expect("an answer");
                state.expect("a rule").remaining()
            };
            while left().await > 0 {
                tokio::task::yield_now().await;
            }
        }
        let busy = ask("a").await.expect("axum does not fail");
        assert_eq!(busy.status(), 429);
        assert_eq!(busy.headers()["retry-after"], "7");
        end.add_permits(2);
        for response in running {
            let response = response.await.expect("no panic");
            assert_eq!(response.expect("axum does not fail").status(), 200);
        }
    }
}

/// Quotas from code are for rules whose takes are over one count.
#[tokio::test]
async fn quotas_from_code_are_warned_of() {
    let two = || Arc::new(Quotas::new([Quota::per_hour(2)]).expect("valid"));
    let permits = || Arc::new(Quotas::with_policies([Policy::concurrent(9)]).expect("valid"));
    for (lines, quotas) in [
        ("max-concurrent = 9\nmax-count = 3\nwindow = \"1h\"", two()),
        ("max-count = 3\nwindow = \"1h\"", permits()),
    ] {
        let limits = Limits::new(rules(lines).expect("valid"));
        let of_layer = Arc::clone(&quotas);
        let layer = limits.layer("api");
        let layer = layer.quotas(move |_| Some(Arc::clone(&of_layer)));
        let app = app(layer);
        assert!(limits.warnings().is_empty());
        for expected in [200, 200] {
            assert_eq!(status(&app, "/").await, expected, "{lines}");
        }
        let of_kind = |warning: &Warning| warning.kind == WarningKind::QuotasOfJointRule;
        let warnings = || limits.warnings().into_iter().filter(of_kind);
        let text = warnings().next().expect("it says so").to_string();
        assert!(text.contains("limit requests at a time"), "{text}");
        assert_eq!(warnings().count(), 1);
        // A check counts along, and the rule's own quota is the third request's end.
        let check = || {
            limits
                .check("api", Key::default())
                .quotas(Arc::clone(&quotas))
        };
        check().await.expect("the third");
        check().await.expect_err("the fourth");
    }
    let limits = Limits::new(rules("max-count = 3\nwindow = \"1h\"").expect("valid"));
    let check = limits.check("api", "").quotas(permits());
    check.await.expect("the first");
    let warning = &limits.warnings()[0];
    assert_eq!(warning.kind, WarningKind::QuotasOfJointRule);
}

/// A max beyond 10,000 keeps no log, and a request of several units needs one permit.
#[tokio::test]
async fn other_warnings_are_about_quotas() {
    let text = "max-concurrent = 20_000\nquotas = [{ max-count = 0, window = \"1m\" }]";
    let limits = Limits::new(rules(text).expect("valid"));
    let layer = limits.layer("api").cost(|_| 30_000);
    assert_eq!(status(&app(layer), "/").await, 429);
    assert_eq!(limits.warnings(), []);

    let busy = "max-concurrent = 1\nquotas = [{ max-count = 0, window = \"1m\" }]\n\
         plans.busy.max-concurrent = 1";
    let limits = Limits::new(rules(busy).expect("valid"));
    let held = limits.check("api", "").plan("busy").await.expect("it fits");
    assert!(held.permit.is_some());
    limits
        .check("api", "")
        .cost(2)
        .await
        .expect_err("a quota of 0");
    assert_eq!(limits.warnings(), []);
}

/// The counts of a rule that gets or loses a max of requests at a time go on.
#[tokio::test]
async fn a_reload_keeps_counts_and_names_none() {
    let log = kit::log::Log::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let limits = Limits::from_toml("").expect("valid");
    let joint = "quotas = [{ max-count = 9, window = \"1h\" }, \
         { max-count = 9, window = \"1h\", key = \"method\" }";
    for lines in [
        "max-count = 9\nwindow = \"1h\"",
        "max-count = 9\nwindow = \"1h\"\nmax-concurrent = 4",
        "max-count = 9\nwindow = \"1h\"\nplans.pro.max-concurrent = 4",
        "max-concurrent = 4",
        "max-count = 9\nwindow = \"1h\"",
    ] {
        reload(&limits, &file, lines);
        assert!(!begins_anew(&log), "{lines}");
    }
    reload(&limits, &file, &format!("{joint}]"));
    assert!(begins_anew(&log), "the names of its subjects");
    for lines in [
        format!("{joint}, {{ max-concurrent = 4, key = \"method\" }}]"),
        format!("{joint}, {{ max-concurrent = 4, key = \"everyone\", subject = \"all\" }}]"),
        format!("{joint}]\nmax-concurrent = 4"),
        format!("{joint}]"),
    ] {
        reload(&limits, &file, &lines);
        assert!(!begins_anew(&log), "{lines}");
    }
}

fn reload(limits: &Limits, file: &std::path::Path, lines: &str) {
    std::fs::write(file, format!("[rules.api]\n{lines}")).expect("is written");
    limits.reload(file).expect("valid");
}

fn begins_anew(log: &kit::log::Log) -> bool {
    log.lines().iter().any(|line| line.contains("begin anew"))
}

/// What was counted before a rule gets a max of requests at a time counts afterwards.
#[tokio::test]
async fn counts_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let limits = Limits::from_toml("").expect("valid");
    let app = app(limits.layer("api"));
    for (more, expected) in [("", 200), ("max-concurrent = 4", 200), ("", 429)] {
        let text = format!("[rules.api]\nmax-count = 2\nwindow = \"1h\"\n{more}");
        std::fs::write(&file, text).expect("is written");
        limits.reload(&file).expect("valid");
        assert_eq!(status(&app, "/").await, expected, "{more}");
    }
}
