//! Configuration files: what they mean, and what is said of mistakes.

use std::fs;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tidegate::algorithm::AlgorithmConfig;
use tidegate::key::PeerAddr;
use tidegate::{Algorithm, Limits, MemoryStore, Rules, Store};
use tower::ServiceExt;

const EXAMPLE: &str = r#"
enabled = true
prefix = "CurrentLimiter:"

[client-ip]
trusted = ["10.0.0.0/8", "192.0.2.1"]
field = "Forwarded"
ipv6-prefix = 56

[rules.getId]
max-count = 5
window = "10s"

[rules.export]
max-count = 1
window-time = 2
window-time-unit = "MINUTES"

[rules."/odd: {path}"]
max-count = 1_000_000
window = "1h 30m"

[rules.search]
max-count = 100
window = "1s"
algorithm = "gcra"
burst = 20

[rules.feed]
max-count = 1000
window = "1h"
algorithm = "sliding-window"
sub-windows = 16

[rules.login]
quotas = [
  { max-count = 5, window = "1m" },
  { max-count = 50, window = "1d", name = "daily" },
]
key = ["client-ip", "header:x-tenant"]
cost = 2
on-error = "proceed"
"#;

#[test]
fn algorithms() {
    let rules = Rules::from_toml(EXAMPLE).expect("a valid file");
    let rule = |path: &'static str| rules.get(path).expect("a rule");
    let counting = |path| rule(path).algorithm();
    assert_eq!(counting("getId"), Algorithm::SlidingLog.into());
    assert_eq!(counting("search"), Algorithm::Gcra.into());
    let bursts = |path| rule(path).quotas()[0].burst();
    assert_eq!((bursts("search"), bursts("getId")), (20, 5));
    let sixteen = AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(16);
    assert_eq!(counting("feed"), sixteen);

    let of = |more: &str| of_rule(&format!("max-count = 5\nwindow = \"1s\"\n{more}"));
    insta::assert_snapshot!(of("algorithm = \"token-bucket\""), @r#"line 5: rules.getId.algorithm: found "token-bucket", expected one of "sliding-log", "sliding-window", "gcra", "fixed-window""#);
    let text = EXAMPLE.replace("\"gcra\"", "\"leaky-bucket\"");
    let named = Rules::from_toml(&text).expect("a valid file");
    let leaky = named.get("search").expect("a rule");
    assert_eq!(leaky.algorithm(), Algorithm::Gcra.into());
    insta::assert_snapshot!(of("burst = 7"), @r#"line 5: rules.getId.burst: only algorithm = "gcra" has a burst"#);
    insta::assert_snapshot!(of("algorithm = \"gcra\"\nburst = 0"), @"line 6: rules.getId.burst: the burst is zero and would deny every request, expected at least 1");
    insta::assert_snapshot!(of("algorithm = \"gcra\"\nburst = 99999999999"), @"line 6: rules.getId.burst: the burst is too large, expected what comes back in at most ten years (3652.5 days)");
    insta::assert_snapshot!(of("algorithm = \"gcra\"\nburst = 2\ncost = 3"), @"line 7: rules.getId.cost: more than max-count (or burst), so that no request would ever be allowed");
    insta::assert_snapshot!(of("sub-windows = 16"), @r#"line 5: rules.getId.sub-windows: only algorithm = "sliding-window" has sub-windows"#);
    insta::assert_snapshot!(of("algorithm = \"sliding-window\"\nsub-windows = 0"), @"line 6: rules.getId.sub-windows: expected 1 to 1024 sub-windows");
    insta::assert_snapshot!(of("algorithm = \"sliding-window\"\nsub-windows = 5000"), @"line 6: rules.getId.sub-windows: expected 1 to 1024 sub-windows");
}

#[test]
fn the_example() {
    let rules = Rules::from_toml(EXAMPLE).expect("a valid file");
    let shown: Vec<_> = rules
        .iter()
        .map(|rule| {
            let policies = rule.policies().iter();
            let policies = policies.map(|policy| format!("{} {}", policy.name(), policy.quota()));
            format!(
                "{} = {}",
                rule.path(),
                policies.collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    /odd: {path} = /odd: {path} 1000000 per 90m
    export = export 1 per 2m
    feed = feed 1000 per 1h
    getId = getId 5 per 10s
    login = login-1m 5 per 1m, daily 50 per 1d
    search = search 100 per 1s
    ");
    assert!(
        rules
            .iter()
            .all(|rule| rule.prefix() == Some("CurrentLimiter:"))
    );
    assert!(rules.is_enabled());
}

/// What key, cost, on-error and the addresses of clients do, and not only that they are read.
#[tokio::test]
async fn rules_do_what_they_say() {
    let rules = Rules::from_toml(&EXAMPLE.replace("proceed", "respond")).expect("a valid file");
    let limits = Limits::new(rules);
    let ask = async |limits: &Limits, client: &str, tenant: &str| {
        let app = Router::new().route("/", get(|| async { "" }).layer(limits.layer("login")));
        let request = Request::get("/")
            .extension(PeerAddr(([10, 0, 0, 1], 1).into()))
            .header("forwarded", format!("for=\"{client}\""))
            .header("x-tenant", tenant)
            .body(Body::empty())
            .expect("a valid request");
        let response = app.oneshot(request).await.expect("axum does not fail");
        let remaining = response.headers().get("ratelimit").map(|field| {
            let field = field.to_str().expect("printable");
            field.split([';', ',']).nth(1).expect("r").to_owned()
        });
        (response.status().as_u16(), remaining)
    };
    let left = |left: &str| (200, Some(format!("r={left}")));
    // Two units a request, of five.
    assert_eq!(ask(&limits, "198.51.100.1", "a").await, left("3"));
    assert_eq!(ask(&limits, "198.51.100.1", "a").await, left("1"));
    assert_eq!(ask(&limits, "198.51.100.1", "a").await.0, 429);
    // Another tenant, another client.
    assert_eq!(ask(&limits, "198.51.100.1", "b").await, left("3"));
    assert_eq!(ask(&limits, "198.51.100.2", "a").await, left("3"));
    // One network of 56 bits is one client.
    assert_eq!(ask(&limits, "[2001:db8:0:1::1]", "a").await, left("3"));
    assert_eq!(ask(&limits, "[2001:db8:0:2::9]", "a").await, left("1"));

    let nowhere = || Arc::new(MemoryStore::with_max_keys(0));
    let respond = limits.store(nowhere());
    assert_eq!(ask(&respond, "198.51.100.1", "a").await, (503, None));
    let proceed = Limits::from_toml(EXAMPLE)
        .expect("a valid file")
        .store(nowhere());
    assert_eq!(ask(&proceed, "198.51.100.1", "a").await, (200, None));
}

#[test]
fn nothing_is_a_valid_configuration() {
    let rules = Rules::from_toml("").expect("a valid file");
    assert!(rules.is_enabled() && rules.iter().next().is_none());
    let rules = Rules::from_toml(&EXAMPLE.replace("enabled = true", "enabled = false"));
    let rules = rules.expect("a valid file");
    assert!(rules.get("getId").is_none() && rules.iter().count() == 6);
}

/// A rule that is switched off is checked like any other, and passes requests.
#[test]
fn one_rule_is_switched_off() {
    let text = EXAMPLE.replacen("[rules.getId]", "[rules.getId]\nenabled = false", 1);
    let rules = Rules::from_toml(&text).expect("a valid file");
    assert!(rules.get("getId").is_none() && rules.get("export").is_some());
    assert_eq!(rules.iter().count(), 6);
    let on = text.replacen("enabled = false", "enabled = true", 1);
    let rules = Rules::from_toml(&on).expect("a valid file");
    assert!(rules.get("getId").is_some());
    insta::assert_snapshot!(of_rule("enabled = false"), @"line 2: rules.getId: no quota, expected max-count and window, quotas, or max-concurrent");
    insta::assert_snapshot!(of_rule("enabled = \"no\"\nmax-count = 1\nwindow = \"1s\""), @r#"line 3: rules.getId.enabled: found "no", expected true or false"#);
}

/// What is said of a text, without a file.
fn said(text: &str) -> String {
    match Rules::from_toml(text) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// What is said of a rule with these lines; the first of them is line 3.
fn of_rule(lines: &str) -> String {
    said(&format!(
        "# limits\n[rules.getId]\n{lines}\n[rules.last]\nmax-count = 1\nwindow = \"1s\"\n"
    ))
}

/// The parser gives up on these without saying where.
#[test]
fn tables_nested_too_deeply() {
    let deep = vec!["a"; 200].join(".");
    let told = |text: String| Rules::from_toml(&text).expect_err("wrong").to_string();
    insta::assert_snapshot!(told(format!("enabled = true\n\n[{deep}]\nb = 1\n[rules]\n")), @"recursion limit");
    insta::assert_snapshot!(told(format!("[{deep}]")), @"recursion limit");
}

#[test]
fn mistakes_in_windows() {
    let window = |value: &str| of_rule(&format!("max-count = 5\nwindow = {value}"));
    insta::assert_snapshot!(window("\"0s\""), @"line 4: rules.getId.window: the window is zero, expected at least 1 ms");
    insta::assert_snapshot!(window("\"10 parsecs\""), @r#"line 4: rules.getId.window: found "10 parsecs", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(window("\"10\""), @r#"line 4: rules.getId.window: found "10", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(window("\"99999999999999999999y\""), @r#"line 4: rules.getId.window: found "99999999999999999999y", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(window("\"18446744073709551615s 1000ms\""), @r#"line 4: rules.getId.window: found "18446744073709551615s 1000ms", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(window("\"1h 5 parsecs\""), @r#"line 4: rules.getId.window: found "1h 5 parsecs", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(window("\"20y\""), @"line 4: rules.getId.window: the window is too long, expected at most ten years (3652.5 days)");
    insta::assert_snapshot!(window("10"), @r#"line 4: rules.getId.window: found 10, expected a duration such as "10s", "500ms" or "1h 30m""#);

    for years in ["10years", "10y", "3652d 12h", "3650d"] {
        let text = format!("[rules.a]\nmax-count = 5\nwindow = \"{years}\"");
        let rules = Rules::from_toml(&text).expect("up to ten years");
        assert!(
            rules.get("a").expect("the rule").quotas()[0].window() <= tidegate::Quota::MAX_WINDOW
        );
    }
    insta::assert_snapshot!(window("\"10years 1ms\""), @"line 4: rules.getId.window: the window is too long, expected at most ten years (3652.5 days)");

    let days = "max-count = 5\nwindow-time = 5000000000\nwindow-time-unit = \"MILLISECONDS\"";
    let rules = Rules::from_toml(&format!("[rules.a]\n{days}")).expect("57 days");
    let window = rules.get("a").expect("the rule").quotas()[0].window();
    assert_eq!(window.as_millis(), 5_000_000_000);

    let time = |lines: &str| of_rule(&format!("max-count = 5\n{lines}"));
    insta::assert_snapshot!(time("window-time = 10\nwindow-time-unit = \"FORTNIGHTS\""), @r#"line 5: rules.getId.window-time-unit: found "FORTNIGHTS", expected "MILLISECONDS", "SECONDS", "MINUTES", "HOURS" or "DAYS""#);
    insta::assert_snapshot!(time("window-time = 0\nwindow-time-unit = \"SECONDS\""), @"line 4: rules.getId.window-time: the window is zero, expected at least 1 ms");
    insta::assert_snapshot!(time("window-time = 4000000000\nwindow-time-unit = \"DAYS\""), @"line 4: rules.getId.window-time: the window is too long, expected at most ten years (3652.5 days)");
    insta::assert_snapshot!(time("window-time = 10"), @"line 4: rules.getId.window-time: a time without its unit, expected window-time-unit");
    insta::assert_snapshot!(time("window-time-unit = \"SECONDS\""), @"line 4: rules.getId.window-time-unit: a unit without its time, expected window-time");
    insta::assert_snapshot!(time("window = \"1s\"\nwindow-time = 10"), @"line 4: rules.getId.window: both window and window-time, expected one of them");
    insta::assert_snapshot!(time(""), @"line 3: rules.getId.max-count: a max-count without a window, expected both");
}

#[test]
fn mistakes_in_counts() {
    let max = |value: &str| of_rule(&format!("window = \"1s\"\nmax-count = {value}"));
    insta::assert_snapshot!(max("-1"), @"line 4: rules.getId.max-count: found -1, expected a whole number, 0 or more");
    insta::assert_snapshot!(max("1.5"), @"line 4: rules.getId.max-count: found 1.5, expected a whole number, 0 or more");
    insta::assert_snapshot!(max("9999999999999999"), @"line 4: rules.getId.max-count: the max count is too large, expected at most 999999999999999");
    insta::assert_snapshot!(max("99999999999999999999"), @"line 4: rules.getId.max-count: the max count is too large, expected at most 999999999999999");
    insta::assert_snapshot!(of_rule("window = \"1s\""), @"line 2: rules.getId: a window without max-count, expected both");
    insta::assert_snapshot!(of_rule("max-count = 1\nwindow = \"1s\"\ncost = 0"), @"line 5: rules.getId.cost: requests that cost 0 are not limited, expected 1 or more");
    insta::assert_snapshot!(of_rule("max-count = 5\nwindow = \"1s\"\ncost = 6"), @"line 5: rules.getId.cost: more than max-count (or burst), so that no request would ever be allowed");
    insta::assert_snapshot!(of_rule("key = \"everyone\""), @"line 2: rules.getId: no quota, expected max-count and window, quotas, or max-concurrent");
    insta::assert_snapshot!(of_rule("quotas = []"), @"line 2: rules.getId: 0 quotas, expected 1 to 16");
    insta::assert_snapshot!(of_rule("max-count = 1\nquotas = [{ max-count = 5, window = \"1m\" }]"), @"line 4: rules.getId.quotas: two ways at once, expected either max-count and window, or quotas");
    insta::assert_snapshot!(of_rule("quotas = [\n  { max-count = 5, window = \"1m\" },\n  { max-count = 9, window = \"1mm\" },\n]"), @r#"line 5: rules.getId.quotas.window: found "1mm", expected a duration such as "10s", "500ms" or "1h 30m""#);
    insta::assert_snapshot!(of_rule("quotas = [{ max-count = 5, window = \"1m\" }, { max-count = 9, window = \"1m\" }]"), @r#"line 2: rules.getId: two quotas are named "getId-1m", expected a name of its own for each"#);
}

#[test]
fn mistakes_in_names() {
    let with = |line: &str| of_rule(&format!("max-count = 1\nwindow = \"1s\"\n{line}"));
    insta::assert_snapshot!(with("max_count = 1"), @"line 5: rules.getId.max_count: unknown field `max_count`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `permit-lease`, `busy-retry-after`, `quotas`, `algorithm`, `sub-windows`, `enabled`, `key`, `client-ip`, `exempt`, `cost`, `on-error`, `lease`, `refund-on`, `settles`, `owe-at-most`, `shadow`, `plans`, `outgoing`, `hold-at-most`");
    insta::assert_snapshot!(with("key = \"ip\""), @r#"line 5: rules.getId.key: found "ip", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(with("key = [\"everyone\", \"header:a b\"]"), @r#"line 5: rules.getId.key: found "header:a b", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(with("key = []"), @r#"line 5: rules.getId.key: an empty list, expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(with("key = 7"), @r#"line 5: rules.getId.key: found 7, expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(with("on-error = \"ignore\""), @r#"line 5: rules.getId.on-error: found "ignore", expected "respond", "proceed" or "fallback""#);
    insta::assert_snapshot!(said("enable = true"), @"line 1: enable: unknown field `enable`, expected one of `enabled`, `shadow`, `prefix`, `client-ip`, `exempt`, `rules`");
    insta::assert_snapshot!(said("[rule.getId]\nmax-count = 1"), @"line 1: rule: unknown field `rule`, expected one of `enabled`, `shadow`, `prefix`, `client-ip`, `exempt`, `rules`");
    insta::assert_snapshot!(said("[rules.\"\"]\nmax-count = 1\nwindow = \"1s\""), @r#"line 1: rules."": the path is empty, expected the name of what is limited"#);
    insta::assert_snapshot!(said("rules = 7"), @"line 1: rules: found 7, expected tables of rules: [rules.<path>]");
    insta::assert_snapshot!(said("enabled = \"yes\""), @r#"line 1: enabled: found "yes", expected true or false"#);
    insta::assert_snapshot!(said("[client-ip]\ntrusted = [\"10.0.0.0/33\"]"), @r#"line 2: client-ip.trusted: found "10.0.0.0/33", expected a network such as "10.0.0.0/8", or an address"#);
    insta::assert_snapshot!(said("[client-ip]\nhops = 65"), @"line 2: client-ip.hops: more proxies than expected, 0 to 64");
    insta::assert_snapshot!(said("[client-ip]\nhops = 99999999999999"), @"line 2: client-ip.hops: more proxies than expected, 0 to 64");
    Rules::from_toml("[client-ip]\nhops = 64").expect("as many as are read");
    insta::assert_snapshot!(said("[client-ip]\ntrusted = []\nhops = 1"), @"line 1: client-ip: both trusted and hops, expected one of them");
    insta::assert_snapshot!(said("[client-ip]\nfield = \"a b\""), @r#"line 2: client-ip.field: found "a b", expected the name of a header field"#);
    insta::assert_snapshot!(said("[client-ip]\ntrusted = []\nipv6-prefix = 129"), @"line 3: client-ip.ipv6-prefix: more bits than an address has, expected 0 to 128");
}

#[test]
fn mistakes_in_toml() {
    insta::assert_snapshot!(said("[rules.getId\nmax-count = 5"), @"line 1: unclosed table, expected `]`");
    insta::assert_snapshot!(said("[rules./login]\nmax-count = 5"), @r#"line 1: invalid unquoted key, expected letters, numbers, `-`, `_`, or quotes as in [rules."/login"]"#);
    insta::assert_snapshot!(said("\n\nwindow = "), @"line 3: window: no value, expected a number, true, false, or text in quotes");
}

/// The key and its line are named, although such a text cannot be parsed.
#[test]
fn duplicate_keys() {
    let of_a = |lines: &str| {
        said(&format!(
            "[rules.b]\n[rules.a]\n{lines}\n[rules.c]\ncost = 1"
        ))
    };
    insta::assert_snapshot!(of_a("window = \"1s\"\nmax-count = 5\nwindow = \"2s\""), @"line 5: window: duplicate key, expected it only once");
    insta::assert_snapshot!(of_a("cost = 1\n[rules.b]"), @"line 4: b: duplicate key, expected it only once");
    insta::assert_snapshot!(of_a("cost = 1\n  \"cost\" = 2"), @r#"line 4: "cost": duplicate key, expected it only once"#);
    insta::assert_snapshot!(of_a("quotas = [\n  { name = \"a\" },\n  { name = \"b\", name = \"c\" },\n]"), @"line 5: name: duplicate key, expected it only once");
    insta::assert_snapshot!(of_a("[[rules.a.quotas]]\nname = \"a\"\n[[rules.a.quotas]]\nname = \"b\"\nname = \"c\""), @"line 7: name: duplicate key, expected it only once");
    insta::assert_snapshot!(of_a("[[rules.b]]"), @"line 3: b: duplicate key, expected it only once");
    insta::assert_snapshot!(said("enabled = true\nenabled = true\n[rules.a]"), @"line 2: enabled: duplicate key, expected it only once");
    insta::assert_snapshot!(said("[rules]\na.cost = 1\na.cost = 2"), @"line 3: cost: duplicate key, expected it only once");
    insta::assert_snapshot!(said("[rules.\"/a b\"]\ncost = 1\ncost = 2"), @r#"line 3: cost: duplicate key, expected it only once"#);
    insta::assert_snapshot!(said("[client-ip]\nhops = 1\n[client-ip]"), @"line 3: client-ip: duplicate key, expected it only once");
}

#[test]
fn paths_with_dots_need_quotes() {
    let of = |path: &str| said(&format!("[rules.{path}]\nmax-count = 5\nwindow = \"1s\""));
    insta::assert_snapshot!(of("\"api.v1\""), @"nothing");
    insta::assert_snapshot!(of("api.v1"), @r#"line 1: rules.api.v1: a table inside of a rule, expected quotes around a path with dots, as in [rules."api.v1"]"#);
    insta::assert_snapshot!(of("api.v1.users"), @r#"line 1: rules.api.v1: a table inside of a rule, expected quotes around a path with dots, as in [rules."api.v1"]"#);
    insta::assert_snapshot!(of("api.key"), @r#"line 1: rules.api.key: a table inside of a rule, expected quotes around a path with dots, as in [rules."api.v1"]"#);
    insta::assert_snapshot!(of("getId.quotas"), @r#"line 1: rules.getId.quotas: found a table, expected a list of quotas: { max-count = 5, window = "1m" }"#);
    insta::assert_snapshot!(said("[rules]\napi.v1 = { max-count = 5, window = \"1s\" }"), @r#"line 2: rules.api.v1: a table inside of a rule, expected quotes around a path with dots, as in [rules."api.v1"]"#);
    let both = "[rules.api]\nmax-count = 1\nwindow = \"1s\"\n[rules.api.v1]\nmax-count = 1";
    insta::assert_snapshot!(said(both), @r#"line 4: rules.api.v1: a table inside of a rule, expected quotes around a path with dots, as in [rules."api.v1"]"#);
}

/// Without it the proxy would be counted, and with it all clients together.
#[test]
fn the_key_client_ip_needs_its_table() {
    let of = |key: &str| of_rule(&format!("max-count = 1\nwindow = \"1s\"\nkey = {key}"));
    insta::assert_snapshot!(of("\"client-ip\""), @r#"line 5: rules.getId.key: the key "client-ip" without a table [client-ip], expected one that says which proxies are trusted: trusted = ["10.0.0.0/8"] or hops = 1; trusted = [] if clients connect directly"#);
    insta::assert_snapshot!(of("[\"everyone\", \"client-ip\"]"), @r#"line 5: rules.getId.key: the key "client-ip" without a table [client-ip], expected one that says which proxies are trusted: trusted = ["10.0.0.0/8"] or hops = 1; trusted = [] if clients connect directly"#);
    insta::assert_snapshot!(said("[client-ip]\nfield = \"forwarded\""), @r#"line 1: client-ip: neither trusted nor hops, expected trusted = ["10.0.0.0/8"] (the networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect directly"#);
    let rule = "[rules.a]\nmax-count = 1\nwindow = \"1s\"\nkey = \"client-ip\"";
    for trust in ["trusted = []", "trusted = [\"10.0.0.0/8\"]", "hops = 1"] {
        assert_eq!(said(&format!("{rule}\n[client-ip]\n{trust}")), "nothing");
    }
}

/// A message fits on a screen, whatever stands in the file.
#[test]
fn long_values_are_cut() {
    let long = "x".repeat(100_000);
    let shown = "x".repeat(100) + "…";
    let rule = |line: &str| said(&format!("[rules.a]\n{}", line.replace("LONG", &long)));
    for line in [
        "max-count = 1\nwindow = \"LONG\"",
        "max-count = 1\nwindow = \"5LONG\"",
        "max-count = \"LONG\"\nwindow = \"1s\"",
        "max-count = 1\nwindow = \"1s\"\nkey = \"LONG\"",
        "max-count = 1\nwindow = \"1s\"\nkey = \"header:LONG LONG\"",
        "max-count = 1\nwindow = \"1s\"\nkey = [\"everyone\", \"LONG\"]",
        "max-count = 1\nwindow = \"1s\"\non-error = \"LONG\"",
        "algorithm = \"LONG\"",
        "max-count = 1\nwindow-time = 1\nwindow-time-unit = \"LONG\"",
        "LONG = 1",
        "quotas = [{ max-count = 1, window = \"1s\", name = \"LONG\" }, { max-count = 1, window = \"2s\", name = \"LONG\" }]",
        "[client-ip]\ntrusted = [\"LONG\"]",
        "[client-ip]\nfield = \"LONG LONG\"",
    ] {
        let said = rule(line);
        assert!(said.contains(&shown[10..]), "{line}: {said}");
        assert!(said.contains("expected"), "{line}: {said}");
        assert!(said.chars().count() < 700, "{line}: {said}");
    }
    for text in [
        "enabled = \"LONG\"",
        "LONG = 1",
        "[rules.LONG]",
        "[rules.LONG]\nmax-count = -1",
        "[rules.LONG.LONG]\na = 1",
        "[rules.a]\n[rules.LONG]\n[rules.LONG]",
    ] {
        let said = said(&text.replace("LONG", &long));
        assert!(said.contains("expected"), "{text}: {said}");
        assert!(said.chars().count() < 900, "{text}: {said}");
    }
}

#[test]
fn files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    let show = |error: &dyn std::error::Error| {
        error
            .to_string()
            .replace(folder.path().to_str().expect("a path of text"), "")
    };
    let error = Rules::from_file(&path).expect_err("no such file");
    insta::assert_snapshot!(show(&error), @"/limits.toml: cannot be read: No such file or directory (os error 2)");
    assert!(std::error::Error::source(&error).is_some());

    fs::write(&path, "[rules.getId]\nmax-count = 5\nwindow = \"0s\"\n").expect("is written");
    let error = Rules::from_file(&path).expect_err("a zero window");
    insta::assert_snapshot!(show(&error), @"/limits.toml:3: rules.getId.window: the window is zero, expected at least 1 ms");
    assert_eq!(
        (error.line(), error.key()),
        (Some(3), Some("rules.getId.window"))
    );
    assert_eq!(error.file(), Some(&*path));

    fs::write(&path, b"\xff\xfe").expect("is written");
    insta::assert_snapshot!(show(&Rules::from_file(&path).expect_err("no text")), @"/limits.toml: cannot be read: stream did not contain valid UTF-8");
}

/// Law 12: a bad reload keeps the old rules and says why.
#[test]
fn a_bad_reload_keeps_the_old_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    fs::write(&path, EXAMPLE).expect("is written");
    let limits = Limits::from_file(&path).expect("a valid file");
    fs::write(&path, EXAMPLE.replace("\"10s\"", "\"10x\"")).expect("is written");
    let error = limits.reload(&path).expect_err("an unknown unit");
    assert_eq!(error.key(), Some("rules.getId.window"));
    assert_eq!(limits.rules().load().iter().count(), 6);
    fs::write(&path, "enabled = false").expect("is written");
    limits.reload(&path).expect("a valid file");
    assert!(!limits.rules().load().is_enabled());
}

/// A path with a slip of the pen would not be limited, and nobody would know.
#[test]
fn paths_without_a_rule_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    fs::write(&path, EXAMPLE).expect("is written");
    let limits = Limits::from_file(&path).expect("a valid file");
    assert!(limits.paths_without_rule().is_empty());

    let clone = limits.clone();
    let _ = ["getid", "getId", "about", "getid"].map(|path| clone.layer(path));
    assert_eq!(limits.paths_without_rule(), ["about", "getid"]);

    let more = EXAMPLE.replace("[rules.export]", "[rules.getid]");
    fs::write(&path, &more).expect("is written");
    limits.reload(&path).expect("a valid file");
    assert_eq!(clone.paths_without_rule(), ["about"]);
    let _ = limits.layer("export");
    assert_eq!(
        clone.paths_without_rule(),
        ["about", "export"],
        "it is gone"
    );

    fs::write(&path, more.replace("enabled = true", "enabled = false")).expect("is written");
    limits.reload(&path).expect("a valid file");
    assert_eq!(
        limits.paths_without_rule(),
        ["about", "export"],
        "disabled rules are rules"
    );
}

#[test]
fn a_path_without_a_rule_is_told_once() {
    let log = kit::log::Log::start();
    let limits = Limits::from_toml(EXAMPLE).expect("a valid file");
    let _ = ["getId", "typo", "typo"].map(|path| limits.layer(path));
    let _ = limits.clone().layer("typo");
    let [line] = &*log.lines() else {
        panic!("not one line");
    };
    assert!(line.contains("WARN") && line.contains("no rule"), "{line}");
    assert!(line.contains("typo"), "{line}");
    let _ = limits.layer("another");
    assert_eq!(log.lines().len(), 1);
}

/// As it is, behind an `Arc`, or behind one without its type.
#[tokio::test]
async fn stores_of_all_shapes() {
    let full = || MemoryStore::with_max_keys(0);
    let limits = || Limits::from_toml("[rules.a]\nmax-count = 1\nwindow = \"1s\"");
    let untyped: Arc<dyn Store> = Arc::new(full());
    for limits in [
        limits().map(|limits| limits.store(full())),
        limits().map(|limits| limits.store(Arc::new(full()))),
        limits().map(|limits| limits.store(untyped)),
    ] {
        let layer = limits.expect("a valid file").layer("a");
        let app = Router::new().route("/", get(|| async { "" }).layer(layer));
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let response = app.oneshot(request).await.expect("axum does not fail");
        assert_eq!(response.status().as_u16(), 503, "it is full");
    }
}

proptest::proptest! {
    #![proptest_config(kit::random::config(256))]

    /// Whatever stands in a file, it is rules or one line that says where.
    #[test]
    fn any_text_is_rules_or_an_error(text in "([a-z-]{1,9} = |\\[[a-z.]{1,12}\\]|[0-9\"{}\\[\\],\n= ]){0,30}") {
        if let Err(error) = Rules::from_toml(&text) {
            proptest::prop_assert!(!error.to_string().contains('\n'));
        }
    }

    /// A valid file with one character changed never panics, and never loads in half.
    #[test]
    fn a_slip_of_the_pen(at in 0..EXAMPLE.len(), char in "[ -~\n]") {
        let mut text = EXAMPLE.to_owned();
        text.replace_range(at..=at, &char);
        match Rules::from_toml(&text) {
            Ok(rules) => proptest::prop_assert!(rules.iter().count() >= 2),
            Err(error) => proptest::prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

#[test]
fn leases() {
    let with = |line: &str| of_rule(&format!("max-count = 1000\nwindow = \"10s\"\n{line}"));
    let rules = Rules::from_toml("[rules.a]\nmax-count = 9\nwindow = \"10s\"\nlease = \"50ms\"");
    let rule = rules.expect("valid").get("a").expect("a rule").lease();
    assert_eq!(rule, Some(std::time::Duration::from_millis(50)));
    insta::assert_snapshot!(with("lease = \"50ms\"\nalgorithm = \"gcra\""), @"line 5: rules.getId.lease: no leases under gcra, expected sliding-log, sliding-window or fixed-window");
    insta::assert_snapshot!(with("lease = 50"), @r#"line 5: rules.getId.lease: found 50, expected a duration such as "10s", "500ms" or "1h 30m""#);
}

#[test]
fn outcomes() {
    let with = |line: &str| of_rule(&format!("max-count = 5\nwindow = \"10s\"\n{line}"));
    insta::assert_snapshot!(with("refund-on = [\"2xx\", \"20x\"]"), @r#"line 5: rules.getId.refund-on: found "20x", expected "1xx" to "5xx", a status such as "304", "grpc-0" to "grpc-16", "error", or "denied""#);
    insta::assert_snapshot!(with("refund-on = [304]"), @r#"line 5: rules.getId.refund-on: found 304, expected "1xx" to "5xx", a status such as "304", "grpc-0" to "grpc-16", "error", or "denied""#);
    insta::assert_snapshot!(with("refund-on = \"2xx\""), @r#"line 5: rules.getId.refund-on: found "2xx", expected a list of outcomes"#);
    insta::assert_snapshot!(with("refund-on = []"), @r#"line 5: rules.getId.refund-on: no outcome, expected "1xx" to "5xx", a status such as "304", "grpc-0" to "grpc-16", "error", or "denied""#);
    insta::assert_snapshot!(with("refund-on = [\"99\"]"), @r#"line 5: rules.getId.refund-on: found "99", expected "1xx" to "5xx", a status such as "304", "grpc-0" to "grpc-16", "error", or "denied""#);
    insta::assert_snapshot!(with("refund-on = [\"grpc-17\"]"), @r#"line 5: rules.getId.refund-on: found "grpc-17", expected "1xx" to "5xx", a status such as "304", "grpc-0" to "grpc-16", "error", or "denied""#);
    let text =
        "[rules.a]\nmax-count = 5\nwindow = \"10s\"\nrefund-on = [\"2xx\", \"2xx\", \"grpc-0\"]";
    assert!(Rules::from_toml(text).is_ok());
}

/// The parser names the place of what is not TOML, and no key. People forget quotes most often.
#[test]
fn values_without_quotes_name_their_key() {
    for (text, expected) in [
        (
            "rules.login = { max-count = twenty, window = \"1m\" }",
            "line 1: rules.login.max-count: found twenty, expected a number, true, false, or text in quotes",
        ),
        (
            "[rules.login]\nmax-count = 5\nwindow = 1m\n",
            "line 3: rules.login.window: found 1m, expected a number, true, false, or text in quotes",
        ),
        (
            "[rules]\nlogin = { window = \"1m\",max-count=twenty}",
            "line 2: rules.login.max-count: found twenty, expected a number, true, false, or text in quotes",
        ),
        (
            "enabled = yes",
            "line 1: enabled: found yes, expected a number, true, false, or text in quotes",
        ),
        (
            "enabled = ",
            "line 1: enabled: no value, expected a number, true, false, or text in quotes",
        ),
    ] {
        let error = tidegate::Rules::from_toml(text).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
}

/// A test that pauses time moves the limits of layers that were given no store, too.
#[tokio::test(start_paused = true)]
async fn paused_time_moves_the_default_store() {
    let of_limits =
        Limits::from_toml("rules.p = { max-count = 1, window = \"1m\" }").expect("valid");
    let fixed = tidegate::RateLimitLayer::new("p", crate::WINDOW, 1);
    for layer in [of_limits.layer("p"), fixed] {
        let app = axum::Router::new().route("/", axum::routing::get(async || "1").layer(layer));
        assert_eq!(crate::status(&app, "/").await, 200);
        assert_eq!(crate::status(&app, "/").await, 429);
        tokio::time::sleep(crate::WINDOW + std::time::Duration::from_millis(1)).await;
        assert_eq!(crate::status(&app, "/").await, 200);
    }
}

#[test]
fn alternatives_as_keys() {
    let said = |key: &str| -> String {
        let text = format!(
            "[rules.p]\nmax-count = 1\nwindow = \"1m\"\nkey = {key}\n[client-ip]\nhops = 1"
        );
        match Rules::from_toml(&text) {
            Ok(_) => "valid".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    for key in [
        "\"bearer | header:x-api-key | client-ip\"",
        "\"bearer|everyone\"",
        "[\"client-ip\", \"cookie:sid | everyone\", \"method\"]",
        "\"header:x-user\"",
    ] {
        assert_eq!(said(key), "valid", "{key}");
    }
    insta::assert_snapshot!(said("\"bearer | cookies:sid\""), @r#"line 4: rules.p.key: found "cookies:sid", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(said("\"bearer |\""), @r#"line 4: rules.p.key: found "", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(said("\"cookie:a b\""), @r#"line 4: rules.p.key: found "cookie:a b", expected "client-ip", "peer-ip", "bearer", "header:<name>", "cookie:<name>", "method", "matched-path" (with the feature "axum"), "everyone", or alternatives such as "bearer | client-ip""#);
    insta::assert_snapshot!(said("[\"method\", \"client-ip | bearer\"]"), @r#"line 4: rules.p.key: "client-ip" before other alternatives, expected it as the last one: every request has it"#);
}

/// What the guides show of files is read as they say.
#[test]
fn the_guides() {
    let mut blocks = 0;
    for page in fs::read_dir("docs").expect("the guides") {
        let page = page.expect("a file").path();
        let Ok(text) = fs::read_to_string(&page) else {
            continue;
        };
        let toml = text.split("```toml\n").skip(1);
        let toml = toml.map(|block| block.split("```").next().unwrap_or_default());
        for block in toml.filter(|block| !block.starts_with("tidegate = ")) {
            Rules::from_toml(block).unwrap_or_else(|error| panic!("{page:?}: {error}\n{block}"));
            blocks += 1;
        }
    }
    assert!(blocks >= 10, "{blocks} blocks");
}
