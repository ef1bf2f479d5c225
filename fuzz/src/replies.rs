//! What Redis may say to takes that travel together and to a refund: any value, any bytes, and
//! replies that almost answer the question.
//!
//! Each take gets a decision or an error with a kind, within the timeout; nothing panics. A
//! connection that was broken is made anew, and the next take is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{ServerError, Value};
use tidegate::decision::Receipt;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Decision, Key, Quota, RedisStore, Rule, Store, StoreError, Take};
use tokio::time::Instant;

use super::input::{Input, tell};
use super::server::{
    Reply, Server, Words, allowed, arguments, encoded, head, is_refund, keys, numbered,
};

pub fn run(bytes: &[u8]) {
    Server::with(|server| {
        let mut input = Input::new(bytes);
        let store = RedisStore::of(&server.redis).timeout(TIMEOUT);
        // With the server's clock, replies also say what that clock shows.
        let store = match input.byte() % 4 {
            0 => store,
            _ => store.clock(ManualClock::default()),
        };
        input.byte();
        let takes = takes(&mut input);
        let receipt = Receipt::new(input.likely(), input.likely(), input.likely());
        let has_raw_bytes = answer(server, input.rest(), &takes);

        server.block_on(async {
            let started = Instant::now();
            let answers = join_all(takes.iter().map(|take| store.take(take))).await;
            for (answer, take) in answers.into_iter().zip(&takes) {
                tell(|| format!("answer: {answer:?}"));
                match answer {
                    Ok(decision) => is_sound(&decision, take),
                    Err(error) => is_honest(&error),
                }
            }
            is_in_time(started);
            let started = Instant::now();
            let answer = store.refund(&takes[0], &receipt).await;
            tell(|| format!("refund: {answer:?}"));
            match answer {
                Ok(units) => assert!(
                    units <= receipt.units().min(takes[0].cost()),
                    "{units} given back"
                ),
                Err(error) => is_honest(&error),
            }
            is_in_time(started);
        });

        match has_raw_bytes.load(Ordering::Relaxed) {
            // What came may be the beginning of a reply that never ends.
            true => server.cut(),
            false => server.settle(),
        }
        is_well(server, store);
    });
}

const TIMEOUT: Duration = Duration::from_millis(50);

/// Whatever was answered before, the next take is decided.
fn is_well(server: &Server, store: RedisStore) {
    server.answer(|words| Reply::Bytes(encoded(&Value::BulkString(allowed(words)))));
    let rule = Rule::new("p", [Quota::per_second(1)]).expect("a valid rule");
    let take = Take::new(Arc::new(rule), Key::default());
    let store = store.clock(ManualClock::default());
    let answer = server.block_on(async { store.take(&take).await });
    assert!(answer.expect("the connection is well").is_allowed());
}

fn is_in_time(started: Instant) {
    // Timers have a resolution of a millisecond.
    let took = started.elapsed();
    assert!(took <= TIMEOUT + Duration::from_millis(2), "{took:?}");
}

fn is_sound(decision: &Decision, take: &Take) {
    assert_eq!(decision.quotas().len(), take.quotas().len());
    let charged = decision.receipt().map(|receipt| receipt.units());
    assert_eq!(charged, decision.is_allowed().then_some(take.cost()));
    for (state, quota) in decision.quotas().iter().zip(take.quotas()) {
        assert!(state.remaining() <= quota.max().max(quota.burst()));
    }
    let _ = (
        decision.remaining(),
        decision.reset_after(),
        decision.retry_after(),
    );
    let _ = format!("{decision:?}");
}

fn is_honest(error: &StoreError) {
    let message = error.to_string();
    let is_right = match error.kind() {
        StoreErrorKind::Full | StoreErrorKind::Overloaded => false,
        StoreErrorKind::Timeout => message.contains("did not answer"),
        // A server may say so of itself.
        StoreErrorKind::Configuration => {
            let words = ["is a node of a cluster", "cluster support disabled", "slot"];
            words.iter().any(|word| message.contains(word))
        }
        _ => true,
    };
    assert!(is_right, "{error:?}");
    assert!(!message.is_empty() && message.len() < 4_000, "{message}");
}

