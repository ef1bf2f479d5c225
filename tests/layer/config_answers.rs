//! `headers` and `status` in files: which fields responses get, and the status of denials.

use tidegate::callback::Form;

use crate::*;

/// A text whose top has the first lines, and whose rule `api` the others.
fn toml(top: &str, rule: &str) -> String {
    let (top, rule) = (top.replace("; ", "\n"), rule.replace("; ", "\n"));
    format!(
        "{top}\n[rules.api]\nkey = \"everyone\"\n{rule}\n[rules.other]\nkey = \"everyone\"\n\
         max-count = 0\nwindow = \"1m\""
    )
}

const ONE: &str = "max-count = 1; window = \"1m\"; ";
const NONE: &str = "max-count = 0; window = \"1m\"; ";

/// The status of a request, and the names of its fields about limits.
async fn shown(limits: &Limits, path: &str, fields: &str) -> String {
    shown_by(limits.layer(path), fields).await
}

async fn shown_by(layer: RateLimitLayer, fields: &str) -> String {
    let request = post("/", fields);
    let response = call(&app(layer), request).await;
    let names = response.headers().keys().map(HeaderName::as_str);
    let mut names: Vec<_> = names.filter(|it| it.contains("rate")).collect();
    names.sort_unstable();
    format!("{} {}", response.status().as_u16(), names.join(" "))
}

const DRAFT_6: &str = "ratelimit-limit ratelimit-policy ratelimit-remaining ratelimit-reset";
const LEGACY: &str = "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset";
const DRAFT_7: &str = "ratelimit ratelimit-policy";

#[tokio::test]
async fn of_a_file_and_of_a_rule() {
    // What the file says and the rule `api`, and what this one answers and another one.
    for case in [
        "|  -> 429 D7 | 429 D7",
        "headers = 'draft-11' |  -> 429 D7 | 429 D7",
        "headers = 'draft-7' |  -> 429 D7 | 429 D7",
        "headers = 'draft-6'; status = 503 |  -> 503 D6 | 503 D6",
        "headers = 'legacy' | headers = 'none'; status = 400 -> 400 | 429 LEGACY",
        "status = 599 | headers = 'github' -> 599 LEGACY | 599 D7",
    ] {
        let (said, expected) = case.split_once(" -> ").expect("two answers");
        let (top, rule) = said.split_once('|').expect("a rule");
        let limits = of_toml(&toml(top, &format!("{NONE}{rule}")));
        let seen = [
            shown(&limits, "api", "").await,
            shown(&limits, "other", "").await,
        ];
        let seen = seen.each_ref().map(|it| it.trim_end()).join(" | ");
        let expected = expected.replace("D7", DRAFT_7).replace("D6", DRAFT_6);
        assert_eq!(seen, expected.replace("LEGACY", LEGACY), "{case}");
        assert_eq!(limits.warnings(), [], "{case}");
    }
    // Who is admitted has the fields, too.
    let limits = of_toml(&toml("headers = \"legacy\"; status = 403", ONE));
    assert_eq!(shown(&limits, "api", "").await, format!("200 {LEGACY}"));
    assert_eq!(shown(&limits, "api", "").await, format!("403 {LEGACY}"));
}

/// The document says the status that it has.
#[tokio::test]
async fn the_default_answer_alone() {
    let rules = "status = 403\n[rules]\nquotas = { MAX }\nbusy = { max-concurrent = 1 }\n\
         never = { max-count = 1, window = '1m', cost = 1 }\n\
         locked = { max-count = 9, window = '1m', \
         lockout = { after = 1, within = '1m', hold = ['1m'], on = ['401'] } }";
    let rules = rules.replace("MAX", "max-count = 0, window = '1m'");
    let limits = of_toml(&rules);
    let key = Header::new("x-key").key("one");
    let running = limits.check("busy", key.clone()).await.expect("the first");
    let body = async |layer: RateLimitLayer| {
        let layer = layer.key(Header::new("x-key"));
        let handler = any(async || StatusCode::UNAUTHORIZED);
        let app = Router::new().route("/", handler.layer(layer));
        let mut last = None;
        for _ in 0..2 {
            last = Some(call(&app, post("/", "x-key: one")).await);
        }
        let last = last.expect("an answer");
        assert_eq!(last.status(), 403);
        let body: Value = serde_json::from_str(&text(last).await).expect("JSON");
        assert_eq!(body["status"], 403, "{body}");
        body["title"].as_str().expect("a title").to_owned()
    };
    for (layer, title) in [
        (limits.layer("quotas"), "quota has been exceeded"),
        (limits.layer("busy"), "are in progress"),
        (limits.layer("never").cost(|_| 2), "quota has been exceeded"),
        (limits.layer("locked"), "abnormal request pattern"),
    ] {
        let shown = body(layer).await;
        assert!(shown.ends_with(title), "{shown}");
    }
    drop(running);
    let refused = limits.check("quotas", key).await.expect_err("denied");
    assert_eq!(refused.into_response().status(), 403);
}

