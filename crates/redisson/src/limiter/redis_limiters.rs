use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;

use super::error::{LimiterError, LimiterErrorKind, above_rate, counted_by, unknown_limiter};
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, ClientId, Generation, Grant, GrantId, LimiterFuture,
    Limiters, SetMode, Sharing, StoredRate,
};
use super::rate::{Rate, RateType};
use super::redisson_use::RedissonPermits;
use super::scripts::{
    LIMITER_ACQUIRE, LIMITER_ACQUIRE_FAIR, LIMITER_AVAILABLE, LIMITER_AVAILABLE_FIRST,
    LIMITER_CONFIGURE, LIMITER_DELETE, LIMITER_EXPIRE, LIMITER_FIRST, LIMITER_GIVE_BACK,
    LIMITER_RELEASE, LIMITER_SECOND,
};
use crate::clock::Clock;
use crate::connection::{Connection, Redis, Script};
use crate::tagged;

/// How long a call may take that gives grants back.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(10);

/// Rate limiters on Redis, under the keys of Redisson.
#[derive(Clone)]
pub(super) struct RedisLimiters {
    redis: Redis,
    client_id: ClientId,
    /// The clock of a test, instead of the server's clock.
    clock: Option<Clock>,
}

impl RedisLimiters {
    pub(super) fn new(redis: &Redis, client_id: ClientId, clock: Option<Clock>) -> Self {
        Self {
            redis: redis.clone(),
            client_id,
            clock,
        }
    }

    fn connection(&self) -> &Connection {
        self.redis.connection()
    }

