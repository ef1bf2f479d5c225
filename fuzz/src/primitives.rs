//! What Redis may say to a limiter and to a lock.

use std::collections::VecDeque;
use std::time::Duration;

use redis::Value;
use tidegate::Redis;
use tidegate::limiter::{Generation, Rate, RateLimiter};
use tidegate::lock::{Lock, Owner};

use super::input::{Input, tell};
use super::replies::value;
use super::server::{Reply, Server, encoded, numbered};

const MOST_CALLS: usize = 4;

pub fn run(bytes: &[u8]) {
    Server::with(|server| {
        let mut input = Input::new(bytes);
        for _ in 0..MOST_CALLS {
            if input.is_empty() {
                break;
            }
            let (what, with) = (input.byte(), input.likely());
            let replies = (0..1 + input.byte() % 4).map(|_| encoded(&reply(&mut input)));
            let mut replies: VecDeque<_> = replies.collect();
            let is_own = input.byte() >= 32;
            tell(|| format!("call {what} with {with}, {is_own}: {replies:?}"));
            server.answer(move |words| {
                let returned = replies.pop_front();
                let returned = returned.unwrap_or_else(|| b":0\r\n".to_vec());
                Reply::Bytes(match is_own {
                    true => numbered(words, &returned),
                    false => returned,
                })
            });
            server.block_on(call(&server.redis, what, with));
        }
        // What is left to be done in the background is done, too.
        server.answer(|words| Reply::Bytes(numbered(words, b":0\r\n")));
        server.sleep(Duration::from_secs(10));
    });
}

/// Any outcome is right, as long as it comes in time: a server that answers with errors is asked
/// for at most 5 s.
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
        4 => limiter.stored_rate().await.err(),
        5 => match Rate::overall(1 + with % 8, Duration::from_millis(1 + with % 1_000)) {
            Ok(rate) => limiter.try_set_rate(rate).await.err(),
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
