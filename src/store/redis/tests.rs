//! Calls with many keys: the scripts, on a real server, against the pure algorithms.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use redis::Connection;

use super::question::{Batch, LARGEST_NUMBER, Row, script_of, write_questions};
use super::reply::{Answer, read_answers};
use crate::algorithm::{Algorithm, Count, Counting};
use crate::error::StoreErrorKind;
use crate::quota::Quota;
use crate::rule::{Policy, Rule};

/// A server of this test alone.
struct Server(Child, Connection);

impl Server {
    fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"));
        let client = client.expect("an address");
        for _ in 0..500 {
            if let Ok(connection) = client.get_connection() {
                return Self(child, connection);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a key holds before a history begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// What no script of ours writes: each take of it fails, and it stays.
    AnotherType,
    /// Bytes of the right type: as good as nothing.
    Garbage,
}

/// One key's part in a call: which key, which rule, and rows of a cost, a number of takes, and how much later than now
/// the deadline is.
#[derive(Debug, Clone)]
struct Part {
    key: usize,
    rule: usize,
    rows: Vec<(u64, u16, i64)>,
}

#[derive(Debug, Clone)]
struct Calls {
    rules: Vec<(Vec<Quota>, u16)>,
    keys: Vec<Before>,
    /// How far the clock goes before each call.
    calls: Vec<(i64, Vec<Part>)>,
}

fn quota() -> impl Strategy<Value = Quota> {
    let max = prop_oneof![6 => 0..9_u64, 3 => 9..200_u64, 1 => Just(Quota::LARGEST_MAX)];
    let millis = prop::sample::select(vec![1, 3, 1_000, 60_000]);
    let burst = prop_oneof![3 => Just(None), 1 => (0..20_u64).prop_map(Some)];
    (max, millis, burst).prop_map(|(max, millis, burst)| {
        let quota = Quota::new(max, Duration::from_millis(millis)).expect("valid");
        burst.map_or(quota, |burst| quota.with_burst(burst).unwrap_or(quota))
    })
}

fn calls() -> impl Strategy<Value = Calls> {
    let rule = (
        prop::collection::vec(quota(), 1..4),
        prop::sample::select(vec![1, 4, 64]),
    );
    let before = prop_oneof![
        8 => Just(Before::Nothing),
        1 => Just(Before::AnotherType),
        1 => Just(Before::Garbage),
    ];
    let cost = prop_oneof![6 => Just(1), 3 => 0..6_u64, 1 => 20..90_u64, 1 => Just(u64::MAX)];
    let takes = prop_oneof![4 => Just(1_u16), 3 => 1..5_u16, 1 => 5..70_u16];
    let later = prop_oneof![8 => Just(50_000), 1 => Just(0), 1 => Just(-1)];
    let row = (cost, takes, later);
    let part = (0..80_usize, 0..3_usize, prop::collection::vec(row, 1..4));
    let parts = prop::collection::vec(part, 1..64).prop_map(|parts| {
        let mut known = HashMap::new();
        for (key, rule, rows) in parts {
            known.entry(key).or_insert(Part { key, rule, rows });
        }
        let mut parts: Vec<_> = known.into_values().collect();
        parts.sort_by_key(|part| (part.rule, part.key));
        parts
    });
    let pass = prop_oneof![
        3 => Just(1_i64),
        3 => 0..2_000_i64,
        3 => 0..2_000_000_i64,
        1 => -2_000_000..0_i64,
    ];
    (
        prop::collection::vec(rule, 3),
        prop::collection::vec(before, 80),
        prop::collection::vec((pass, parts), 1..6),
    )
        .prop_map(|(rules, keys, calls)| Calls { rules, keys, calls })
}

fn prepare(connection: &mut Connection, algorithm: Algorithm, name: &str, before: Before) {
    let garbage: &[u8] = match algorithm {
        Algorithm::SlidingLog => &[247; 57],
        Algorithm::SlidingWindow => &[248; 90],
        Algorithm::Gcra => &[249; 64],
        Algorithm::FixedWindow => &[250; 57],
    };
    let mut command = match (before, algorithm) {
        (Before::Nothing, _) => return,
        (Before::AnotherType, _) => redis::cmd("RPUSH"),
        (Before::Garbage, Algorithm::SlidingLog) => redis::cmd("ZADD"),
        (Before::Garbage, _) => redis::cmd("SET"),
    };
    command.arg(name);
    if command.args_iter().next() == Some(redis::Arg::Simple(b"ZADD")) {
        command.arg(7);
    }
    command.arg(garbage).exec(connection).expect("is stored");
}

/// Plays it on the server and on the pure algorithm, and compares each answer.
fn play(
    connection: &mut Connection,
    algorithm: Algorithm,
    calls: &Calls,
) -> Result<(), TestCaseError> {
    redis::cmd("FLUSHALL").exec(connection).expect("is emptied");
    let rules = calls.rules.iter().map(|(quotas, sub_windows)| {
        let named = |(at, quota): (usize, &Quota)| Policy::new(&at.to_string(), *quota);
        let rule = Rule::with_policies("p", quotas.iter().enumerate().map(named));
        let counting = Counting::from(algorithm).sub_windows(*sub_windows);
        rule.expect("valid").algorithm(counting)
    });
    let rules: Vec<_> = rules.collect();
    let names: Vec<_> = (0..calls.keys.len()).map(|key| format!("k{key}")).collect();
    for (name, before) in names.iter().zip(&calls.keys) {
        prepare(connection, algorithm, name, *before);
    }
    let mut oracle: HashMap<usize, Count> = HashMap::new();
    let mut now: u64 = 1_800_000_000_000_000;
    for (mark, (pass, parts)) in calls.calls.iter().enumerate() {
        now = now.saturating_add_signed(*pass);
        let rows = |part: &Part| {
            let rows = part.rows.iter().map(|(cost, takes, later)| Row {
                cost: *cost,
                takes: *takes,
                deadline: now.saturating_add_signed(*later).min(LARGEST_NUMBER),
            });
            rows.collect::<Vec<_>>()
        };
        let rows: Vec<_> = parts.iter().map(rows).collect();
        let batches: Vec<_> = parts
            .iter()
            .zip(&rows)
            .map(|(part, rows)| Batch {
                rule: &rules[part.rule],
                name: &names[part.key],
                rows,
            })
            .collect();
        let mut question = Vec::new();
        write_questions(&batches, &mut question);
        let mut command = redis::cmd("EVAL");
        command.arg(script_of(algorithm).source()).arg(parts.len());
        for batch in &batches {
            command.arg(batch.name);
        }
        command.arg(&question).arg(mark).arg(now);
        let reply: Vec<u8> = command.query(connection).expect("a reply");

        let mut answers = Vec::new();
        let told = read_answers("redis", &reply, mark as u64, &batches, |index, answer| {
            answers.push((index, answer));
        });
        prop_assert_eq!(told.expect("it makes sense"), now);
        let mut answers = answers.into_iter();
        for (index, part) in parts.iter().enumerate() {
            let (rule, count) = (&rules[part.rule], oracle.entry(part.key).or_default());
            for (cost, takes, later) in &part.rows {
                for _ in 0..*takes {
                    let (of, answer) = answers.next().expect("an answer to each take");
                    prop_assert_eq!(of, index);
                    match answer {
                        Answer::Failed(error) => {
                            prop_assert_eq!(calls.keys[part.key], Before::AnotherType);
                            prop_assert_eq!(error.kind(), StoreErrorKind::WrongType);
                        }
                        Answer::Late => prop_assert!(*later < 0, "not late"),
                        Answer::Decided(decision) => {
                            prop_assert!(*later >= 0, "late");
                            prop_assert_ne!(calls.keys[part.key], Before::AnotherType);
                            let expected = count.take(rule.counting(), now, rule.quotas(), *cost);
                            prop_assert_eq!(decision.verdict(), expected.verdict());
                            prop_assert_eq!(decision.quotas(), expected.quotas());
                            prop_assert_eq!(decision.token(), expected.token());
                        }
                    }
                }
            }
        }
        prop_assert!(answers.next().is_none(), "an answer too many");
    }
    for (name, before) in names.iter().zip(&calls.keys) {
        let lives: i64 = redis::cmd("PTTL").arg(name).query(connection).expect("");
        // Garbage of somebody else's has no expiry before a charge replaces it.
        prop_assert!(lives != -1 || *before != Before::Nothing, "{} stays", name);
    }
    Ok(())
}

fn many_keys_in_a_call_decide_alike(algorithm: Algorithm) {
    let mut server = Server::start();
    let connection = std::cell::RefCell::new(&mut server.1);
    let config = ProptestConfig {
        cases: 150,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(calls in calls())| {
        play(&mut connection.borrow_mut(), algorithm, &calls)?;
    });
}

#[test]
fn sliding_logs_of_many_keys_decide_alike() {
    many_keys_in_a_call_decide_alike(Algorithm::SlidingLog);
}

#[test]
fn sliding_windows_of_many_keys_decide_alike() {
    many_keys_in_a_call_decide_alike(Algorithm::SlidingWindow);
}

#[test]
fn gcras_of_many_keys_decide_alike() {
    many_keys_in_a_call_decide_alike(Algorithm::Gcra);
}

#[test]
fn fixed_windows_of_many_keys_decide_alike() {
    many_keys_in_a_call_decide_alike(Algorithm::FixedWindow);
}
