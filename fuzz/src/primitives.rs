//! What Redis may say to a limiter and to a lock. Both have a connection of their own making, so here is a server that answers
//! whatever the input says, on the loopback interface and in the same thread; time is paused, so nobody waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use tidegate::{Generation, Lock, Owner, Rate, RateLimiter, Redis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::input::{Input, tell};
use super::replies::value;

const MOST_CALLS: usize = 4;

pub fn run(bytes: &[u8]) {
    thread_local! {
        static WORLD: World = World::new();
    }
    WORLD.with(|world| {
        let mut input = Input::new(bytes);
        for _ in 0..MOST_CALLS {
            if input.is_empty() {
                break;
            }
            let (what, with) = (input.byte(), input.likely());
            let replies = (0..1 + input.byte() % 4).map(|_| encoded(&reply(&mut input)));
            *world.replies.lock().expect("nobody panics here") = replies.collect();
            tell(|| format!("call {what} with {with}: {:?}", world.replies));
            world.runtime.block_on(call(&world.redis, what, with));
        }
        // What is left to be done in the background is done, too.
        world.replies.lock().expect("nobody panics here").clear();
        world
            .runtime
            .block_on(async { tokio::time::sleep(Duration::from_secs(10)).await });
    });
}

/// Whatever comes of it is all right, if something does, and in time: 5 s is for how long a server is asked at most that answers
/// with errors.
async fn call(redis: &Redis, what: u8, with: u64) {
    let started = tokio::time::Instant::now();
    make(redis, what, with).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(8), "it took {took:?}");
}

async fn make(redis: &Redis, what: u8, with: u64) {
    let limiter = RateLimiter::new(redis, "l");
    let limiter = match what / 64 {
        0 => limiter,
        1 => limiter.fair(),
        2 => limiter.generation(Generation::First),
        _ => limiter.generation(Generation::Second),
    };
    let (owner, lock) = (Owner::new(), Lock::new(redis, "l"));
    let lock = if what >= 128 { lock.by(&owner) } else { lock };
    let wait = Duration::from_millis(with % 1_000);
    let error = match what % 16 {
        0 => limiter.try_acquire(with).await.err(),
        1 => limiter.try_acquire_for(1 + with % 8, wait).await.err(),
        2 => limiter.release(with).await.err(),
        3 => limiter.available_permits().await.err(),
        4 => limiter.rate().await.err(),
        5 => match Rate::overall(1 + with % 8, Duration::from_millis(1 + with % 1_000)) {
            Ok(rate) => limiter.try_set(rate).await.err(),
            Err(error) => Some(error),
        },
        6 => limiter.expire(wait).await.err(),
        7 => limiter.delete().await.err(),
        8 => limiter.exists().await.err(),
        of_lock => return call_lock(&lock, &owner, of_lock, wait).await,
    };
    if let Some(error) = error {
        is_short(&error.to_string());
    }
}

async fn call_lock(lock: &Lock, owner: &Owner, what: u8, wait: Duration) {
    let error = match what {
        9 | 10 => match lock
            .try_lock_for(if what == 9 { Duration::ZERO } else { wait })
            .await
        {
            Ok(Some(guard)) => {
                let _ = (guard.fencing_token(), guard.is_held());
                guard.release().await.err()
            }
            Ok(None) => None,
            Err(error) => Some(error),
        },
        11 => lock.lock_for(wait).await.err(),
        12 => lock.is_locked().await.err(),
        13 => lock.remaining().await.err(),
        14 => lock.hold_count(owner).await.err(),
        _ => lock.force_unlock().await.err(),
    };
    if let Some(error) = error {
        is_short(&error.to_string());
    }
}

/// A log is not filled by what somebody else has put into Redis.
fn is_short(message: &str) {
    assert!(
        !message.is_empty() && message.len() < 4_000,
        "{} bytes: {message}",
        message.len()
    );
}

