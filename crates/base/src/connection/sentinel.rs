//! Sentinels: which server they name as the master, and what they publish about failovers.
//!
//! A sentinel is believed only in part. Its answer may be old, so the answer with the latest
//! failover counts, and the server named must say by `ROLE` that it is a master. Its messages may
//! be missed, so it is also asked after each subscription.
//!
//! ```text
//! connect      ask all sentinels -> the answer with the latest epoch -> ROLE says master -> Up
//! while Up     subscribed to all -> +promoted-slave or +switch-master, of our master,
//!                                   to another server -> connect
//! lost         the link is closed -> connect; READONLY -> connect beside it
//! ```
//!
//! Nothing here is a task: the reconnector polls it, while it connects and while it watches. If no
//! sentinel answers, the link to the master is kept: sentinels are needed to find a master, not to
//! use it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ErrorKind, ProtocolVersion, RedisError, RedisResult, cmd};
use tokio::time::{sleep, timeout};

use super::address::{RedisAddress, Server};
use super::link::{client_as_is, connect_as_is, unbounded};
use super::reconnector::within;
use crate::jitter;

/// How long further sentinels are waited for once one has answered: they may know of a later
/// failover.
const MAX_WAIT_FOR_OTHERS: Duration = Duration::from_millis(50);
/// How long subscribing at a sentinel may take.
const MAX_SUBSCRIBE: Duration = Duration::from_secs(1);
/// The pause from the loss of a sentinel to the next attempt to subscribe. Up to the same time is
/// added at random.
const PAUSE: Duration = Duration::from_millis(500);

/// A sentinel publishes on the first channel when a failover is complete, and on the second one
/// when the new master has been promoted, before the other replicas follow it.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// The sentinels of one master.
///
/// They are those of the address, and no others: what a sentinel says about further sentinels is
/// not used. Each question goes over a new connection, since questions are rare: one for each
/// attempt to connect, and one after each subscription. Subscriptions have connections of their
/// own.
pub(super) struct Sentinels {
    address: RedisAddress,
    /// The name by which the sentinels know the master.
    master: Box<str>,
}

/// The master that sentinels name.
pub(super) struct Master {
    pub(super) server: Server,
    /// The number of the failover that made it a master.
    pub(super) epoch: u64,
}

/// Where one sentinel says that the master is.
struct NamedMaster {
    /// The number of the last failover that the sentinel knows of. The largest number is right.
    epoch: u64,
    host: String,
    port: u16,
}

impl Sentinels {
    /// The sentinels of an address, for the master with this name.
    pub(super) fn new(address: &RedisAddress, master: &str) -> Self {
        Self {
            address: address.clone(),
            master: master.into(),
        }
    }

