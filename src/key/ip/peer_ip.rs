use http::request::Parts;

use super::ip_key::{IPV6_PREFIX, ip_key};
use super::peer_addr::peer;
use crate::error::KeyError;
use crate::key::key::Key;
use crate::key::key_extractor::KeyExtractor;

/// The address of the socket's peer as the key. IPv6 addresses count by their /64 network.
///
/// Behind a proxy every request has the proxy's address: use [`ClientIp`](crate::ClientIp) there.
///
/// The address comes from axum's `ConnectInfo<SocketAddr>`, or from a
/// [`PeerAddr`](crate::key::PeerAddr) in the request's extensions. A request with neither means
/// that the server was set up without them: extraction fails with a [`KeyError`] of the kind
/// [`Server`](crate::key::KeyErrorKind::Server).
///
/// ```
/// use std::time::Duration;
/// use tidegate::{PeerIp, RateLimitLayer};
///
/// // Each address: at most 5 requests in any 10 seconds.
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).key(PeerIp);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PeerIp;

impl KeyExtractor for PeerIp {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(ip_key(peer(head)?, IPV6_PREFIX))
    }
}
