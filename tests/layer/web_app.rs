//! The example web app, as a person starts it: the real binary, its port, its signals.

mod app;
// The page of the limits uses more of it than that of the app.
mod browser;
mod clients;
mod limits_page;
mod page;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::*;
pub(crate) use app::example;
use app::{App, command, exchange, status_of};

/// From a phone to a desk.
const SCREENS: [(u32, u32); 6] = [
    (360, 740),
    (400, 800),
    (768, 1024),
    (1010, 900),
    (1280, 900),
    (1920, 1080),
];

#[test]
fn in_memory_at_once() {
    let app = App::start(&[]);
    assert!(app.greeting[1].contains("memory"), "{:?}", app.greeting);
    let rule = "getId 5 per 10s";
    assert!(app.greeting[2].contains(rule), "{:?}", app.greeting);
    let answer = app.get("/getId");
    assert!(answer.ends_with("\r\n\r\n1"), "{answer}");
    for field in [
        "ratelimit: \"getId\";r=4;t=10\r\n",
        "ratelimit-policy: \"getId\";q=5;w=10\r\n",
    ] {
        assert!(answer.contains(field), "{answer}");
    }
    let statuses: Vec<_> = (0..6).map(|_| app.status("/getId")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert!((0..20).all(|_| app.status("/healthz") == 200));
    let page = app.get("/");
    // One self-contained page.
    assert!(page.contains("</html>") && !page.contains("src=\"http"));
    assert!(app.get("/status").contains("\"getId\""));
    assert_eq!(app.status("/nothing-here"), 404);
}

#[test]
fn a_denied_export_gets_the_last_report() {
    let app = App::start(&[]);
    let first = app.get("/export");
    let is_whole = first.starts_with("HTTP/1.1 200") && !first.contains("x-degraded");
    assert!(is_whole, "{first}");
    let (_, report) = first.split_once("\r\n\r\n").expect("a body");
    let mut others = (0..20).map(|_| app.get("/export"));
    let degraded = others.find(|answer| answer.contains("x-degraded"));
    let degraded = degraded.expect("a denied export");
    assert!(degraded.contains("retry-after: "), "{degraded}");
    assert!(!report.is_empty());
}

/// `/answer` answers with a status, and good ones are given back.
#[test]
fn failures_count() {
    let app = App::start(&[]);
    for wrong in ["", "abc", "100", "199", "600", "1000", "-1"] {
        let app = App::start(&[]);
        assert_eq!(app.status(&format!("/answer?status={wrong}")), 400);
    }
    assert!((0..10).all(|_| app.status("/answer") == 200));
    assert_eq!(app.status("/answer?status=204"), 204);
    let failures = ["401", "500", "404", "303", "401", "401"];
    let statuses = failures.map(|status| app.status(&format!("/answer?status={status}")));
    assert_eq!(statuses, [401, 500, 404, 303, 401, 429]);
    assert_eq!(app.status("/answer?status=200"), 429);
}

#[test]
fn two_processes_share_one_limit() {
    let server = Redis::start();
    let apps = [(); 2].map(|()| App::start(&[("REDIS_URL", &server.url)]));
    let mut allowed = 0;
    for _ in 0..6 {
        for app in &apps {
            allowed += usize::from(app.status("/getId") == 200);
        }
    }
    assert_eq!(allowed, 5);
}

/// Waits until it is so, at most so long.
#[track_caller]
fn soon(what: &str, most: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < most, "not after {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Redis killed while the app runs: 503, never 429, and back by itself.
#[test]
fn an_outage() {
    let mut server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url)]);
    assert_eq!(app.status("/getId"), 200);
    server.kill();
    let answer = app.get("/getId");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("temporary-reduced-capacity"), "{answer}");
    assert_eq!(app.status("/healthz"), 200);
    server.restart();
    soon("Redis is back", PATIENT, || app.status("/getId") != 503);
}

/// With a fallback, each process admits its share meanwhile: of 5 in 10 s, one of two admits 2.
#[test]
fn an_outage_with_a_fallback() {
    let mut server = Redis::start();
    let app = App::start(&[("REDIS_URL", &server.url), ("PROCESSES", "2")]);
    assert_eq!(app.status("/getId"), 200);
    server.kill();
    let statuses: Vec<_> = (0..4).map(|_| app.status("/getId")).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    server.restart();
    soon("Redis is back", PATIENT, || app.status("/getId") != 429);
}