/// Clients of a protocol read a status of their own, and a 503 without a decision is no denial.
#[tokio::test]
async fn protocols_and_failures_keep_theirs() {
    let limits = of_toml(&toml("status = 403", NONE));
    let layer = || limits.layer("api").headers(Headers::None);
    let connect = "content-type: application/json, connect-protocol-version: 1";
    for (layer, fields, status) in [
        (layer(), "", "403 "),
        (layer().form(Form::Http), connect, "403 "),
        (layer(), "content-type: application/grpc", "200 "),
        (layer(), connect, "429 "),
        (layer().form(Form::JsonRpc), "", "429 "),
        (layer().store(no_store()), "", "403 "),
        (layer().key(Header::new("x-user")), "", "400 "),
    ] {
        assert_eq!(shown_by(layer, fields).await, status, "{fields}");
    }
    let undecided = of_toml(&toml("status = 403", ONE)).store(no_store());
    let undecided = undecided.layer("api").headers(Headers::None);
    assert_eq!(shown_by(undecided, "").await, "503 ");
}

#[tokio::test]
async fn a_reload_changes_both() {
    let limits = of_toml(&toml("", NONE));
    let layer = limits.layer("api");
    for (top, rule, expected) in [
        ("", "", format!("429 {DRAFT_7}")),
        ("headers = \"draft-6\"", "", format!("429 {DRAFT_6}")),
        ("", "status = 418; headers = \"none\"", "418 ".to_owned()),
        ("status = 420", "", format!("420 {DRAFT_7}")),
        ("", "", format!("429 {DRAFT_7}")),
    ] {
        let rules = Rules::from_toml(&toml(top, &format!("{NONE}{rule}")));
        limits.rules().replace(rules.expect("valid"));
        assert_eq!(shown_by(layer.clone(), "").await, expected, "{top} {rule}");
    }
}

#[tokio::test]
async fn what_code_says_wins_with_a_warning() {
    let both = "headers = \"legacy\"; status = 403";
    let callback = async |_| StatusCode::CONFLICT;
    for (top, code, expected, warned) in [
        (both, "", "403 x", None),
        (both, "headers", "403 r", Some("headers")),
        (both, "degrade", "409 x", Some("status")),
        (both, "headers degrade", "409 r", Some("headers and status")),
        ("", "headers degrade", "409 r", None),
        ("status = 403", "headers", "403 r", None),
    ] {
        let mut limits = of_toml(&toml(top, NONE));
        if code.contains("headers") {
            limits = limits.headers(Headers::Draft11);
        }
        if code.contains("degrade") {
            limits = limits.degrade_fn(callback);
        }
        let seen = shown(&limits, "api", "").await;
        assert!(seen.starts_with(expected), "{top} {code}: {seen}");
        let found = limits.warnings();
        let names: Vec<_> = found.iter().map(|it| it.name.as_deref()).collect();
        assert_eq!(names, warned.map(Some).into_iter().collect::<Vec<_>>());
        let is_told = |it: &tidegate::warning::Warning| it.kind == WarningKind::HiddenByCode;
        assert!(found.iter().all(is_told), "{found:?}");
    }
}

#[test]
fn mistakes() {
    const STATUS: &str = "expected 400 to 599: a denial is no success";
    for (top, rule, expected) in [
        ("status = 200", "", &*format!("line 1: status: {STATUS}")),
        (
            "",
            "status = 600",
            &format!("line 6: rules.api.status: {STATUS}"),
        ),
        (
            "headers = \"draft-8\"",
            "",
            "line 1: headers: found \"draft-8\", expected \"draft-11\", \"draft-7\", \"draft-6\", \
             \"legacy\", \"github\" or \"none\"",
        ),
        (
            "",
            "status = \"403\"",
            "line 6: rules.api.status: found \"403\", expected a whole number, 0 or more",
        ),
    ] {
        let error = Rules::from_toml(&toml(top, &format!("{ONE}{rule}"))).expect_err("a mistake");
        assert_eq!(error.to_string(), expected);
    }
    let outgoing = "[rules.api]\nmax-count = 1\nwindow = \"1m\"\noutgoing = true\nstatus = 403";
    let error = Rules::from_toml(outgoing)
        .expect_err("a mistake")
        .to_string();
    assert!(error.contains("no client gets an answer"), "{error}");
}