    /// Calls a script whose first argument is the time of a test, empty for the server's time.
    async fn call(
        &self,
        script: &'static Script,
        name: &str,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Value, LimiterError> {
        let keys = limiter_keys(name, self.redis.id());
        let with_time = |command: &mut Cmd| {
            argument(command, self.clock.as_ref().map(Clock::now));
            arguments(command);
        };
        let reply = self
            .connection()
            .call(script, &keys.each_ref().map(String::as_str), with_time);
        Ok(reply.await?)
    }

    /// As [`call`](Self::call), for a script that replies with a number.
    async fn call_for_number(
        &self,
        script: &'static Script,
        name: &str,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<u64, LimiterError> {
        let reply = self.call(script, name, arguments).await?;
        self.number(name, 0, &reply)
    }

    /// Reads a reply of at least 0. The scripts use negative numbers for errors.
    fn number(&self, name: &str, permits: u64, reply: &Value) -> Result<u64, LimiterError> {
        match reply {
            Value::Int(number @ 0..) => Ok(number.unsigned_abs()),
            // -4: the rate of an earlier choice stands. For this process, its own is missing.
            Value::Int(-1 | -4) => Err(unknown_limiter(name)),
            Value::Int(-2) => Err(above_rate(name, permits)),
            Value::Int(-3) => Err(malformed(name)),
            Value::Int(-5) => Err(counted_by(name, Some(Generation::First))),
            Value::Int(-6) => Err(counted_by(name, Some(Generation::Second))),
            Value::Int(-7) => Err(counted_by(name, Some(Generation::Third))),
            Value::Int(-8) => Err(counted_by(name, None)),
            reply => Err(self.connection().protocol_error(reply).into()),
        }
    }

    async fn acquire_now(
        self,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> Result<AcquireReply, LimiterError> {
        let script = match request.generation {
            Generation::First => return self.acquire_each(&LIMITER_FIRST, request, call).await,
            Generation::Second => {
                return self.acquire_each(&LIMITER_SECOND, request, call).await;
            }
            Generation::Third if request.is_fair => &LIMITER_ACQUIRE_FAIR,
            Generation::Third => &LIMITER_ACQUIRE,
        };
        let arguments = |command: &mut Cmd| {
            let members = call.callers.iter().map(|id| member(id, request.permits));
            command.arg(request.permits).arg(call.callers.len());
            command.arg(members.collect::<Vec<_>>().concat());
            argument(command, call.redisson_average);
            command.arg(u8::from(call.is_in_doubt));
            argument(command, call.chosen_at);
        };
        let reply = self.call(script, &request.name, arguments).await?;
        let Value::Array(parts) = &reply else {
            self.number(&request.name, request.permits, &reply)?;
            return Err(self.connection().protocol_error(&reply).into());
        };
        let [granted, Value::Int(micros @ 0..), counted @ ..] = &parts[..] else {
            return Err(self.connection().protocol_error(&reply).into());
        };
        let granted: Option<Vec<_>> = match granted {
            Value::Int(number @ 0..) => Some((0..usize::try_from(*number).unwrap_or(0)).collect()),
            Value::Array(positions) => positions.iter().map(index).collect(),
            _ => None,
        };
        Ok(AcquireReply {
            granted: granted.ok_or_else(|| self.connection().protocol_error(&reply))?,
            stamp: 0,
            wait: Duration::from_micros(micros.unsigned_abs()),
            redisson: match counted {
                [Value::Int(permits @ 0..), Value::Int(millis @ 0..)] => Some(RedissonPermits {
                    permits: permits.unsigned_abs(),
                    interval: Duration::from_millis(millis.unsigned_abs()),
                }),
                _ => None,
            },
        })
    }

    /// The scripts of earlier generations take one caller in each call.
    async fn acquire_each(
        self,
        script: &'static Script,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> Result<AcquireReply, LimiterError> {
        let (mut granted, mut wait) = (0, Duration::ZERO);
        for id in &call.callers {
            let arguments = |command: &mut Cmd| {
                command.arg(request.permits);
                command.arg(member(id, request.permits));
                command.arg(u8::from(call.is_in_doubt));
                argument(command, call.chosen_at);
            };
            let reply = self.call(script, &request.name, arguments).await?;
            match self.number(&request.name, request.permits, &reply)? {
                0 => granted += 1,
                micros => {
                    wait = Duration::from_micros(micros);
                    break;
                }
            }
        }
        Ok(AcquireReply {
            granted: (0..granted).collect(),
            wait,
            ..AcquireReply::default()
        })
    }
}

/// Adds a number, or an empty argument.
fn argument(command: &mut Cmd, number: Option<u64>) {
    match number {
        Some(number) => command.arg(number),
        None => command.arg(""),
    };
}

/// Scripts count callers from 1.
fn index(position: &Value) -> Option<usize> {
    match position {
        Value::Int(position @ 1..) => usize::try_from(position - 1).ok(),
        _ => None,
    }
}

/// A grant as a member of the sorted set: the length of its id, the id, the permits.
fn member(id: &GrantId, permits: u64) -> Vec<u8> {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX).to_le_bytes();
    [&[16][..], id, &permits].concat()
}

fn malformed(name: &str) -> LimiterError {
    let message = format!(
        "the key \"{name}\" does not hold a rate, expected a hash with whole numbers in rate, \
         interval and type"
    );
    LimiterError::of(LimiterErrorKind::Malformed, message)
}

impl Limiters for RedisLimiters {
    fn acquire(
        &self,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> LimiterFuture<'static, AcquireReply> {
        Box::pin(self.clone().acquire_now(request, call))
    }

    fn give_back(&self, name: Arc<str>, grants: Vec<Grant>) -> LimiterFuture<'static, u64> {
        let mut limiters = self.clone();
        limiters.redis = limiters.redis.timeout(GIVE_BACK_TIMEOUT);
        Box::pin(async move {
            let arguments = |command: &mut Cmd| {
                for grant in &grants {
                    command.arg(member(&grant.id, grant.permits));
                }
            };
            let given_back = limiters.call_for_number(&LIMITER_GIVE_BACK, &name, arguments);
            given_back.await
        })
    }

    fn run_unawaited(&self, calls: BoxFuture<'static, ()>) {
        self.connection().run_unawaited(|call| call.until(calls));
    }

    fn release<'a>(&'a self, name: &'a str, permits: u64) -> LimiterFuture<'a, u64> {
        Box::pin(
            self.call_for_number(&LIMITER_RELEASE, name, move |command| {
                command.arg(permits).arg(&self.client_id);
            }),
        )
    }

    fn available<'a>(&'a self, name: &'a str, generation: Generation) -> LimiterFuture<'a, u64> {
        let script = match generation {
            Generation::First => &LIMITER_AVAILABLE_FIRST,
            Generation::Second | Generation::Third => &LIMITER_AVAILABLE,
        };
        let arguments = move |command: &mut Cmd| {
            command.arg(generation.number());
        };
        Box::pin(self.call_for_number(script, name, arguments))
    }

    fn set_rate<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        sharing: Sharing,
        generation: Generation,
        mode: SetMode,
    ) -> LimiterFuture<'a, Option<u64>> {
        Box::pin(async move {
            let (mode, chosen_at, chosen_ago) = match mode {
                SetMode::IfMissing => ("if_missing", None, None),
                SetMode::Always => ("always", None, None),
                SetMode::ChosenAgo(ago) => {
                    let micros = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
                    ("chosen", None, Some(micros))
                }
                SetMode::ChosenAt(at) => ("chosen", Some(at), None),
            };
            let arguments = |command: &mut Cmd| {
                command.arg(mode).arg(rate.permits());
                command.arg(rate.interval_millis());
                command.arg(match rate.rate_type() {
                    RateType::Overall => "0",
                    RateType::PerClient => "1",
                });
                command.arg(rate.keep_alive);
                command.arg(u8::from(sharing == Sharing::WithRedisson));
                argument(command, chosen_at);
                argument(command, chosen_ago);
                command.arg(generation.number());
            };
            let chosen_at = self.call_for_number(&LIMITER_CONFIGURE, name, arguments);
            Ok(Some(chosen_at.await?).filter(|at| *at > 0))
        })
    }

    fn stored<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<StoredRate>> {
        Box::pin(async move {
            let mut fields = cmd("HMGET");
            fields.arg(name);
            fields.arg(&["rate", "interval", "type", "keepAliveTime", "countsExpire"]);
            let fields = self.connection().query(fields, name).await?;
            let fields: [Option<String>; 5] = fields;
            let [
                Some(permits),
                Some(interval),
                Some(rate_type),
                keep_alive,
                marker,
            ] = fields
            else {
                return Ok(None);
            };
            let number = |text: &str| text.parse::<u64>().ok();
            let keep_alive = keep_alive.as_deref();
            let rate = match (
                number(&permits),
                number(&interval),
                number(keep_alive.unwrap_or("0")),
            ) {
                (Some(permits), Some(interval), Some(keep_alive)) => {
                    Rate::stored(&rate_type, permits, interval, keep_alive)
                }
                _ => None,
            };
            let is_ours = marker == Some(format!("{permits} {interval} {rate_type}"))
                // Only Redisson writes a keep-alive time of 0.
                && keep_alive != Some("0");
            let mut pttl = cmd("PTTL");
            pttl.arg(name);
            let millis: i64 = self.connection().query(pttl, name).await?;
            Ok(Some(StoredRate {
                rate: rate.ok_or_else(|| malformed(name))?,
                sharing: if is_ours {
                    Sharing::TidegateOnly
                } else {
                    Sharing::WithRedisson
                },
                expires_in: u64::try_from(millis).ok().map(Duration::from_millis),
            }))
        })
    }

    fn expire<'a>(&'a self, name: &'a str, after: Duration) -> LimiterFuture<'a, bool> {
        Box::pin(async move {
            // Redis deletes a key that expires after 0 ms.
            let millis = after.as_nanos().div_ceil(1_000_000).clamp(1, 1 << 53);
            let millis = u64::try_from(millis).expect("it is clamped");
            let arguments = |command: &mut Cmd| {
                command.arg(millis);
            };
            let exists = self.call_for_number(&LIMITER_EXPIRE, name, arguments);
            Ok(exists.await? == 1)
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool> {
        Box::pin(async move {
            let existed = self.call_for_number(&LIMITER_DELETE, name, |_| {});
            Ok(existed.await? == 1)
        })
    }

    fn exists<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool> {
        Box::pin(async move {
            let mut exists = cmd("EXISTS");
            exists.arg(name);
            Ok(self.connection().query(exists, name).await?)
        })
    }

    fn timeout(&self) -> Duration {
        self.connection().timeout()
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(self.connection().runtime())
    }
}

impl fmt::Debug for RedisLimiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}

/// The Redis keys of one limiter, in the order of `KEYS` in `lua/include/permits.lua`.
fn limiter_keys(name: &str, client: &str) -> [String; 10] {
    let tagged = tagged(name);
    let key = |suffix: &str| format!("{tagged}:{suffix}");
    let client_key = |suffix: &str| format!("{tagged}:{suffix}:{client}");
    [
        name.to_owned(),
        key("value"),
        key("permits"),
        client_key("value"),
        client_key("permits"),
        client_key("epoch"),
        key("waiting"),
        key("waiting_clients"),
        client_key("waiting"),
        key("forgotten"),
    ]
}