#[test]
fn it_stops_when_it_is_told_to() {
    for signal in ["-TERM", "-INT"] {
        let app = App::start(&[]);
        // A client that keeps its connection open must not keep the app alive.
        let _idle = TcpStream::connect(&app.address).expect("a listening app");
        let (code, took) = app.stop(signal);
        assert_eq!(code, Some(0), "{signal}");
        assert!(took < Duration::from_secs(15), "{signal}: {took:?}");
    }
}

/// It is stopped while requests run and others leave: none of their permits stays held.
#[test]
fn nothing_is_held_when_it_has_stopped() {
    let server = Redis::start();
    let file = LimitsFile::new(
        "[rules.answer]\nmax-concurrent = 100\npermit-lease = \"1h\"\nkey = \"everyone\"\n",
    );
    for round in 0..from_env("TIDEGATE_ROUNDS", 2) {
        let app = App::start(&[("REDIS_URL", &server.url), ("LIMITS", file.name())]);
        let address = app.address.clone();
        let ask = move |at: u64| {
            let mut served = 0;
            for number in at.. {
                let asked = TcpStream::connect(&address).and_then(|mut stream| {
                    stream.write_all(b"GET /answer HTTP/1.1\r\nhost: test\r\n\r\n")?;
                    stream.read_exact(&mut [0; 12][..12 * (number % 3).min(1) as usize])
                });
                match asked {
                    Ok(()) => served += 1,
                    Err(_) => return served,
                }
            }
            served
        };
        let clients: [_; 4] = std::array::from_fn(|at| {
            let ask = ask.clone();
            std::thread::spawn(move || ask(at as u64))
        });
        std::thread::sleep(millis(100 + 7 * round));
        let (code, _) = app.stop("-TERM");
        let served = clients.map(|client| client.join().expect("no panic"));
        assert_eq!((code, permits_held(&server)), (Some(0), 0));
        assert!(served.iter().sum::<u32>() > 10, "{served:?}");
    }
}

/// The app does not start in this environment, and says why in one line, which it returns.
fn failure(environment: &[(&str, &str)]) -> String {
    let output = command(environment).output().expect("the example starts");
    assert!(output.stdout.is_empty(), "nothing was announced");
    let said = String::from_utf8(output.stderr).expect("text");
    let failed = (output.status.code(), said.lines().count());
    assert_eq!(failed, (Some(1), 1), "{said}");
    said
}

#[test]
fn mistakes_are_one_clear_line() {
    let file = LimitsFile::new("[rules.getId]\nmax-count = 5\nwindow = \"0s\"\n");
    let app = App::start(&[]);
    let (_, port) = app.address.rsplit_once(':').expect("a port");
    for (name, value, expected) in [
        (
            "LIMITS",
            file.name(),
            "limits.toml:3: rules.getId.window: the window is zero",
        ),
        ("PROCESSES", "none", "PROCESSES is \"none\""),
        ("PORT", port, port),
    ] {
        let said = failure(&[(name, value)]);
        assert!(said.contains(expected), "{said}");
    }
    let said = failure(&[("REDIS_URL", "redis://:s3cret@127.0.0.1:1")]);
    assert!(!said.contains("s3cret"), "{said}");
}

/// Every rule of another file gets a route, whatever its path is.
#[test]
fn other_rules() {
    let rule = |path| format!("[rules.\"{path}\"]\nmax-count = 1\nwindow = \"1m\"\n");
    let paths = ["orders", "/slash", "{brace}", "*", "a b", "getId"];
    let file = LimitsFile::new(paths.map(rule).concat());
    let app = App::start(&[("LIMITS", file.name())]);
    for path in ["/orders", "/getId"] {
        assert_eq!([app.status(path), app.status(path)], [200, 429], "{path}");
    }
    assert_eq!(app.status("/healthz"), 200);
}

