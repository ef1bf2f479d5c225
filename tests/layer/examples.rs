//! What the examples of plans, of several subjects, of charging by outcome and of the end of a
//! process print.

use std::io::{BufRead, BufReader};

use super::web_app::example;
use crate::*;

/// What an example printed of its answers: what was asked, the status, and what remains.
fn answers(name: &str) -> Vec<String> {
    let output = Command::new(example(name)).output();
    let output = output.expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let heads = text.lines().filter_map(|line| {
        let (asked, answer) = line.strip_prefix("GET /")?.split_once(" -> ")?;
        let (status, rest) = answer.split_at_checked(3)?;
        let remaining = rest.split(';').find(|it| it.starts_with("r="))?;
        Some(format!("{asked} {status} {remaining}"))
    });
    heads.collect()
}

#[test]
fn plans() {
    let expected = [
        "reports?anna 200 r=1",
        "reports?anna 200 r=0",
        "reports?anna 429 r=0",
        "reports?ben 200 r=4",
        "reports?anna 200 r=2",
        "reports?anna 200 r=1",
        "reports?anna 200 r=0",
        "reports?anna 429 r=0",
    ];
    assert_eq!(answers("plans"), expected);
}

/// By weight, however many requests a tenant has in progress: in three seconds 150 of three.
#[test]
fn turns() {
    let output = Command::new(example("turns")).output();
    let output = output.expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let of = |tenant: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(tenant));
        let number = line.and_then(|it| it.split(' ').next()?.parse::<u64>().ok());
        number.expect("a number")
    };
    let [loud, quiet, pro] = ["loud: ", "quiet: ", "pro: "].map(of);
    assert!(loud < 2 * quiet && quiet < 2 * loud, "{text}");
    assert!(pro > 2 * loud, "{text}");
}

#[test]
fn joint() {
    let expected = "anna 11: denied by chat-user-1s-cost1
anna 12: denied by chat-user-1s-cost1
ben: admitted
ben: denied by chat-user-1m
89 made-up users: admitted, then denied by chat-address
cleo: denied by chat-everyone
cleo: admitted
";
    // The first ten requests of a second are admitted, so a machine that stops meanwhile sees more.
    let is_as_expected = || {
        let output = Command::new(example("joint")).output();
        let output = output.expect("the example starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.matches(": admitted\n").count() == 12 && text.ends_with(expected)
    };
    assert!((0..5).any(|_| is_as_expected()));
}

#[test]
fn login_failures() {
    let answers = answers("login_failures");
    let (one_by_one, rest) = answers.split_at(4);
    assert!(one_by_one.iter().all(|it| it == "login?swordfish 200 r=2"));
    let (at_once, failures) = rest.split_at(4);
    let mut at_once = at_once.to_vec();
    at_once.sort();
    assert_eq!(
        at_once,
        [
            "login?swordfish 200 r=0",
            "login?swordfish 200 r=1",
            "login?swordfish 200 r=2",
            "login?swordfish 429 r=0",
        ]
    );
    assert_eq!(
        failures,
        [
            "login?secret 401 r=2",
            "login?123456 401 r=1",
            "login?sword 401 r=0",
            "login?swordfish 429 r=0",
        ]
    );
}

#[test]
fn budgets() {
    let server = Redis::start();
    let output = Command::new(example("budgets"))
        .env("REDIS_URL", &server.url)
        .output();
    let output = output.expect("the example starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let body = line.split_once("] ").map_or(line, |(_, body)| body);
            (body.ends_with("used") || body.starts_with("mail")).then_some(body)
        })
        .collect();
    lines.sort_unstable();
    // Ben has a budget of his own. Of Anna's requests the fourth is denied.
    let expected = [
        "12 dollars are used",
        "4 dollars are used",
        "4 dollars are used",
        "8 dollars are used",
        "8 dollars are used",
        "mail to anna: 100 % of 10 dollars",
        "mail to anna: 80 % of 10 dollars",
    ];
    assert_eq!(lines, expected);
}

/// It holds a lock and a permit, and asks a limiter all the time, when it is asked to stop.
#[test]
fn shutdown() {
    let server = Redis::start();
    let mut calls = 0;
    for round in 0..from_env("TIDEGATE_ROUNDS", 3) {
        let mut worker = Command::new(example("shutdown"));
        let worker = worker.env("REDIS_URL", &server.url).stdout(Stdio::piped());
        let mut worker = worker.spawn().expect("the example starts");
        let said = BufReader::new(worker.stdout.take().expect("is piped"));
        let mut said = said.lines().map(|line| line.expect("text"));
        assert_eq!(said.next().as_deref(), Some("working"));
        std::thread::sleep(millis(20 + 3 * round));
        let kill = Command::new("kill").arg(worker.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
        let last = said.next().expect("what it has done");
        assert!(worker.wait().expect("our child").success(), "{last}");
        let (made, rest) = last.split_once(' ').expect("a number");
        assert_eq!(rest, "calls; all is given back: true");
        calls += made.parse::<u64>().expect("a number");
        let is_locked: bool = server.run("EXISTS report");
        assert!(!is_locked, "round {round}");
        assert_eq!(permits_held(&server), 0, "round {round}");
        let left: u64 = server.run("GET {partner}:value");
        assert_eq!(1_000_000 - left, calls, "round {round}");
    }
    assert!(calls > 0);
}
