use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use super::ip_key::canonical;
use crate::error::KeyError;

/// The address of the socket's peer, as a request extension for servers that are not axum's.
///
/// On axum, serve with `into_make_service_with_connect_info::<SocketAddr>()` instead.
///
/// ```
/// use std::net::SocketAddr;
/// use http::Request;
/// use tidegate::key::PeerAddr;
/// use tidegate::{KeyExtractor, PeerIp};
///
/// let peer: SocketAddr = "203.0.113.9:4711".parse()?;
/// let request = Request::builder().extension(PeerAddr(peer)).body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(PeerIp.extract(&head)?.as_str(), "203.0.113.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The address of the peer of the request with this head.
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
