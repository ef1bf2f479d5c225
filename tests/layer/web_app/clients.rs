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

#[test]
fn counters_as_json_and_for_prometheus() {
    let app = App::start(&[]);
    (0..7).for_each(|_| drop(app.get("/getId")));
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
    // The page knows no rule before its first second.
    let is_shown = || body(&app, "/limits/api/now").contains("\"denied\":2,");
    soon("two denials are shown", PATIENT, is_shown);
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
    let one = "[rules.one]\nmax-count = 1\nwindow = \"1m\"\n";
    let file = LimitsFile::new(one);
    let app = App::start(&[("LIMITS", file.name())]);
    assert_eq!([app.status("/one"), app.status("/two")], [200, 404]);
    file.write(format!("{one}{}", one.replace("one", "two")));
    soon("a route", PATIENT, || app.status("/two") != 404);
    assert_eq!([app.status("/one"), app.status("/two")], [429, 429]);
}
