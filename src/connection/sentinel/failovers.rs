//! What sentinels publish about failovers.
//!
//! After `SENTINEL FAILOVER` the old master accepts writes for about ten seconds more. They are
//! lost when it becomes a replica. Waiting for an error of the old master would therefore be too
//! late.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_all;
use redis::{ConnectionInfo, RedisResult};
use tokio::time::sleep;

use super::sentinels::{NamedMaster, Sentinels, sentinel_client};
use crate::connection::reconnector::within;
use crate::jitter;

/// How long subscribing at a sentinel may take.
const MAX_SUBSCRIBE: Duration = Duration::from_secs(1);
/// The pause from the loss of a sentinel to the next attempt to subscribe. Up to the same time is
/// added at random.
const PAUSE: Duration = Duration::from_millis(500);

/// A sentinel publishes on the first channel when a failover is complete, and on the second one
/// when the new master has been promoted, before the other replicas follow it.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

impl Sentinels {
    /// Completes when a sentinel says that the master is not at `from` any more. `epoch` is the
    /// number of the failover that led there. All sentinels are listened to: the one that leads a
    /// failover knows of it two seconds before the others.
    pub(in crate::connection) async fn moved(&self, from: &str, epoch: u64) {
        let sentinels = self.address.seeds.iter();
        let moved = sentinels.map(|sentinel| Box::pin(self.moved_by(sentinel, from, epoch)));
        select_all(moved).await;
    }

    /// The same for one sentinel. Subscribes again when the sentinel is lost.
    async fn moved_by(&self, sentinel: &ConnectionInfo, from: &str, epoch: u64) {
        loop {
            if let Ok(true) = self.listen(sentinel, from, epoch).await {
                return;
            }
            sleep(PAUSE + jitter::up_to(PAUSE)).await;
        }
    }

    /// Completes with `true` when the sentinel names another master, and otherwise when its
    /// connection ends.
    async fn listen(&self, sentinel: &ConnectionInfo, from: &str, epoch: u64) -> RedisResult<bool> {
        let client = sentinel_client(sentinel)?;
        let subscription = async {
            let mut pubsub = client.get_async_pubsub().await?;
            pubsub.subscribe(&CHANNELS).await?;
            Ok(pubsub)
        };
        let pubsub = within(MAX_SUBSCRIBE, subscription).await?;
        // Messages that were published before the subscription are missed.
        if let Ok(named) = within(MAX_SUBSCRIBE, self.ask(sentinel)).await
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
        self.address.server(host, port).addr().to_string() != from
    }
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
