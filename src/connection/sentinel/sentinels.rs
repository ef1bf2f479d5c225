use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, RedisResult, cmd};
use tokio::time::timeout;

use crate::connection::address::RedisAddress;
use crate::connection::link::{client_as_is, unbounded};

/// How long further sentinels are waited for once one has answered: they may know of a later
/// failover.
const MAX_WAIT_FOR_OTHERS: Duration = Duration::from_millis(50);

/// The sentinels of one master.
///
/// They are those of the address, and no others: what a sentinel says about further sentinels is
/// not used. Each question goes over a new connection, since questions are rare: one for each
/// attempt to connect, and one after each subscription. Subscriptions have connections of their
/// own.
pub(in crate::connection) struct Sentinels {
    pub(super) address: RedisAddress,
    /// The name by which the sentinels know the master.
    pub(super) master: Box<str>,
}

/// The master that sentinels name.
pub(in crate::connection) struct Master {
    pub(in crate::connection) server: ConnectionInfo,
    /// The number of the failover that made it a master.
    pub(in crate::connection) epoch: u64,
}

/// Where one sentinel says that the master is.
pub(super) struct NamedMaster {
    /// The number of the last failover that the sentinel knows of. The largest number is right.
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Sentinels {
    /// The sentinels of an address, for the master with this name.
    pub(in crate::connection) fn new(address: &RedisAddress, master: &str) -> Self {
        Self {
            address: address.clone(),
            master: master.into(),
        }
    }

    /// Where the master is. All sentinels are asked at once, so that dead or hanging sentinels
    /// delay nothing. The one that knows of the latest failover is believed.
    ///
    /// A single answer is not trusted to be the latest one, but a majority is not waited for
    /// either: a client that can reach one sentinel has to find the master. The role that the
    /// server itself reports decides in the end.
    pub(in crate::connection) async fn master(&self) -> RedisResult<Master> {
        let questions = self.address.seeds.iter().map(|sentinel| self.ask(sentinel));
        let mut answers: FuturesUnordered<_> = questions.collect();
        let (mut latest, mut unknown, mut failure) = (None::<NamedMaster>, None, None);
        loop {
            let answer = match latest {
                None => answers.next().await,
                Some(_) => timeout(MAX_WAIT_FOR_OTHERS, answers.next())
                    .await
                    .unwrap_or(None),
            };
            match answer {
                None => break,
                Some(Ok(named)) => {
                    if latest.as_ref().is_none_or(|last| named.epoch > last.epoch) {
                        latest = Some(named);
                    }
                }
                Some(Err(error)) if error.kind() == ErrorKind::MasterNameNotFoundBySentinel => {
                    unknown = Some(error);
                }
                Some(Err(error)) => failure = Some(error),
            }
        }
        match latest {
            Some(NamedMaster { epoch, host, port }) => Ok(Master {
                server: self.address.server(&host, port),
                epoch,
            }),
            None => Err(unknown
                .or(failure)
                .expect("there is at least one sentinel, and it has answered")),
        }
    }

    /// Asks one sentinel for the master, over a connection of its own.
    pub(super) async fn ask(&self, sentinel: &ConnectionInfo) -> RedisResult<NamedMaster> {
        let client = sentinel_client(sentinel)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&unbounded())
            .await?;
        let command = |name: &str| {
            let mut command = cmd("SENTINEL");
            command.arg(name).arg(&*self.master);
            command
        };
        // As soon as a replica is promoted, this command names it. `SENTINEL MASTER` names the old
        // master until all other replicas follow the new one.
        let address = command("GET-MASTER-ADDR-BY-NAME");
        let address: Option<(String, u16)> = address.query_async(&mut connection).await?;
        let (host, port) = address.ok_or_else(|| self.unknown())?;
        let details = command("MASTER").query_async(&mut connection).await;
        let details: HashMap<String, String> =
            details.map_err(|error| self.with_unknown_master(error))?;
        let epoch = details.get("config-epoch");
        let epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(NamedMaster { epoch, host, port })
    }

    /// The error, or a clearer one if it says that the sentinel does not know the master's name.
    fn with_unknown_master(&self, error: RedisError) -> RedisError {
        let is_unknown = error
            .detail()
            .is_some_and(|detail| detail.contains("No such master"));
        if is_unknown { self.unknown() } else { error }
    }

    /// The error of a sentinel that does not know the master's name.
    fn unknown(&self) -> RedisError {
        let detail = format!("no sentinel knows a master called {:?}", self.master);
        RedisError::from((
            ErrorKind::MasterNameNotFoundBySentinel,
            "wrong name, or wrong sentinels",
            detail,
        ))
    }
}

/// A client for a sentinel: old sentinels do not know RESP3, and sentinels have no databases.
pub(super) fn sentinel_client(sentinel: &ConnectionInfo) -> RedisResult<Client> {
    let settings = sentinel.redis_settings().clone().set_db(0);
    let settings = settings.set_protocol(ProtocolVersion::RESP2);
    client_as_is(sentinel.clone().set_redis_settings(settings))
}
