use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Cmd, Value, cmd};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::backend::{Backend, Configure, Grant, Id, Kept, Reply, Sharers, Wanted};
use super::client::Client;
use super::keys::Keys;
use super::{Generation, LimiterError, LimiterErrorKind, Rate, RateType};
use crate::connection::{
    Connection, LIMITER_ACQUIRE, LIMITER_ACQUIRE_FAIR, LIMITER_AVAILABLE, LIMITER_AVAILABLE_FIRST,
    LIMITER_CONFIGURE, LIMITER_DELETE, LIMITER_EXPIRE, LIMITER_FIRST, LIMITER_GIVE_BACK,
    LIMITER_RELEASE, LIMITER_SECOND, Redis, Script,
};

/// Rate limiters in Redis, on the keys of Redisson.
#[derive(Clone)]
pub(super) struct OnRedis {
    redis: Redis,
    client: Arc<KeptClient>,
    #[cfg(feature = "test-util")]
    clock: Option<crate::test_util::ManualClock>,
}

/// The names that are asked for by one `Redis` handle.
struct KeptClient(Client);

impl KeptClient {
    fn new(client: &str) -> Self {
        let client = Uuid::try_parse(client).unwrap_or_else(|_| Uuid::new_v4());
        let mut half = [0; 8];
        half.copy_from_slice(&client.as_bytes()[..8]);
        Self(Client::new(half))
    }
}

impl OnRedis {
    pub(super) fn new(redis: &Redis) -> Self {
        Self {
            client: redis.keep(|_| KeptClient::new(redis.id())),
            redis: redis.clone(),
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    #[cfg(feature = "test-util")]
    pub(super) fn with_clock(redis: &Redis, clock: crate::test_util::ManualClock) -> Self {
        let mut limiters = Self::new(redis);
        limiters.clock = Some(clock);
        limiters
    }

    #[cfg(feature = "test-util")]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(crate::test_util::ManualClock::now)
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

    async fn ask_for(self, what: Wanted, ids: Vec<Id>) -> Result<Reply, LimiterError> {
        let script = match what.generation {
            Generation::First => return self.ask_in_turn(&LIMITER_FIRST, &what, &ids).await,
            Generation::Second => return self.ask_in_turn(&LIMITER_SECOND, &what, &ids).await,
            Generation::Third if what.is_fair => &LIMITER_ACQUIRE_FAIR,
            Generation::Third => &LIMITER_ACQUIRE,
        };
        let arguments = |command: &mut Cmd| {
            let members = ids.iter().map(|id| member(id, what.permits));
            let members = members.collect::<Vec<_>>().concat();
            command.arg(what.permits).arg(ids.len()).arg(members);
            match self.now() {
                Some(now) => command.arg(now),
                None => command.arg(""),
            };
        };
        let keys = self.keys(&what.name);
        let reply = self.connection().call(script, &keys.all(), arguments);
        let reply = reply.await?;
        let Value::Array(parts) = &reply else {
            self.number(&what.name, what.permits, &reply)?;
            return Err(self.connection().protocol_error(&reply).into());
        };
        let granted: Option<Vec<_>> = match &parts[..] {
            [Value::Int(number @ 0..), _] => {
                Some((0..usize::try_from(*number).unwrap_or(0)).collect())
            }
            [Value::Array(places), _] => places.iter().map(place).collect(),
            _ => None,
        };
        match (granted, &parts[..]) {
            (Some(granted), [_, Value::Int(micros @ 0..)]) => Ok(Reply {
                granted,
                stamp: 0,
                wait: Duration::from_micros(micros.unsigned_abs()),
            }),
            _ => Err(self.connection().protocol_error(&reply).into()),
        }
    }

    /// The scripts of earlier generations know one caller.
    async fn ask_in_turn(
        self,
        script: &'static Script,
        what: &Wanted,
        ids: &[Id],
    ) -> Result<Reply, LimiterError> {
        let (mut granted, mut wait) = (0, Duration::ZERO);
        for id in ids {
            let arguments = |command: &mut Cmd| {
                command.arg(what.permits).arg(member(id, what.permits));
            };
            let reply = self.ask(script, &what.name, arguments).await?;
            match self.number(&what.name, what.permits, &reply)? {
                0 => granted += 1,
                micros => {
                    wait = Duration::from_micros(micros);
                    break;
                }
            }
        }
        Ok(Reply {
            granted: (0..granted).collect(),
            stamp: 0,
            wait,
        })
    }
}

/// Scripts count from 1.
fn place(value: &Value) -> Option<usize> {
    match value {
        Value::Int(place @ 1..) => usize::try_from(place - 1).ok(),
        _ => None,
    }
}

/// A grant as it is kept: the length of its identity, the identity, the permits.
fn member(id: &Id, permits: u64) -> Vec<u8> {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX).to_le_bytes();
    [&[16][..], id, &permits].concat()
}

fn malformed(name: &str) -> LimiterError {
    let message = format!(
        "what is kept under \"{name}\" is not a rate, expected a hash with whole numbers in rate, interval and type"
    );
    LimiterError::new(LimiterErrorKind::Malformed, message)
}

impl Backend for OnRedis {
    fn ask(&self, what: Wanted, ids: Vec<Id>) -> BoxFuture<'static, Result<Reply, LimiterError>> {
        Box::pin(self.clone().ask_for(what, ids))
    }

    fn give_back(
        &self,
        name: Arc<str>,
        grants: Vec<Grant>,
    ) -> BoxFuture<'static, Result<u64, LimiterError>> {
        let limiters = self.clone();
        Box::pin(async move {
            let arguments = |command: &mut Cmd| {
                for grant in &grants {
                    command.arg(member(&grant.id, grant.permits));
                }
            };
            let keys = limiters.keys(&name);
            let with_time = |command: &mut Cmd| {
                command.arg(limiters.now().unwrap_or(0));
                arguments(command);
            };
            let script = &LIMITER_GIVE_BACK;
            let reply = limiters.connection().call(script, &keys.all(), with_time);
            limiters.number(&name, 0, &reply.await?)
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        permits: u64,
    ) -> BoxFuture<'a, Result<u64, LimiterError>> {
        Box::pin(async move {
            let client = self.client.0.id();
            let arguments = |command: &mut Cmd| {
                command.arg(permits).arg(&client);
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

    fn keeping<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Kept>, LimiterError>> {
        Box::pin(async move {
            let mut fields = cmd("HMGET");
            fields.arg(name);
            fields.arg(&["rate", "interval", "type", "countsExpire", "keepAliveTime"]);
            let mut life = cmd("PTTL");
            life.arg(name);
            let fields: Vec<Option<String>> = self.connection().query(fields, name).await?;
            let [Some(rate), Some(interval), Some(kind), of, keep_alive] = &fields[..] else {
                return Ok(None);
            };
            let is_ours = of.as_ref() == Some(&format!("{rate} {interval} {kind}"))
                // As Redisson writes it.
                && keep_alive.as_deref() != Some("0");
            let sharers = match is_ours {
                true => Sharers::Ours,
                false => Sharers::Redisson,
            };
            let life: i64 = self.connection().query(life, name).await?;
            let life = u64::try_from(life).ok().map(Duration::from_millis);
            Ok(Some(Kept { sharers, life }))
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

    fn timeout(&self) -> Duration {
        self.connection().timeout()
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(self.connection().runtime())
    }

    fn client(&self) -> &Client {
        &self.client.0
    }
}

impl fmt::Debug for OnRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}
