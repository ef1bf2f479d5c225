//! The example web app, as a person starts it: the real binary, its port, its signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use test_support::Redis;

/// A command that starts the example, in an environment without our own settings.
fn command(environment: &[(&str, &str)]) -> Command {
    let test = std::env::current_exe().expect("this test");
    let target = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a target folder");
    let binary = target.join("examples").join("web_app");
    assert!(
        binary.exists(),
        "build it first: cargo build --example web_app"
    );
    let mut command = Command::new(binary);
    command
        .env_remove("REDIS_URL")
        .env_remove("LIMITS")
        .env_remove("PROCESSES")
        .env("PORT", "0")
        .envs(environment.iter().copied());
    command
}

/// A running app.
struct App {
    child: Child,
    stdout: BufReader<ChildStdout>,
    greeting: [String; 3],
    address: String,
}

impl App {
    fn start(environment: &[(&str, &str)]) -> Self {
        let mut command = command(environment);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the example starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("is piped"));
        let greeting = std::array::from_fn(|_| {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("text");
            line.trim_end().to_owned()
        });
        let (_, address) = greeting[0].split_once("http://").expect("where it listens");
        let address = address.to_owned();
        Self {
            child,
            stdout,
            greeting,
            address,
        }
    }

    /// Status line, fields and body of an answer.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a listening app");
        let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }

    fn status(&self, path: &str) -> u16 {
        let answer = self.get(path);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        status
            .parse()
            .unwrap_or_else(|_| panic!("no status in {answer:?}"))
    }

    /// Ends it as an operator does; how it ended, and how long that took.
    fn stop(mut self, signal: &str) -> (Option<i32>, Duration) {
        let started = Instant::now();
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.expect("kill runs").success());
        let status = self.child.wait().expect("our child");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "three lines are enough");
        (status.code(), started.elapsed())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn in_memory_at_once() {
    let app = App::start(&[]);
    assert!(app.greeting[1].contains("memory"), "{:?}", app.greeting);
    assert!(
        app.greeting[2].contains("getId 5 per 10s"),
        "{:?}",
        app.greeting
    );
    let statuses: Vec<_> = (0..7).map(|_| app.status("/getId")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    assert!((0..20).all(|_| app.status("/healthz") == 200));
    let page = app.get("/");
    assert!(
        page.contains("</html>") && !page.contains("src=\"http"),
        "one self-contained page"
    );
    assert!(app.get("/status").contains("\"getId\""));
    assert_eq!(app.status("/nothing-here"), 404);
}

#[test]
fn the_handler_answers_1() {
    let answer = App::start(&[]).get("/getId");
    assert!(answer.ends_with("\r\n\r\n1"), "{answer}");
    assert!(
        answer.contains("ratelimit: \"getId\";r=4;t=10\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("ratelimit-policy: \"getId\";q=5;w=10\r\n"),
        "{answer}"
    );
}

#[test]
fn a_denied_export_gets_the_last_report() {
    let app = App::start(&[]);
    let first = app.get("/export");
    assert!(
        first.starts_with("HTTP/1.1 200") && !first.contains("x-degraded"),
        "{first}"
    );
    let (_, report) = first.split_once("\r\n\r\n").expect("a body");
    let degraded = (0..20)
        .map(|_| app.get("/export"))
        .find(|answer| answer.contains("x-degraded"));
    let degraded = degraded.expect("a denied export");
    assert!(degraded.contains("retry-after: "), "{degraded}");
    assert!(!report.is_empty());
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
    let started = Instant::now();
    while app.status("/getId") == 503 {
        assert!(started.elapsed() < Duration::from_secs(20), "not back");
        std::thread::sleep(Duration::from_millis(10));
    }
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
    let started = Instant::now();
    while app.status("/getId") == 429 {
        assert!(started.elapsed() < Duration::from_secs(20), "not back");
        std::thread::sleep(Duration::from_millis(10));
    }
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

fn failure(environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let Output {
        status,
        stderr,
        stdout,
    } = command(environment).output().expect("the example starts");
    assert!(stdout.is_empty(), "nothing was announced");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

#[test]
fn mistakes_are_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = folder.path().join("limits.toml");
    std::fs::write(&limits, "[rules.getId]\nmax-count = 5\nwindow = \"0s\"\n").expect("is written");
    let limits = limits.to_str().expect("a path of text");
    let (code, said) = failure(&[("LIMITS", limits)]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(
        said.contains("limits.toml:3: rules.getId.window: the window is zero"),
        "{said}"
    );

    let (code, said) = failure(&[("REDIS_URL", "redis://:s3cret@127.0.0.1:1")]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(!said.contains("s3cret"), "{said}");

    let (code, said) = failure(&[("PROCESSES", "none")]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("PROCESSES is \"none\""), "{said}");

    let app = App::start(&[]);
    let (_, port) = app.address.rsplit_once(':').expect("a port");
    let (code, said) = failure(&[("PORT", port)]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(port), "{said}");
}

/// Every rule of another file gets a route, whatever its path is.
#[test]
fn other_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = folder.path().join("limits.toml");
    let mut text = String::new();
    for path in ["orders", "/slash", "{brace}", "*", "a b", "getId"] {
        text += &format!("[rules.\"{path}\"]\nmax-count = 1\nwindow = \"1m\"\n");
    }
    std::fs::write(&limits, text).expect("is written");
    let app = App::start(&[("LIMITS", limits.to_str().expect("a path of text"))]);
    for path in ["/orders", "/getId"] {
        assert_eq!([app.status(path), app.status(path)], [200, 429], "{path}");
    }
    assert_eq!(app.status("/healthz"), 200);
}