/// What the scripts answer, more or less; or anything.
fn reply(input: &mut Input<'_>) -> Value {
    let small = |input: &mut Input<'_>| Value::Int(i64::from(input.byte() % 6) - 3);
    let int = |input: &mut Input<'_>| Value::Int(input.likely() as i64);
    match input.byte() % 8 {
        0 => small(input),
        1 => int(input),
        2 => Value::Array(vec![small(input), int(input)]),
        3 => Value::Array(vec![small(input), int(input), int(input)]),
        4 => Value::Array(vec![
            small(input),
            int(input),
            Value::BulkString(input.bytes(21).to_vec()),
        ]),
        5 => {
            let field = |_| match input.byte() % 8 {
                0 => Value::Nil,
                _ => Value::BulkString(input.likely().to_string().into_bytes()),
            };
            Value::Array((0..4).map(field).collect())
        }
        _ => value(input, 3),
    }
}

/// As it goes over the wire, in RESP3. Pushes are no replies, and some errors would only lead to another connection.
fn encoded(value: &Value) -> Vec<u8> {
    let all = |mark: char, values: &[Value]| {
        let mut bytes = format!("{mark}{}\r\n", values.len()).into_bytes();
        bytes.extend(values.iter().flat_map(encoded));
        bytes
    };
    let one_line = |text: &str| text.replace(['\r', '\n'], " ");
    match value {
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::BulkString(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        Value::SimpleString(text) => format!("+{}\r\n", one_line(text)).into_bytes(),
        Value::Okay => b"+OK\r\n".to_vec(),
        Value::Boolean(is_so) => format!("#{}\r\n", if *is_so { 't' } else { 'f' }).into_bytes(),
        Value::Double(number) if number.is_finite() => format!(",{number:e}\r\n").into_bytes(),
        Value::Array(values) => all('*', values),
        Value::Set(values) => all('~', values),
        Value::Map(pairs) => {
            let mut bytes = format!("%{}\r\n", pairs.len()).into_bytes();
            bytes.extend(
                pairs
                    .iter()
                    .flat_map(|(key, value)| [encoded(key), encoded(value)].concat()),
            );
            bytes
        }
        Value::ServerError(error) => {
            let code = match error.code() {
                "READONLY" | "MASTERDOWN" | "NOSCRIPT" => "ERR",
                code => code,
            };
            format!("-{code} {}\r\n", one_line(error.details().unwrap_or(""))).into_bytes()
        }
        _ => b"_\r\n".to_vec(),
    }
}

struct World {
    runtime: Runtime,
    redis: Redis,
    replies: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let replies = Arc::<Mutex<VecDeque<_>>>::default();
        let redis = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let url = format!("redis://{}", listener.local_addr().expect("an address"));
            let said = Arc::clone(&replies);
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(serve(client, Arc::clone(&said)));
                }
            });
            Redis::connect(&url).await.expect("it answers")
        });
        Self {
            runtime,
            redis,
            replies,
        }
    }
}

async fn serve(mut client: TcpStream, said: Arc<Mutex<VecDeque<Vec<u8>>>>) -> Option<()> {
    client.set_nodelay(true).ok()?;
    let mut received = Vec::new();
    loop {
        let mut answers = Vec::new();
        while let Some((command, length)) = command(&received) {
            answers.extend(match &*command {
                b"EVALSHA" | b"EVAL" | b"HMGET" | b"EXISTS" => {
                    let next = said.lock().expect("nobody panics here").pop_front();
                    next.unwrap_or_else(|| b":0\r\n".to_vec())
                }
                b"HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
                b"SUBSCRIBE" => b">3\r\n+subscribe\r\n+x\r\n:1\r\n".to_vec(),
                _ => b"+OK\r\n".to_vec(),
            });
            received.drain(..length);
        }
        client.write_all(&answers).await.ok()?;
        if client.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}

/// The first command's name, and how many bytes it takes; none if it is not all there.
fn command(received: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut at = 0;
    let mut number = |mark: u8| {
        let line = received[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let text = received[at..at + line].strip_prefix(&[mark])?;
        let number: usize = std::str::from_utf8(text).ok()?.parse().ok()?;
        at += line + 2;
        let from = at;
        if mark == b'$' {
            at += number + 2;
        }
        (at <= received.len()).then_some((from, number))
    };
    let (_, words) = number(b'*')?;
    let (from, length) = number(b'$')?;
    for _ in 1..words {
        number(b'$')?;
    }
    Some((received[from..from + length].to_ascii_uppercase(), at))
}
