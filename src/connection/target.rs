#[cfg(feature = "sentinel")]
use std::sync::Arc;

use redis::{ConnectionInfo, RedisResult};

use super::handshake::Role;
use super::link::Link;
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::{Master, Sentinels};

/// The server to connect to.
///
/// Because of this type the three topologies share one reconnector: it knows only how to connect to
/// the target, and when the target has moved. In a cluster each node has a `Server`, and the layout
/// says which nodes there are.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    /// The master that the sentinels name. They are asked at every attempt to connect.
    #[cfg(feature = "sentinel")]
    Master(Arc<Sentinels>),
}

impl Target {
    /// Makes a connection to the server.
    pub(super) async fn connect(&self, preload: Preload) -> RedisResult<Link> {
        match self {
            Self::Server(info) => {
                Link::open(ConnectionInfo::clone(info), Role::Any, 0, preload).await
            }
            #[cfg(feature = "sentinel")]
            Self::Master(sentinels) => {
                let Master { server, epoch } = sentinels.master().await?;
                Link::open(server, Role::Master, epoch, preload).await
            }
        }
    }

    /// Completes when `link` leads to a server that is not the target any more. That server may
    /// still answer.
    pub(super) async fn moved_away_from(&self, link: &Link) {
        match self {
            Self::Server(_) => {
                let _ = link;
                std::future::pending().await
            }
            #[cfg(feature = "sentinel")]
            Self::Master(sentinels) => {
                let inner = &link.inner;
                sentinels.moved(&inner.server, inner.epoch).await;
            }
        }
    }
}
