//! What the processes of a service share through Redis: `lua/fleet/`.

use std::future::Future;
use std::time::Duration;

use redis::{FromRedisValue, Value, cmd, from_redis_value};

use super::fleet::{LetThrough, News, Report, Reported};
use super::redis::RedisStore;
use crate::connection::{Connection, LET_THROUGH, REPORT, of_fleet};
use crate::error::StoreError;

/// How long such a question may take. No request waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A name with a number, as Redis writes a member with its score.
type Scored = (Vec<u8>, Vec<u8>);

impl RedisStore {
    fn fleet_connection(&self) -> Connection {
        self.connection.clone().with_timeout(TIMEOUT)
    }

    fn fleet_key(&self, what: &str) -> String {
        let prefix = [&*self.prefix.service, &*self.prefix.default].concat();
        of_fleet(&prefix, what)
    }

    fn process_key(&self, process: &str) -> String {
        self.fleet_key(&format!("process:{process}"))
    }

    pub(super) fn keep_report(
        &self,
        report: &Report,
    ) -> impl Future<Output = Result<Option<News>, StoreError>> + Send + 'static {
        let keys = [
            self.process_key(&report.process),
            self.fleet_key("processes"),
            self.fleet_key("secret"),
            self.fleet_key("let-through"),
            self.fleet_key("version"),
        ];
        let connection = self.fleet_connection();
        let keys = keys.each_ref().map(String::as_str);
        let reply = connection.call(&REPORT, &keys, |command| {
            command.arg(&*report.process).arg(&*report.text);
            command.arg(report.known_version).arg(&report.random);
        });
        async move {
            // The third part is missing where the version is known.
            let parts: Vec<Value> = read(&connection, reply.await?)?;
            let mut parts = parts.into_iter();
            let mut next = || parts.next().unwrap_or(Value::Nil);
            let secret: Vec<u8> = read(&connection, next())?;
            let version = next();
            let list: Option<Vec<Scored>> = read(&connection, next())?;
            let secret = <[u8; 16]>::try_from(secret);
            let secret = secret.map_err(|_| connection.protocol_error(&version))?;
            let keys = |list: Vec<Scored>| list.into_iter().filter_map(let_through).collect();
            Ok(Some(News {
                secret,
                version: read(&connection, version)?,
                let_through: list.map(keys),
            }))
        }
    }

    pub(super) async fn read_reports(self) -> Result<Vec<Reported>, StoreError> {
        let connection = self.fleet_connection();
        let index = self.fleet_key("processes");
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(&index).arg("-inf").arg("+inf").arg("WITHSCORES");
        range.arg("LIMIT").arg(0).arg(Reported::MAX + 1);
        let processes: Vec<(String, f64)> = connection.query(range, &index).await?;
        let Some(newest) = processes.iter().map(|(_, at)| *at).reduce(f64::max) else {
            return Ok(Vec::new());
        };
        let mut get = cmd("MGET");
        for (process, _) in &processes {
            get.arg(self.process_key(process));
        }
        let texts: Vec<Option<Vec<u8>>> = connection.query(get, &index).await?;
        let said = processes.into_iter().zip(texts);
        let said = said.filter_map(|((process, at), text)| {
            Some(Reported {
                process: process.into(),
                text: String::from_utf8(text?).ok()?.into(),
                ago: Duration::from_millis((newest - at) as u64),
            })
        });
        Ok(said.collect())
    }

    pub(super) fn keep_let_through(
        &self,
        key: &LetThrough,
    ) -> impl Future<Output = Result<Option<bool>, StoreError>> + Send + 'static {
        let connection = self.fleet_connection();
        let (list, version) = (self.fleet_key("let-through"), self.fleet_key("version"));
        let reply = connection.call(&LET_THROUGH, &[&list, &version], |command| {
            command
                .arg(key.named())
                .arg(key.by.as_deref().unwrap_or_default());
            let millis = key.time.min(LetThrough::LONGEST).as_millis();
            command.arg(millis as u64).arg(LetThrough::MAX);
        });
        async move { Ok(Some(read(&connection, reply.await?)?)) }
    }
}

/// A name of the list with the milliseconds that it still has.
fn let_through((name, millis): Scored) -> Option<LetThrough> {
    let name = String::from_utf8(name).ok()?;
    let millis = std::str::from_utf8(&millis).ok()?.parse().ok()?;
    LetThrough::parse(&name, Duration::from_millis(millis))
}

fn read<T: FromRedisValue>(connection: &Connection, value: Value) -> Result<T, StoreError> {
    let shown = value.clone();
    from_redis_value(value).map_err(|_| connection.protocol_error(&shown))
}