    /// Where the master is. All sentinels are asked simultaneously, so that dead or hanging
    /// sentinels delay nothing. The one that knows of the latest failover is believed.
    ///
    /// A single answer is not trusted to be the latest one, but a majority is not waited for
    /// either: a client that can reach one sentinel has to find the master. The role that the
    /// server itself reports decides in the end.
    pub(super) async fn master(&self) -> RedisResult<Master> {
        let sentinels: Vec<_> = self.address.sentinels().collect();
        let questions = sentinels.iter().map(|sentinel| self.query(sentinel));
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
    async fn query(&self, sentinel: &Server) -> RedisResult<NamedMaster> {
        let client = sentinel_client(sentinel).await?;
        let mut connection = connect_as_is(client, &unbounded()).await?;
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
        let detail = error.detail().unwrap_or_default();
        let is_unknown = detail.contains("No such master");
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

    /// Completes when a sentinel says that the master is not at `from` any more. `epoch` is the
    /// number of the failover that led there. All sentinels are listened to: the one that leads a
    /// failover knows of it two seconds before the others.
    ///
    /// After `SENTINEL FAILOVER` the old master accepts writes for about ten seconds more. They are
    /// lost when it becomes a replica. Waiting for an error of the old master would therefore be
    /// too late.
    pub(super) async fn moved(&self, from: &str, epoch: u64) {
        let sentinels: Vec<_> = self.address.sentinels().collect();
        let moved = sentinels
            .iter()
            .map(|sentinel| Box::pin(self.moved_by(sentinel, from, epoch)));
        select_all(moved).await;
    }

    /// Completes when this sentinel says that the master has moved. Subscribes again when the
    /// sentinel is lost.
    async fn moved_by(&self, sentinel: &Server, from: &str, epoch: u64) {
        loop {
            if let Ok(true) = self.listen(sentinel, from, epoch).await {
                return;
            }
            sleep(PAUSE + jitter::up_to(PAUSE)).await;
        }
    }

    /// Completes with `true` when the sentinel names another master, and otherwise when its
    /// connection ends.
    async fn listen(&self, sentinel: &Server, from: &str, epoch: u64) -> RedisResult<bool> {
        let client = sentinel_client(sentinel).await?;
        let subscription = async {
            let mut pubsub = client.get_async_pubsub().await?;
            pubsub.subscribe(&CHANNELS).await?;
            Ok(pubsub)
        };
        let pubsub = within(MAX_SUBSCRIBE, subscription).await?;
        // Messages that were published before the subscription are missed.
        if let Ok(named) = within(MAX_SUBSCRIBE, self.query(sentinel)).await
            && self.is_later(&named, from, epoch)
        {
            return Ok(true);
        }
        let mut messages = pubsub.into_on_message();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload()?;
            if self.names_another(&text, from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a message names another master than the one at `from`. After a failover it is
    /// `name old-host old-port host port`, after a promotion `slave id host port @ name old-host
    /// old-port`.
    fn names_another(&self, message: &str, from: &str) -> bool {
        let words: Vec<&str> = message.split(' ').collect();
        let (name, host, port) = match words[..] {
            [name, _, _, host, port] => (name, host, port),
            ["slave", _, host, port, "@", name, ..] => (name, host, port),
            _ => return false,
        };
        let port = port.parse();
        *name == *self.master && port.is_ok_and(|port| self.is_other(host, port, from))
    }

    /// Whether a sentinel names another master after a later failover. A sentinel that does not
    /// know of the failover that led to `from` names an old master.
    fn is_later(&self, named: &NamedMaster, from: &str, epoch: u64) -> bool {
        named.epoch > epoch && self.is_other(&named.host, named.port, from)
    }

    /// Whether this host and port are another server than the one at `from`.
    fn is_other(&self, host: &str, port: u16, from: &str) -> bool {
        self.address.server(host, port).info.addr().to_string() != from
    }
}

/// A client for a sentinel: old sentinels do not know RESP3, and sentinels have no databases.
async fn sentinel_client(sentinel: &Server) -> RedisResult<Client> {
    let (info, _) = sentinel.with_credentials().await?;
    let settings = info.redis_settings().clone().set_db(0);
    let settings = settings.set_protocol(ProtocolVersion::RESP2);
    client_as_is(info.set_redis_settings(settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::address::RedisAddress;

    #[test]
    fn messages_are_read() {
        let address = RedisAddress::sentinel(["redis://h"], "limits").expect("valid");
        let sentinels = Sentinels::new(&address, "limits");
        let names_another = |message| sentinels.names_another(message, "10.0.0.1:1");
        assert!(names_another("limits 10.0.0.1 1 10.0.0.2 2"));
        assert!(!names_another("limits 10.0.0.2 2 10.0.0.1 1"));
        assert!(!names_another("others 10.0.0.1 1 10.0.0.2 2"));
        assert!(!names_another("limits 10.0.0.1 1"));
        assert!(names_another(
            "slave 10.0.0.2:2 10.0.0.2 2 @ limits 10.0.0.1 1"
        ));
        assert!(!names_another(
            "slave 10.0.0.2:2 10.0.0.2 2 @ others 10.0.0.1 1"
        ));
    }

    #[test]
    fn only_a_later_failover_leads_away() {
        let address = RedisAddress::sentinel(["redis://h"], "limits").expect("valid");
        let sentinels = Sentinels::new(&address, "limits");
        let says = |epoch, port| NamedMaster {
            epoch,
            host: "10.0.0.1".to_owned(),
            port,
        };
        let is_later = |named| sentinels.is_later(&named, "10.0.0.1:1", 7);
        assert!(is_later(says(8, 2)));
        assert!(!is_later(says(8, 1)), "the same server");
        assert!(!is_later(says(7, 2)));
        assert!(!is_later(says(6, 2)), "it does not know of our failover");
    }
}
