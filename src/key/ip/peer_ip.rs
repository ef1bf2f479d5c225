use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use super::{IPV6_PREFIX, canonical, key_of};
use crate::error::KeyError;
use crate::key::{Key, KeyExtractor};

/// The address at the other end of the socket, for servers that are not axum's: put it into the
/// request's extensions.
///
/// On axum, serve with `into_make_service_with_connect_info::<SocketAddr>()` instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The address of the socket's peer as the key; IPv6 addresses count by their /64 network.
///
/// Behind a proxy every request has the proxy's address: use [`ClientIp`](super::ClientIp) there.
///
/// The address comes from axum's `ConnectInfo<SocketAddr>`, or from a [`PeerAddr`] in the request's
/// extensions. Where a request has neither, the server was set up without them: a [`KeyError`] of
/// the kind [`Server`](crate::key::KeyErrorKind::Server).
#[derive(Debug, Clone, Copy, Default)]
pub struct PeerIp;

impl KeyExtractor for PeerIp {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(key_of(peer(head)?, IPV6_PREFIX))
    }
}

pub(super) fn peer(head: &Parts) -> Result<IpAddr, KeyError> {
    let given = head.extensions.get::<PeerAddr>().map(|peer| peer.0);
    let peer = given.or_else(|| connect_info(head)).ok_or_else(|| {
        KeyError::server(
            "the request has no peer address: serve with \
             into_make_service_with_connect_info::<SocketAddr>(), or insert a PeerAddr extension",
        )
    })?;
    Ok(canonical(peer.ip()))
}

#[cfg(feature = "axum")]
fn connect_info(head: &Parts) -> Option<SocketAddr> {
    use axum::extract::ConnectInfo;
    let info = head.extensions.get::<ConnectInfo<SocketAddr>>();
    info.map(|info| info.0)
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Parts) -> Option<SocketAddr> {
    None
}
