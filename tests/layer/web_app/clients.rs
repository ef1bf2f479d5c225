//! What clients ask for beside the limited routes, and clients that mean no good.

use std::io::Write;

use super::app::App;
use super::*;

fn body(app: &App, path: &str) -> String {
    let answer = app.get(path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

fn json(app: &App, path: &str) -> Value {
    serde_json::from_str(&body(app, path)).expect("JSON")
}

/// What the page of the limits says of a rule. It knows none before its first second.
fn shown_rule(app: &App, path: &str) -> Option<Value> {
    let mut view = json(app, "/limits/api/now");
    let rules = view["rules"].as_array_mut().expect("a list").iter_mut();
    let mut of_path = rules.filter(|rule| rule["rule"] == path);
    Some(of_path.next()?.take())
}

/// The same as soon as a whole second has been counted that is as wanted.
fn rule_with(app: &App, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let rule = shown_rule(app, path);
        if let Some(rule) = rule.as_ref().filter(|rule| is_wanted(rule)) {
            return rule.clone();
        }
        assert!(started.elapsed() < PATIENT, "{rule:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn sum(numbers: &Value) -> u64 {
    let numbers = numbers.as_array().expect("a list").iter();
    numbers.map(|it| it.as_u64().expect("a number")).sum()
}

#[test]
fn counters_as_json_and_for_prometheus() {
    let app = App::start(&[]);
    rule_with(&app, "getId", |rule| rule["total"]["denied"] == 0);
    (0..7).for_each(|_| drop(app.get("/getId")));

    let rule = rule_with(&app, "getId", |rule| sum(&rule["denied"]) == 2);
    assert_eq!(sum(&rule["allowed"]), 5);
    let total = &rule["total"];
    let found = (&total["allowed"], &total["denied"]);
    assert_eq!(found, (&5.into(), &2.into()));
    assert_eq!((&total["units"], &total["near"]), (&5.into(), &2.into()));
    assert_eq!(rule["denied_by"][0]["denials"], 2);
    let view = json(&app, "/limits/api/now");
    let got = (&view["version"], &view["reload_error"]);
    assert_eq!(got, (&1.into(), &Value::Null));

    let text = body(&app, "/metrics");
    for line in [
        "# TYPE tidegate_decisions_total counter",
        "tidegate_decisions_total{rule=\"getId\",outcome=\"allowed\",source=\"local\"} 5",
        "tidegate_decisions_total{rule=\"getId\",outcome=\"denied\",source=\"local\"} 2",
        "tidegate_denials_total{rule=\"getId\",quota=\"getId\"} 2",
        "tidegate_units_total{rule=\"getId\"} 5",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

/// `tests/observe.sh` runs it.
#[test]
#[ignore = "needs promtool: tests/observe.sh"]
fn promtool_reads_the_metrics() {
    let server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    (0..7).for_each(|_| drop(app.get("/getId")));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut input = promtool.stdin.take().expect("is piped");
    input
        .write_all(body(&app, "/metrics").as_bytes())
        .expect("is read");
    drop(input);
    assert!(promtool.wait().expect("our child").success());
}

/// Rules that are added while the app runs can be tried at once.
#[test]
fn an_added_rule_has_a_route() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let one = "[rules.one]\nmax-count = 1\nwindow = \"1m\"\n";
    std::fs::write(&file, one).expect("is written");
    let app = App::start(&[("LIMITS", file.to_str().expect("a path of text"))]);
    assert_eq!([app.status("/one"), app.status("/two")], [200, 404]);
    std::fs::write(&file, format!("{one}{}", one.replace("one", "two"))).expect("is written");
    let started = Instant::now();
    while app.status("/two") == 404 {
        assert!(started.elapsed() < PATIENT, "no route");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!([app.status("/one"), app.status("/two")], [429, 429]);
}
