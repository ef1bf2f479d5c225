//! Configuration files: what they mean, and that whatever else stands in them is refused.

use std::error::Error;

use axum::response::Response;
use kit::root;

use crate::*;

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

fn rules(text: &str) -> Rules {
    Rules::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The only rule of a text.
fn rule(lines: &str) -> Arc<Rule> {
    let rules = rules(&format!("[rules.a]\n{lines}"));
    Arc::clone(rules.get("a").expect("the rule"))
}

/// What is said of a text, without a file.
fn said(text: &str) -> String {
    Rules::from_toml(text).expect_err(text).to_string()
}

#[test]
fn algorithms() {
    let rules = rules(EXAMPLE);
    let rule = |path: &'static str| rules.get(path).expect("a rule");
    let counting = |path| rule(path).algorithm();
    assert_eq!(counting("getId"), Algorithm::SlidingLog.into());
    assert_eq!(counting("search"), Algorithm::Gcra.into());
    let bursts = |path| rule(path).quotas()[0].burst();
    assert_eq!((bursts("search"), bursts("getId")), (20, 5));
    let sixteen = AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(16);
    assert_eq!(counting("feed"), sixteen);
    let named = self::rules(&EXAMPLE.replace("\"gcra\"", "\"leaky-bucket\""));
    let leaky = named.get("search").expect("a rule");
    assert_eq!(leaky.algorithm(), Algorithm::Gcra.into());
}

#[test]
fn the_example() {
    let rules = rules(EXAMPLE);
    let shown = rules.iter().map(|rule| {
        let policies = rule.policies().iter();
        let policies = policies.map(|policy| format!("{} {}", policy.name(), policy.quota()));
        let policies = policies.collect::<Vec<_>>().join(", ");
        format!("{} = {policies}", rule.path())
    });
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @"
    /odd: {path} = /odd: {path} 1000000 per 90m
    export = export 1 per 2m
    feed = feed 1000 per 1h
    getId = getId 5 per 10s
    login = login-1m 5 per 1m, daily 50 per 1d
    search = search 100 per 1s
    ");
    let prefix = Some("CurrentLimiter:");
    assert!(rules.iter().all(|rule| rule.prefix() == prefix));
    assert!(rules.is_enabled());
}

/// What key, cost, on-error and the addresses of clients do, and not only that they are read.
#[tokio::test]
async fn rules_do_what_they_say() {
    let limits = of_toml(&EXAMPLE.replace("proceed", "respond"));
    let ask = async |limits: &Limits, client: &str, tenant: &str| {
        let forwarded = format!("for=\"{client}\"");
        let fields = [("forwarded", &*forwarded), ("x-tenant", tenant)];
        let request = from("10.0.0.1", "/", &fields);
        let response = call(&app(limits.layer("login")), request).await;
        let remaining = |response: &Response| {
            let field = response.headers().get("ratelimit")?.to_str().ok()?;
            Some(field.split([';', ',']).nth(1)?.to_owned())
        };
        (response.status().as_u16(), remaining(&response))
    };
    let left = |left: &str| (200, Some(format!("r={left}")));
    for (client, tenant, expected) in [
        // Two units a request, of five.
        ("198.51.100.1", "a", left("3")),
        ("198.51.100.1", "a", left("1")),
        ("198.51.100.1", "a", (429, Some("r=1".to_owned()))),
        // Another tenant, another client.
        ("198.51.100.1", "b", left("3")),
        ("198.51.100.2", "a", left("3")),
        // One network of 56 bits is one client.
        ("[2001:db8:0:1::1]", "a", left("3")),
        ("[2001:db8:0:2::9]", "a", left("1")),
    ] {
        assert_eq!(ask(&limits, client, tenant).await, expected, "{client}");
    }
    let respond = limits.store(no_store());
    assert_eq!(ask(&respond, "198.51.100.1", "a").await, (503, None));
    let proceed = of_toml(EXAMPLE).store(no_store());
    assert_eq!(ask(&proceed, "198.51.100.1", "a").await, (200, None));
}

#[test]
fn nothing_is_a_valid_configuration() {
    let nothing = rules("");
    assert!(nothing.is_enabled() && nothing.iter().next().is_none());
    let off = rules(&EXAMPLE.replace("enabled = true", "enabled = false"));
    assert!(off.get("getId").is_none() && off.iter().count() == 6);
}

/// The parser gives up on these without saying where.
#[test]
fn tables_nested_too_deeply() {
    let deep = vec!["a"; 200].join(".");
    let after = format!("enabled = true\n\n[{deep}]\nb = 1\n[rules]\n");
    for text in [after, format!("[{deep}]")] {
        assert_eq!(said(&text), "recursion limit");
    }
}

#[test]
fn windows_of_up_to_ten_years() {
    for days in ["3652d 12h", "3650d", "521w"] {
        let rule = rule(&format!("max-count = 5\nwindow = \"{days}\""));
        assert!(rule.quotas()[0].window() <= Quota::MAX_WINDOW);
    }
    let days = "max-count = 5\nwindow-time = 5000000000\nwindow-time-unit = \"MILLISECONDS\"";
    let window = rule(days).quotas()[0].window();
    assert_eq!(window.as_millis(), 5_000_000_000);
}

/// Close to what is a mistake.
#[test]
fn what_is_valid() {
    let valid = "max-count = 5\nwindow = \"1s\"\n";
    for text in [
        "[client-ip]\nhops = 64".to_owned(),
        format!("[rules.\"api.v1\"]\n{valid}"),
        format!("[rules.a]\n{valid}refund-on = [\"2xx\", \"2xx\", \"grpc-0\"]"),
        "exempt.paths = [\"/caf%C3%A9\", \"/.well-known/a..b\", \"/%7E(a);b=1,@/\"]".to_owned(),
        format!("exempt.networks = [\"10.0.0.0/8\"]\n[rules.a]\n{valid}client-ip.hops = 1"),
        format!("[rules.a]\n{valid}key = \"bearer | client-ip\"\nclient-ip.hops = 1"),
        format!("[rules.a]\n{valid}key = \"bearer|everyone\""),
        format!("[rules.a]\n{valid}key = \"header:x-user\""),
    ] {
        rules(&text);
    }
    // Without its table the proxy would be counted, and with it all clients together.
    for trust in ["trusted = []", "trusted = [\"10.0.0.0/8\"]", "hops = 1"] {
        let key = "key = \"client-ip\"";
        rules(&format!("[rules.a]\n{valid}{key}\n[client-ip]\n{trust}"));
    }
    for key in [
        "\"bearer | header:x-api-key | client-ip\"",
        "[\"client-ip\", \"cookie:sid | everyone\", \"method\"]",
    ] {
        rules(&format!(
            "[rules.p]\n{valid}key = {key}\n[client-ip]\nhops = 1"
        ));
    }
    let quota = "max-count = 2, window = \"1s\", pace = \"even\"";
    let of_plan = "plans.busy.max-concurrent = 2\nplans.pro.quotas";
    let paced = rule(&format!(
        "quotas = [{{ {quota} }}]\n{of_plan} = [{{ {quota} }}]"
    ));
    assert_eq!(paced.algorithm(), Algorithm::Gcra.into());
    assert_eq!(paced.quotas()[0].burst(), 1);
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
        assert!(said.chars().count() < 850, "{line}: {said}");
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
    let file = LimitsFile::new("[rules.getId]\nmax-count = 5\nwindow = \"0s\"\n");
    let folder = file.folder.path().to_str().expect("a path of text");
    let show = |error: &dyn Error| error.to_string().replace(folder, "");
    let error = Rules::from_file(&file.path).expect_err("a zero window");
    insta::assert_snapshot!(show(&error), @"/limits.toml:3: rules.getId.window: the window is zero, expected at least 1 ms");
    assert_eq!(error.line(), Some(3));
    assert_eq!(error.key(), Some("rules.getId.window"));
    assert_eq!(error.file(), Some(&*file.path));

    file.write(b"\xff\xfe");
    let error = Rules::from_file(&file.path).expect_err("no text");
    insta::assert_snapshot!(show(&error), @"/limits.toml: cannot be read: stream did not contain valid UTF-8");

    fs::remove_file(&file.path).expect("is removed");
    let error = Rules::from_file(&file.path).expect_err("no such file");
    insta::assert_snapshot!(show(&error), @"/limits.toml: cannot be read: No such file or directory (os error 2)");
    assert!(error.source().is_some());
}

/// Law 12: a bad reload keeps the old rules and says why.
#[test]
fn a_bad_reload_keeps_the_old_rules() {
    let file = LimitsFile::new(EXAMPLE);
    let limits = file.limits();
    file.write(EXAMPLE.replace("\"10s\"", "\"10x\""));
    let error = limits.reload(&file.path).expect_err("an unknown unit");
    assert_eq!(error.key(), Some("rules.getId.window"));
    assert_eq!(limits.rules().load().iter().count(), 6);
    file.reload(&limits, "enabled = false");
    assert!(!limits.rules().load().is_enabled());
}

/// A path with a slip of the pen would not be limited, and nobody would know.
#[test]
fn paths_without_a_rule_are_listed() {
    let file = LimitsFile::new(EXAMPLE);
    let limits = file.limits();
    assert!(limits.paths_without_rule().is_empty());
    let clone = limits.clone();
    let _ = ["getid", "getId", "about", "getid"].map(|path| clone.layer(path));
    assert_eq!(limits.paths_without_rule(), ["about", "getid"]);

    let more = EXAMPLE.replace("[rules.export]", "[rules.getid]");
    file.reload(&limits, &more);
    assert_eq!(clone.paths_without_rule(), ["about"]);
    let _ = limits.layer("export");
    let without = ["about", "export"];
    assert_eq!(clone.paths_without_rule(), without, "it is gone");
    file.reload(&limits, more.replace("enabled = true", "enabled = false"));
    let found = limits.paths_without_rule();
    assert_eq!(found, without, "disabled rules are rules");
}

/// A test that pauses time moves the limits of layers that were given no store, too.
#[tokio::test(start_paused = true)]
async fn paused_time_moves_the_default_store() {
    let of_limits = of_toml("rules.p = { max-count = 1, window = \"1m\" }");
    let fixed = RateLimitLayer::new("p", WINDOW, 1);
    for layer in [of_limits.layer("p"), fixed] {
        let app = app(layer);
        assert_eq!(status(&app, "/").await, 200);
        assert_eq!(status(&app, "/").await, 429);
        tokio::time::sleep(WINDOW + kit::millis(1)).await;
        assert_eq!(status(&app, "/").await, 200);
    }
}

/// What the guides show of files is read as they say.
#[test]
fn the_guides() {
    let mut blocks = 0;
    for page in fs::read_dir(root().join("docs")).expect("the guides") {
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