/// Up to 16 takes by one or two rules, of a few keys.
fn takes(input: &mut Input<'_>) -> Vec<Take> {
    let mut rules = Vec::new();
    for path in &PATHS[..=usize::from(input.byte() % 2)] {
        let counting = input.counting();
        let rule = Rule::new(path, input.quotas(3)).expect("a valid rule");
        rules.push(Arc::new(rule.with_algorithm(counting)));
    }
    let mut takes = Vec::new();
    for _ in 0..=input.byte() % 16 {
        let kind = input.byte();
        let rule = Arc::clone(&rules[usize::from(kind) % rules.len()]);
        let user = ["a", "a", "b", "c"][usize::from(kind / 2 % 4)];
        let cost = match kind & 0x80 {
            0 => u64::from(kind >> 4),
            _ => input.likely(),
        };
        takes.push(Take::new(rule, Key::from(user)).with_cost(cost));
    }
    takes
}

/// The names of keys show by which rule they are asked about.
const PATHS: [&str; 2] = ["p0", "p1"];

/// Lets the server answer as these bytes say. Tells whether it has sent bytes that may be no reply.
fn answer(server: &Server, bytes: &[u8], takes: &[Take]) -> Arc<AtomicBool> {
    let (bytes, takes) = (bytes.to_vec(), takes.to_vec());
    let has_raw_bytes = Arc::<AtomicBool>::default();
    let raw = Arc::clone(&has_raw_bytes);
    let mut at = 0;
    server.answer(move |words| {
        let mut input = Input::new(&bytes[at..]);
        let reply = match input.byte() {
            0..=127 if is_refund(words) => {
                let units = Value::Array(vec![Value::Int(input.likely() as i64)]);
                let units = encoded(&units);
                Reply::Bytes(numbered(words, &units))
            }
            0..=127 => Reply::Bytes(encoded(&Value::BulkString(rows(&mut input, words, &takes)))),
            128..=143 => {
                raw.store(true, Ordering::Relaxed);
                let length = usize::from(input.byte());
                Reply::Bytes(input.bytes(length).to_vec())
            }
            144..=151 => Reply::Cut,
            _ => Reply::Bytes(encoded(&value(&mut input, 4))),
        };
        at = bytes.len() - input.rest().len();
        tell(|| match &reply {
            Reply::Bytes(bytes) => format!("{}", bytes.escape_ascii()),
            Reply::Cut => "cut".to_owned(),
        });
        reply
    });
    has_raw_bytes
}

/// What looks like the reply to this call, and may be wrong in places: see `lua/formats.md`.
fn rows(input: &mut Input<'_>, words: &Words, takes: &[Take]) -> Vec<u8> {
    let mut bytes = head(words, input.likely());
    // On a busy machine, a question of the input before comes late.
    let Some((rule, keys)) = rule_and_rows(words, takes) else {
        return bytes;
    };
    let pours = rule.algorithm().algorithm() == Algorithm::Gcra;
    let quotas = rule.quotas().len();
    for rows in &keys {
        'key: for row in rows {
            let mut left = row.takes;
            while left > 0 {
                let kind = input.byte();
                let (verdict, alike) = match kind {
                    0..=207 => (kind % 5, 1 + u16::from(kind / 5 % 8).min(left - 1)),
                    // The state that a take left, or what denied it.
                    240.. => (kind - 231, 1),
                    _ => (kind % 6, input.likely() as u16),
                };
                bytes.push(verdict);
                left = left.saturating_sub(alike.max(1));
                if verdict == 4 {
                    // It answers all takes of the key, and mostly says how long it is.
                    let text = text(input);
                    let length = if kind < 208 { text.len() as u16 } else { alike };
                    bytes.extend(length.to_be_bytes());
                    bytes.extend(text.as_bytes());
                    break 'key;
                }
                bytes.extend(alike.to_be_bytes());
                if verdict > 8 {
                    bytes.extend(input.bytes(63));
                    continue;
                }
                let numbers = match verdict {
                    3 => 0,
                    1 if pours && alike > 1 && row.cost > 0 => 1 + 3 * quotas,
                    _ => 1 + 2 * quotas,
                };
                for _ in 0..numbers {
                    bytes.extend(&input.likely().to_be_bytes()[1..]);
                }
            }
        }
    }
    // Mostly nothing more.
    let odd = input.byte().saturating_sub(240);
    bytes.extend(input.bytes(usize::from(odd)));
    bytes
}

