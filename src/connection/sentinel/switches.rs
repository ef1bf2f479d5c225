//! Hearing of failovers.
//!
//! A failover on command leaves the old master as it is for some ten seconds: it takes writes that
//! are lost when it is made a replica at last. So who waits for an error comes too late.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_all;
use redis::{ConnectionInfo, RedisResult};
use tokio::time::sleep;

use super::{Opinion, Sentinels};
use crate::connection::reconnector::within;
use crate::jitter;

/// How long a sentinel may take until it can be listened to.
const LISTEN: Duration = Duration::from_secs(1);
/// From the loss of a sentinel to the next attempt, and up to twice that.
const PAUSE: Duration = Duration::from_millis(500);

/// The failover is done; and before, as soon as the new master is one, while other replicas do not
/// follow it yet.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

impl Sentinels {
    /// Completes when a sentinel says that the master, of a failover of this epoch, is not here any
    /// more. All of them are listened to: the one that leads the failover knows of it two seconds
    /// before the others.
    pub(in crate::connection) async fn moved(&self, from: &str, epoch: u64) {
        let sentinels = self.address.seeds.iter();
        let heard = sentinels.map(|sentinel| Box::pin(self.heard(sentinel, from, epoch)));
        select_all(heard).await;
    }

    /// The same of one sentinel, that may come and go.
    async fn heard(&self, sentinel: &ConnectionInfo, from: &str, epoch: u64) {
        loop {
            if let Ok(true) = self.listen(sentinel, from, epoch).await {
                return;
            }
            sleep(PAUSE + jitter::up_to(PAUSE)).await;
        }
    }

    /// Until the sentinel is lost, or has told of a new master.
    async fn listen(&self, sentinel: &ConnectionInfo, from: &str, epoch: u64) -> RedisResult<bool> {
        let client = Self::client(sentinel)?;
        let listening = async {
            let mut link = client.get_async_pubsub().await?;
            link.subscribe(&CHANNELS).await?;
            Ok(link)
        };
        let link = within(LISTEN, listening).await?;
        // What was published before that was not heard.
        if let Ok(opinion) = within(LISTEN, self.ask(sentinel)).await
            && self.is_newer(&opinion, from, epoch)
        {
            return Ok(true);
        }
        let mut messages = link.into_on_message();
        while let Some(message) = messages.next().await {
            let news: String = message.get_payload()?;
            if self.is_elsewhere(&news, from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Of a switch `name old-host old-port host port`, of a promotion `slave id host port @ name
    /// old-host old-port`.
    fn is_elsewhere(&self, news: &str, from: &str) -> bool {
        let words: Vec<&str> = news.split(' ').collect();
        let (name, host, port) = match words[..] {
            [name, _, _, host, port] => (name, host, port),
            ["slave", _, host, port, "@", name, ..] => (name, host, port),
            _ => return false,
        };
        let port = port.parse();
        *name == *self.master && port.is_ok_and(|port| self.is_other(host, port, from))
    }

    /// Not of one that has not heard of the failover yet that led to here.
    fn is_newer(&self, opinion: &Opinion, from: &str, epoch: u64) -> bool {
        opinion.epoch > epoch && self.is_other(&opinion.host, opinion.port, from)
    }

    fn is_other(&self, host: &str, port: u16, from: &str) -> bool {
        self.address.server(host, port).addr().to_string() != from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::RedisAddress;

    #[test]
    fn news_are_read() {
        let address = RedisAddress::sentinel(["redis://h"], "limits").expect("valid");
        let sentinels = Sentinels::new(&address, "limits");
        let is_elsewhere = |news| sentinels.is_elsewhere(news, "10.0.0.1:1");
        assert!(is_elsewhere("limits 10.0.0.1 1 10.0.0.2 2"));
        assert!(!is_elsewhere("limits 10.0.0.2 2 10.0.0.1 1"));
        assert!(!is_elsewhere("others 10.0.0.1 1 10.0.0.2 2"));
        assert!(!is_elsewhere("limits 10.0.0.1 1"));
        assert!(is_elsewhere(
            "slave 10.0.0.2:2 10.0.0.2 2 @ limits 10.0.0.1 1"
        ));
        assert!(!is_elsewhere(
            "slave 10.0.0.2:2 10.0.0.2 2 @ others 10.0.0.1 1"
        ));
    }
    #[test]
    fn only_a_later_failover_leads_away() {
        let address = RedisAddress::sentinel(["redis://h"], "limits").expect("valid");
        let sentinels = Sentinels::new(&address, "limits");
        let says = |epoch, port| Opinion {
            epoch,
            host: "10.0.0.1".to_owned(),
            port,
        };
        let is_newer = |opinion| sentinels.is_newer(&opinion, "10.0.0.1:1", 7);
        assert!(is_newer(says(8, 2)));
        assert!(!is_newer(says(8, 1)), "it is here");
        assert!(!is_newer(says(7, 2)));
        assert!(!is_newer(says(6, 2)), "it has not heard of ours");
    }
}
