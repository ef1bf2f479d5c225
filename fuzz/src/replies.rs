//! What Redis may say to a take, a batch and a refund: any value, at any place. The answer is a decision for each take, or an error
//! with a kind; never a panic, nor memory for what was only announced.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, ServerError, Value};
use tidegate::{Key, ManualClock, RedisStore, Rule, Store, StoreErrorKind, Take, Token};
use tokio::runtime::{Builder, Runtime};

use super::input::Input;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let takes = takes(&mut input);
    let token = Token::new(input.likely(), input.likely(), input.likely());
    let mut replies = VecDeque::new();
    while !input.is_empty() && replies.len() < 8 {
        replies.push_back(reply(&mut input, &takes));
    }
    let store = RedisStore::new(Answers(Arc::new(Mutex::new(replies))));
    // By the server's clock no reply shows that it is ours, and the first one says what the clock shows.
    let store = match bytes.len() % 8 {
        0 => store,
        _ => store.clock(ManualClock::default()),
    };
    in_runtime(|| {
        let answer = store.take(&takes).now_or_never();
        match answer.expect("it answers at once") {
            Ok(decisions) => {
                assert_eq!(decisions.len(), takes.len());
                for (decision, take) in decisions.iter().zip(&takes) {
                    assert_eq!(decision.quotas().len(), take.quotas().len());
                    let is_charged = decision.is_allowed() && take.units() > 0;
                    let charged = decision.token().map(|token| token.units());
                    assert_eq!(charged, is_charged.then_some(take.units()));
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
            }
            Err(error) => is_honest(&error),
        }
        let answer = store.refund(&takes[0], &token).now_or_never();
        match answer.expect("it answers at once") {
            Ok(units) => assert!(
                units <= token.units().min(takes[0].units()),
                "{units} given back"
            ),
            Err(error) => is_honest(&error),
        }
    });
}

fn is_honest(error: &tidegate::StoreError) {
    let message = error.to_string();
    let is_right = match error.kind() {
        StoreErrorKind::Full => false,
        StoreErrorKind::Timeout => {
            message.contains("timed out") || message.contains("did not answer within")
        }
        // A server may say so of itself.
        StoreErrorKind::Configuration => {
            let words = ["is a node of a cluster", "cluster support disabled", "slot"];
            words.iter().any(|word| message.contains(word))
        }
        _ => true,
    };
    assert!(is_right, "{error:?}");
    assert!(!message.is_empty() && message.len() < 1_000, "{message}");
}

/// One or two rules, and up to 16 takes of them in a row.
fn takes(input: &mut Input<'_>) -> Vec<Take> {
    let mut rules = Vec::new();
    for _ in 0..=input.byte() % 2 {
        let counting = input.counting();
        let rule = Rule::new("p", input.quotas(3)).expect("a valid rule");
        rules.push(Arc::new(rule.algorithm(counting)));
    }
    let mut takes = Vec::new();
    for _ in 0..=input.byte() % 16 {
        let kind = input.byte();
        let rule = Arc::clone(&rules[usize::from(kind) % rules.len()]);
        let cost = match kind & 0x80 {
            0 => u64::from(kind >> 4),
            _ => input.likely(),
        };
        takes.push(Take::new(rule, Key::default()).cost(cost));
    }
    takes
}

fn reply(input: &mut Input<'_>, takes: &[Take]) -> Result<Value, RedisError> {
    match input.byte() {
        0..=15 => Err(std::io::Error::other("cut").into()),
        16..=127 => Ok(Value::BulkString(rows(input, takes))),
        _ => Ok(value(input, 4)),
    }
}

/// What looks like a reply of the scripts: now and mark, and then answers: a verdict, a number of takes, wait or serial,
/// and two or three numbers for each quota.
fn rows(input: &mut Input<'_>, takes: &[Take]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(input.likely().to_le_bytes());
    bytes.extend([0; 8]);
    for _ in 0..=input.byte() % 4 {
        let verdict = input.byte() % 6;
        bytes.push(verdict);
        let answers = match input.byte() {
            few @ 0..=191 => u16::from(few % 17),
            _ => input.likely() as u16,
        };
        bytes.extend(answers.to_le_bytes());
        let numbers = match (verdict, input.byte()) {
            (3, 0..=191) => 0,
            (_, any @ 224..) => usize::from(any - 224),
            (_, each) => 1 + (2 + usize::from(each % 2)) * takes[0].quotas().len(),
        };
        for _ in 0..numbers {
            bytes.extend(&input.likely().to_le_bytes()[..7]);
        }
    }
    // Mostly nothing: then all numbers are whole.
    let odd = input.byte().saturating_sub(240);
    bytes.extend(input.bytes(usize::from(odd)));
    bytes
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

/// A connection that has its answers ready, and then has none.
#[derive(Clone)]
struct Answers(Arc<Mutex<VecDeque<Result<Value, RedisError>>>>);

impl ConnectionLike for Answers {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let next = self.0.lock().expect("nobody panics here").pop_front();
        let mut next = next.unwrap_or(Ok(Value::Nil));
        if let Ok(Value::BulkString(reply)) = &mut next
            && let Some(place) = reply.get_mut(8..16)
            && let Some(mark) = mark(command)
        {
            place.copy_from_slice(&mark.to_le_bytes());
        }
        Box::pin(async { next })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("takes are single commands")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// What a reply to this question repeats: the argument behind the question.
fn mark(command: &Cmd) -> Option<u64> {
    match command.args_iter().nth(5)? {
        redis::Arg::Simple(mark) => std::str::from_utf8(mark).ok()?.parse().ok(),
        _ => None,
    }
}

thread_local! {
    /// Time-outs need one; it has nothing else to do.
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

pub fn in_runtime<T>(work: impl FnOnce() -> T) -> T {
    RUNTIME.with(|runtime| {
        let _inside = runtime.enter();
        work()
    })
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(work))
}
