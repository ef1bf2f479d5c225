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

/// A store that is asked over the network takes a time that is shown.
#[test]
fn how_long_redis_takes() {
    let server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    (0..3).for_each(|_| drop(app.get("/getId")));
    let rule = rule_with(&app, "getId", |rule| sum(&rule["allowed"]) == 3);
    let (mean, p99) = (sum(&rule["mean_us"]), sum(&rule["p99_us"]));
    assert!(0 < mean && mean <= p99, "{rule:#}");
    let text = body(&app, "/metrics");
    let name = "tidegate_store_duration_seconds";
    for line in [
        format!("{name}_bucket{{rule=\"getId\",le=\"+Inf\"}} 3"),
        format!("{name}_count{{rule=\"getId\"}} 3"),
        "tidegate_units_total{rule=\"getId\"} 3".to_owned(),
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

/// Names are kept apart and whole, whatever is in them.
#[test]
fn names_with_anything_in_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let paths = ["</script>", "a\"} 1\nb", "a\\nb", "a\\\\nb", "東京"];
    let rules = paths.map(|path| {
        // A string of JSON is one of TOML.
        let path = Value::from(path);
        format!("[rules.{path}]\nmax-count = 1\nwindow = \"1m\"\n")
    });
    std::fs::write(&file, rules.concat()).expect("is written");
    let app = App::start(&[("LIMITS", file.to_str().expect("a path of text"))]);

    let status = json(&app, "/status");
    let rules = status["rules"].as_array().expect("a list");
    let mut shown: Vec<_> = rules.iter().map(|rule| &rule["path"]).collect();
    shown.sort_by_key(|path| paths.iter().position(|it| *path == it));
    assert_eq!(shown, paths);
    for rule in rules {
        let url = rule["url"].as_str().expect("text");
        assert_eq!([app.status(url), app.status(url)], [200, 429], "{url}");
    }
    let text = body(&app, "/metrics");
    for label in [
        "</script>",
        "a\\\"} 1\\nb",
        "a\\\\nb",
        "a\\\\\\\\nb",
        "東京",
    ] {
        let line = format!("tidegate_units_total{{rule=\"{label}\"}} 1");
        let found = text.lines().filter(|it| *it == line).count();
        assert_eq!(found, 1, "{line}: {text}");
    }
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

#[test]
fn a_flood_of_looks_takes_no_decision_away() {
    let app = App::start(&[]);
    let began = Instant::now();
    let decided = std::thread::scope(|scope| {
        for path in ["/status", "/metrics", "/", "/limits/api/now"] {
            let app = &app;
            scope.spawn(move || (0..200).for_each(|_| assert_eq!(app.status(path), 200)));
        }
        let ask = || {
            let started = Instant::now();
            (app.status("/getId"), started.elapsed())
        };
        (0..50).map(|_| ask()).collect::<Vec<_>>()
    });
    let allowed = decided.iter().filter(|(status, _)| *status == 200);
    // Five in ten seconds.
    let most = 5 * (began.elapsed().as_secs() as usize / 10 + 1);
    assert!((5..=most).contains(&allowed.count()), "{decided:?}");
    let slowest = decided.iter().map(|(_, took)| *took).max();
    assert!(slowest < Some(PATIENT), "{slowest:?}");
}

/// Clients that ask and ask and never read an answer cost the others nothing.
#[test]
fn clients_that_never_read() {
    let app = App::start(&[]);
    let request = "GET /limits/api/now HTTP/1.1\r\nhost: test\r\n\r\n".repeat(500);
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let mut client = TcpStream::connect(&app.address).expect("a listening app");
            client.set_nonblocking(true).expect("is set");
            // Until the app reads no more, since nobody reads from it.
            while client.write(request.as_bytes()).is_ok() {}
            client
        })
        .collect();
    let started = Instant::now();
    assert_eq!(app.status("/getId"), 200);
    assert_eq!(app.status("/healthz"), 200);
    assert!(started.elapsed() < PATIENT, "{:?}", started.elapsed());
    let memory = app.memory();
    assert!(memory < 256 * 1024, "{memory} kB");
    let (code, took) = app.stop("-TERM");
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(15), "{took:?}");
    drop(clients);
}
