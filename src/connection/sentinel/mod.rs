//! Who is the master now, as the sentinels say.

mod switches;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, RedisResult, cmd};
use tokio::time::timeout;

use crate::connection::address::RedisAddress;
use crate::connection::link::{client_as_is, unbounded};

/// How long the answers of the other sentinels are waited for once there is one: they may know
/// more.
const OTHERS: Duration = Duration::from_millis(50);

/// The sentinels of one master.
pub(in crate::connection) struct Sentinels {
    address: RedisAddress,
    master: Box<str>,
}

/// The master that sentinels name.
pub(in crate::connection) struct Master {
    pub(in crate::connection) server: ConnectionInfo,
    /// Of the failover that made it one.
    pub(in crate::connection) epoch: u64,
}

/// What one sentinel says.
struct Opinion {
    /// Counts the failovers: who knows of more knows better.
    epoch: u64,
    host: String,
    port: u16,
}

impl Sentinels {
    pub(in crate::connection) fn new(address: &RedisAddress, master: &str) -> Self {
        Self {
            address: address.clone(),
            master: master.into(),
        }
    }

    /// Where the master is. All sentinels are asked at once, so that those which are dead or hang
    /// do not matter, and the one that knows of the latest failover is right.
    pub(in crate::connection) async fn master(&self) -> RedisResult<Master> {
        let asked = self.address.seeds.iter().map(|sentinel| self.ask(sentinel));
        let mut answers: FuturesUnordered<_> = asked.collect();
        let (mut best, mut unknown, mut failure) = (None::<Opinion>, None, None);
        loop {
            let answer = match best {
                None => answers.next().await,
                Some(_) => timeout(OTHERS, answers.next()).await.unwrap_or(None),
            };
            match answer {
                None => break,
                Some(Ok(opinion))
                    if best.as_ref().is_none_or(|best| opinion.epoch > best.epoch) =>
                {
                    best = Some(opinion);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) if error.kind() == ErrorKind::MasterNameNotFoundBySentinel => {
                    unknown = Some(error);
                }
                Some(Err(error)) => failure = Some(error),
            }
        }
        match best {
            Some(Opinion { epoch, host, port }) => Ok(Master {
                server: self.address.server(&host, port),
                epoch,
            }),
            None => Err(unknown
                .or(failure)
                .expect("there is at least one, and it has answered")),
        }
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> RedisResult<Opinion> {
        let client = Self::client(sentinel)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&unbounded())
            .await?;
        let command = |what: &str| {
            let mut command = cmd("SENTINEL");
            command.arg(what).arg(&*self.master);
            command
        };
        // While replicas are still made to follow the new master, only the first question gets the
        // new one.
        let place = command("GET-MASTER-ADDR-BY-NAME");
        let place: Option<(String, u16)> = place.query_async(&mut connection).await?;
        let (host, port) = place.ok_or_else(|| self.unknown())?;
        let details = command("MASTER").query_async(&mut connection).await;
        let details: HashMap<String, String> = details.map_err(|error| self.explained(error))?;
        let epoch = details.get("config-epoch");
        let epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Opinion { epoch, host, port })
    }

    /// Old sentinels do not know RESP3, and none has databases.
    fn client(sentinel: &ConnectionInfo) -> RedisResult<Client> {
        let settings = sentinel.redis_settings().clone().set_db(0);
        let settings = settings.set_protocol(ProtocolVersion::RESP2);
        client_as_is(sentinel.clone().set_redis_settings(settings))
    }

    fn explained(&self, error: RedisError) -> RedisError {
        let is_unknown = error
            .detail()
            .is_some_and(|detail| detail.contains("No such master"));
        if is_unknown { self.unknown() } else { error }
    }

    fn unknown(&self) -> RedisError {
        let what = format!("no sentinel knows a master called {:?}", self.master);
        RedisError::from((
            ErrorKind::MasterNameNotFoundBySentinel,
            "wrong name, or wrong sentinels",
            what,
        ))
    }
}