/// What the page lets you try: without `REDIS_URL` the app has a Redis of its own, which it stops
/// and starts, and a second process. Only the page may ask for it, and all end with the app.
#[test]
fn a_demo_of_two_processes_and_a_redis_that_stops() {
    let app = App::start(&[("REDIS_URL", "")]);
    let own = &app.greeting[1];
    assert!(own.ends_with("which this app has started"), "{own}");
    let local = "host: 127.0.0.1:3000\r\n";
    for fields in [local, "host: evil.test\r\nx-demo: 1\r\n", "x-demo: 1\r\n"] {
        let answer = app.ask("POST", "/demo/redis/stop", fields);
        let is_refused = answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400");
        assert!(is_refused, "{fields}: {answer}");
    }
    let change = |path: &str| {
        let answer = app.ask("POST", path, &format!("{local}x-demo: 1\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str::<Value>(body).expect("JSON")
    };
    let second = change("/demo/process")["second"].take();
    let second = second.as_str().expect("an address").to_owned();
    assert_eq!(change("/demo/process")["second"], second, "only one");
    // Together five; more, if a slow moment of this machine makes one of them count by itself.
    let admitted = |address: &str, times| {
        let ask = |_: &usize| status_of(&exchange(address, "GET", "/getId", "host: test\r\n"));
        (0..times).filter(|it| ask(it) == 200).count()
    };
    let both = admitted(&app.address, 4) + admitted(&second, 4);
    assert!((5..8).contains(&both), "{both} of 8");

    assert_eq!(change("/demo/redis/stop")["redis"], "stopped");
    // What is known of denials is over at last, and half of five is two.
    let (started, mut alone) = (Instant::now(), 0);
    while alone < 2 {
        alone += admitted(&app.address, 1);
        assert!(started.elapsed() < PATIENT, "the fallback admits half");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(admitted(&app.address, 2), 0);
    assert_eq!(change("/demo/redis/start")["redis"], "running");
    // The fallback has two at most.
    soon("Redis counts from zero", PATIENT, || {
        let answer = app.get("/getId");
        ["r=4;", "r=3;", "r=2;"]
            .iter()
            .any(|it| answer.contains(it))
    });
    let redis = own.rsplit_once("redis at ").expect("its address").1;
    let redis = redis.split(',').next().unwrap_or_default().to_owned();
    // A closed terminal hangs up on all of its processes, but for those that nohup started.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    let signal = match ignored.unwrap_or(0) & 1 {
        0 => "-HUP",
        _ => "-TERM",
    };
    let ended = Command::new("kill")
        .args([signal, &app.id().to_string()])
        .status();
    assert!(ended.expect("kill runs").success());
    let is_gone = |it: &&String| TcpStream::connect(it.as_str()).is_err();
    let are_gone = || [&second, &redis].iter().all(is_gone);
    soon("all end with the app", PATIENT, are_gone);
}

/// Whatever is asked for while the other is under way: what the app says of its Redis is so.
#[test]
fn a_redis_that_is_stopped_and_started_at_once() {
    let app = App::start(&[("REDIS_URL", "")]);
    let own = app.greeting[1].rsplit_once("redis at ");
    let redis = own.expect("its address").1.split(',').next();
    let redis = redis.expect("its address").to_owned();
    let change = |what: &str| {
        let fields = "host: 127.0.0.1:3000\r\nx-demo: 1\r\n";
        app.ask("POST", &format!("/demo/redis/{what}"), fields)
    };
    for round in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| change("stop"));
            std::thread::sleep(Duration::from_millis(round));
            change("start");
        });
        let is_running = app.get("/demo").contains("\"running\"");
        let client = redis::Client::open(format!("redis://{redis}"));
        let answers = client.expect("an address").get_connection().is_ok();
        assert_eq!(is_running, answers, "round {round}");
        change("start");
    }
}

/// A second process that does not start says so, and the app ends as always.
#[test]
fn a_second_process_that_does_not_start() {
    let file = LimitsFile::new("[rules.a]\nmax-count = 5\nwindow = \"1s\"\n");
    let app = App::start(&[("REDIS_URL", ""), ("LIMITS", file.name())]);
    file.write("no rules");
    let answer = app.ask("POST", "/demo/process", "host: localhost\r\nx-demo: 1\r\n");
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.ends_with("the second process has ended"), "{answer}");
    assert_eq!(app.stop("-TERM").0, Some(0));
}