/// Takes of one cost.
struct Row {
    cost: u64,
    takes: u16,
}

/// Reads a number of so many bytes.
fn integer(from: &mut Input<'_>, length: usize) -> u64 {
    let mut integer = [0; 8];
    integer[8 - length..].copy_from_slice(from.bytes(length));
    u64::from_be_bytes(integer)
}

fn row(from: &mut Input<'_>) -> Row {
    let (takes, cost) = (integer(from, 2) as u16, integer(from, 7));
    let _deadline = integer(from, 7);
    Row { cost, takes }
}

/// Reads a question: its rule, and the rows of each key. See `lua/include/read_question.lua`.
fn rule_and_rows<'a>(words: &Words, takes: &'a [Take]) -> Option<(&'a Rule, Vec<Vec<Row>>)> {
    let name = std::str::from_utf8(keys(words).first()?).ok()?;
    let mut rules = takes.iter().map(|take| &**take.rule());
    let rule = rules.find(|rule| name.contains(rule.path()))?;
    let bytes = arguments(words).first()?;
    let mut question = Input::new(bytes);
    let (_names_twice, records) = (integer(&mut question, 1), integer(&mut question, 2));
    // Positions in Lua begin with 1.
    let mut records = Input::new(bytes.get(usize::try_from(records).ok()? - 1..)?);
    let firsts = keys(words).iter().map(|_| {
        let (_rule, number_of_rows) = (integer(&mut records, 2), integer(&mut records, 2));
        (row(&mut records), number_of_rows)
    });
    let firsts: Vec<_> = firsts.collect();
    let rows = firsts.into_iter().map(|(first, number)| {
        let further = (1..number).map(|_| row(&mut records));
        std::iter::once(first).chain(further).collect()
    });
    let all = rows.collect();
    Some((rule, all))
}

pub fn value(input: &mut Input<'_>, depth: u8) -> Value {
    let many = |input: &mut Input<'_>| match depth {
        0 => 0,
        _ => input.byte() % 5,
    };
    match input.byte() % 14 {
        0 => Value::Nil,
        1 => Value::Int(input.likely() as i64),
        2 => Value::Okay,
        3 => Value::Boolean(input.byte() % 2 == 1),
        4 => Value::Double(f64::from_bits(input.number())),
        5 => Value::SimpleString(text(input)),
        6 => Value::VerbatimString {
            format: redis::VerbatimFormat::Text,
            text: text(input),
        },
        7 => {
            let number = many(input);
            Value::Array((0..number).map(|_| value(input, depth - 1)).collect())
        }
        8 => {
            let number = many(input);
            Value::Set((0..number).map(|_| value(input, depth - 1)).collect())
        }
        9 => {
            let number = many(input);
            let pair = |_| (value(input, depth - 1), value(input, depth - 1));
            Value::Map((0..number).map(pair).collect())
        }
        10 => {
            let number = many(input);
            Value::Push {
                kind: redis::PushKind::Other(text(input)),
                data: (0..number).map(|_| value(input, depth - 1)).collect(),
            }
        }
        11 => Value::ServerError(error(input)),
        12 => Value::BulkString(input.likely().to_string().into_bytes()),
        _ => {
            let length = usize::from(input.byte());
            Value::BulkString(input.bytes(length).to_vec())
        }
    }
}

fn text(input: &mut Input<'_>) -> String {
    let length = usize::from(input.byte() % 32);
    String::from_utf8_lossy(input.bytes(length)).into_owned()
}

/// As the client reads an error line.
fn error(input: &mut Input<'_>) -> ServerError {
    const CODES: [&str; 12] = [
        "ERR",
        "NOSCRIPT",
        "WRONGTYPE",
        "READONLY",
        "OOM",
        "NOPERM",
        "LOADING",
        "MASTERDOWN",
        "MOVED",
        "ASK",
        "BUSY",
        "NOAUTH",
    ];
    let code = *input.pick(&CODES);
    let line = format!("-{code} {}\r\n", text(input).replace(['\r', '\n'], " "));
    match redis::parse_redis_value(line.as_bytes()) {
        Ok(Value::ServerError(error)) => error,
        other => panic!("{other:?}"),
    }
}
