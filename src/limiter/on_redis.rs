use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::backend::{Answer, Backend, Configure, LimiterLines, Sharers, Wanted};
use super::grant::Grant;
use super::keys::{Keys, member};
use super::{Generation, LimiterError, LimiterErrorKind, Rate, RateType};
use crate::connection::{
    Connection, LIMITER_ACQUIRE, LIMITER_AVAILABLE, LIMITER_AVAILABLE_FIRST, LIMITER_CANCEL,
    LIMITER_CONFIGURE, LIMITER_DELETE, LIMITER_EXPIRE, LIMITER_FIRST, LIMITER_RELEASE,
    LIMITER_RESERVE, LIMITER_SECOND, Redis, Script,
};

/// Rate limiters in Redis, on the keys of Redisson.
#[derive(Clone)]
pub(super) struct OnRedis {
    redis: Redis,
    lines: Arc<LimiterLines>,
    #[cfg(feature = "test-util")]
    clock: Option<crate::ManualClock>,
}

impl OnRedis {
    pub(super) fn new(redis: &Redis) -> Self {
        Self {
            lines: redis.keep(|_| LimiterLines::default()),
            redis: redis.clone(),
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn with_clock(redis: &Redis, clock: crate::ManualClock) -> Self {
        let mut limiters = Self::new(redis);
        limiters.clock = Some(clock);
        limiters
    }

    #[cfg(feature = "test-util")]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(crate::ManualClock::now)
    }

    #[cfg(not(feature = "test-util"))]
    fn now(&self) -> Option<u64> {
        None
    }

    fn connection(&self) -> &Connection {
        self.redis.connection()
    }

    fn keys(&self, name: &str) -> Keys {
        Keys::new(name, self.redis.id())
    }

    /// A call of a script that takes the time last.
    async fn ask(
        &self,
        script: &'static Script,
        name: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, LimiterError> {
        let keys = self.keys(name);
        let with_time = |command: &mut Cmd| {
            arguments(command);
            if let Some(now) = self.now() {
                command.arg(now);
            }
        };
        let reply = self
            .connection()
            .call(script, &keys.all(), with_time)
            .await?;
        Ok(reply)
    }

    /// A number that is not one of those that say why there is none.
    fn number(&self, name: &str, permits: u64, reply: &Value) -> Result<u64, LimiterError> {
        match reply {
            Value::Int(number @ 0..) => Ok(number.unsigned_abs()),
            Value::Int(-1) => Err(LimiterError::unknown(name)),
            Value::Int(-2) => Err(LimiterError::above_rate(name, permits)),
            Value::Int(-3) => Err(malformed(name)),
            reply => Err(self.connection().protocol_error(reply).into()),
        }
    }

    async fn acquire_now(self, what: Wanted) -> Result<Answer, LimiterError> {
        let script = match what.generation {
            Generation::First => &LIMITER_FIRST,
            Generation::Second => &LIMITER_SECOND,
            Generation::Third => &LIMITER_ACQUIRE,
        };
        let member = member(what.permits);
        let arguments = |command: &mut Cmd| {
            command.arg(what.permits).arg(&member);
        };
        let reply = self.ask(script, &what.name, arguments).await?;
        match self.number(&what.name, what.permits, &reply)? {
            0 => Ok(self.granted(what, member, Duration::ZERO)),
            micros => Ok(Answer::Wait(Duration::from_micros(micros))),
        }
    }

    async fn reserve_within(self, what: Wanted, wait: Duration) -> Result<Answer, LimiterError> {
        let identity = Uuid::new_v4().into_bytes();
        let most = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        // A script's numbers are doubles.
        let most = most.min(1 << 53);
        let arguments = |command: &mut Cmd| {
            command.arg(what.permits).arg(&identity[..8]).arg(most);
        };
        let reply = self.ask(&LIMITER_RESERVE, &what.name, arguments).await;
        let answer = reply.and_then(|reply| self.reservation(&what, &reply, most));
        if let Err(error) = &answer
            && matches!(error.kind(), LimiterErrorKind::Store(_))
        {
            // It may be far in the future, and all that come later would stand behind it.
            let unheard = identity[..8].to_vec();
            let name = Arc::clone(&what.name);
            tokio::spawn(self.clone().cancel(name, unheard));
        }
        Ok(match answer? {
            (Some(member), wait) => self.granted(what, member, wait),
            (None, wait) => Answer::Wait(wait),
        })
    }

    /// Of a reply: what was reserved, if it was, and how long it is until then.
    fn reservation(
        &self,
        what: &Wanted,
        reply: &Value,
        most: u64,
    ) -> Result<(Option<Vec<u8>>, Duration), LimiterError> {
        let Value::Array(parts) = reply else {
            self.number(&what.name, what.permits, reply)?;
            return Err(self.connection().protocol_error(reply).into());
        };
        match &parts[..] {
            [Value::Int(0), Value::Int(micros @ 0..)] => Ok((None, micros_of(*micros))),
            // Who waits for this long waits no longer, whatever the reply says.
            [
                Value::Int(1),
                Value::Int(micros @ 0..),
                Value::BulkString(member),
            ] if micros.unsigned_abs() <= most => Ok((Some(member.clone()), micros_of(*micros))),
            _ => Err(self.connection().protocol_error(reply).into()),
        }
    }

    fn granted(self, what: Wanted, member: Vec<u8>, wait: Duration) -> Answer {
        let runtime = Handle::current();
        let grant = Grant::new(move || {
            // Those of earlier generations are kept in other ways.
            if what.generation == Generation::Third {
                runtime.spawn(self.cancel(what.name, member));
            }
        });
        Answer::Granted(grant, wait)
    }

    /// Who asked has gone, so there is nobody to tell of an error. A server that does not answer is asked again for a
    /// while; what is not given back leaves after the interval.
    async fn cancel(self, name: Arc<str>, member: Vec<u8>) {
        const ATTEMPTS: u32 = 12;
        const PAUSE: Duration = Duration::from_millis(250);
        let arguments = |command: &mut Cmd| {
            command.arg(&member);
        };
        for _ in 0..ATTEMPTS {
            if self.ask(&LIMITER_CANCEL, &name, arguments).await.is_ok() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn micros_of(micros: i64) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

fn malformed(name: &str) -> LimiterError {
    let message = format!(
        "what is kept under \"{name}\" is not a rate, expected a hash with whole numbers in rate, interval and type"
    );
    LimiterError::new(LimiterErrorKind::Malformed, message)
}

/// In a task of its own, so that the answer is seen to even if nobody waits for it any more: a grant that is dropped is
/// given back.
fn seen_to(
    work: impl Future<Output = Result<Answer, LimiterError>> + Send + 'static,
) -> BoxFuture<'static, Result<Answer, LimiterError>> {
    Box::pin(async move {
        match tokio::spawn(work).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(runtime_ended()),
            },
        }
    })
}

fn runtime_ended() -> LimiterError {
    let kind = crate::StoreErrorKind::Unavailable;
    crate::StoreError::new(kind, "the runtime has ended").into()
}

impl Backend for OnRedis {
    fn acquire(&self, what: Wanted) -> BoxFuture<'static, Result<Answer, LimiterError>> {
        seen_to(self.clone().acquire_now(what))
    }

    fn reserve(
        &self,
        what: Wanted,
        wait: Duration,
    ) -> BoxFuture<'static, Result<Answer, LimiterError>> {
        seen_to(self.clone().reserve_within(what, wait))
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        permits: u64,
    ) -> BoxFuture<'a, Result<u64, LimiterError>> {
        Box::pin(async move {
            let arguments = |command: &mut Cmd| {
                command.arg(permits);
            };
            let reply = self.ask(&LIMITER_RELEASE, name, arguments).await?;
            self.number(name, permits, &reply)
        })
    }

    fn available<'a>(
        &'a self,
        name: &'a str,
        generation: Generation,
    ) -> BoxFuture<'a, Result<u64, LimiterError>> {
        Box::pin(async move {
            let script = match generation {
                Generation::First => &LIMITER_AVAILABLE_FIRST,
                Generation::Second | Generation::Third => &LIMITER_AVAILABLE,
            };
            let reply = self.ask(script, name, |_| {}).await?;
            self.number(name, 0, &reply)
        })
    }

    fn configure<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        how: Configure,
        with: Sharers,
    ) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(async move {
            let how = match how {
                Configure::Try => "try",
                Configure::Set => "set",
                Configure::Update => "update",
                Configure::Keep => "keep",
            };
            let kind = match rate.rate_type() {
                RateType::Overall => "0",
                RateType::PerClient => "1",
            };
            let arguments = |command: &mut Cmd| {
                command.arg(how).arg(rate.permits());
                command.arg(rate.interval_millis()).arg(kind);
                command.arg(rate.keep_alive_millis());
                command.arg(u8::from(with == Sharers::Redisson));
            };
            let reply = self.ask(&LIMITER_CONFIGURE, name, arguments).await?;
            Ok(self.number(name, 0, &reply)? == 1)
        })
    }

    fn rate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Rate>, LimiterError>> {
        Box::pin(async move {
            let mut command = cmd("HMGET");
            command
                .arg(name)
                .arg(&["rate", "interval", "type", "keepAliveTime"]);
            let fields: Vec<Option<String>> = self.connection().query(command, name).await?;
            let [Some(rate), Some(interval), Some(kind), keep_alive] = &fields[..] else {
                return Ok(None);
            };
            let number = |text: &str| text.parse::<u64>().ok();
            let keep_alive = keep_alive.as_deref().unwrap_or("0");
            let rate = match (number(rate), number(interval), number(keep_alive)) {
                (Some(rate), Some(interval), Some(keep_alive)) => {
                    Rate::kept(kind, rate, interval, keep_alive)
                }
                _ => None,
            };
            rate.map(Some).ok_or_else(|| malformed(name))
        })
    }

    fn expire<'a>(
        &'a self,
        name: &'a str,
        after: Duration,
    ) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(async move {
            // An expiry of nothing would be a deletion.
            let millis = after.as_nanos().div_ceil(1_000_000).clamp(1, 1 << 53);
            let millis = u64::try_from(millis).expect("it is clamped");
            let arguments = |command: &mut Cmd| {
                command.arg(millis);
            };
            let keys = self.keys(name);
            let reply = self
                .connection()
                .call(&LIMITER_EXPIRE, &keys.all(), arguments)
                .await?;
            Ok(self.number(name, 0, &reply)? == 1)
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(async move {
            let keys = self.keys(name);
            let reply = self
                .connection()
                .call(&LIMITER_DELETE, &keys.all(), |_| {})
                .await?;
            Ok(self.number(name, 0, &reply)? == 1)
        })
    }

    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(async move {
            let mut exists = cmd("EXISTS");
            exists.arg(name);
            Ok(self.connection().query(exists, name).await?)
        })
    }

    fn lines(&self) -> &LimiterLines {
        &self.lines
    }
}

impl fmt::Debug for OnRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}
