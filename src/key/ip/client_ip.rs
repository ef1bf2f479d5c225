use std::net::IpAddr;

use http::request::Parts;
use ipnet::IpNet;

use super::peer_ip::peer;
use super::{Forwarding, IPV6_PREFIX, canonical, key_of};
use crate::error::KeyError;
use crate::key::{Key, KeyExtractor};

/// The address of the client behind trusted proxies as the key.
///
/// It starts at the socket's peer and believes a forwarding field only as far as the hops that wrote
/// it are trusted, from the right to the left:
///
/// - with [trusted networks](ClientIp::behind), the first address that is not in them is the client.
///   If the peer itself is not in them, no field is looked at;
/// - with a [number of proxies](ClientIp::behind_hops), it is the address so many places from the
///   right; a request with fewer did not come through all of them and counts as its peer.
///
/// A hop that is no address ends the walk at the last good one. At most 64 hops and 8 KiB are looked
/// at. IPv6 addresses count by their /64 network unless [told otherwise](ClientIp::ipv6_prefix).
///
/// # Trust
///
/// Name only proxies of your own that append to (or overwrite) the one field in use. A network that
/// is too wide lets its members choose the address that they are limited by.
///
/// ```
/// use tidegate::ClientIp;
///
/// let key = ClientIp::behind(["10.0.0.0/8".parse()?, "fd00::/8".parse()?]);
/// # let _ = key;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClientIp {
    trust: Trust,
    field: Forwarding,
    ipv6_prefix: u8,
}

#[derive(Debug, Clone)]
enum Trust {
    Networks(Box<[IpNet]>),
    Hops(usize),
}

impl ClientIp {
    /// Behind proxies whose addresses are in these networks. With none, the same as
    /// [`PeerIp`](super::PeerIp).
    pub fn behind(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self::new(Trust::Networks(
            networks.into_iter().map(unmapped).collect(),
        ))
    }

    /// Behind exactly this many proxies, whatever their addresses. With 0, the same as
    /// [`PeerIp`](super::PeerIp).
    #[must_use]
    pub fn behind_hops(proxies: usize) -> Self {
        Self::new(Trust::Hops(proxies))
    }

    fn new(trust: Trust) -> Self {
        Self {
            trust,
            field: Forwarding::default(),
            ipv6_prefix: IPV6_PREFIX,
        }
    }

    /// The field that the proxies write. Default: `X-Forwarded-For`.
    #[must_use]
    pub fn field(mut self, field: Forwarding) -> Self {
        self.field = field;
        self
    }

    /// How many leading bits of an IPv6 address count, at most 128. Default: 64.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    fn client(&self, peer: IpAddr, head: &Parts) -> IpAddr {
        let hops = self.field.hops(&head.headers);
        match &self.trust {
            Trust::Networks(networks) => {
                let trusted = |ip| networks.iter().any(|network| network.contains(&ip));
                first_untrusted(peer, hops, trusted)
            }
            Trust::Hops(proxies) => nth_from_the_right(peer, hops, *proxies),
        }
    }
}

fn first_untrusted(
    peer: IpAddr,
    hops: impl Iterator<Item = Option<IpAddr>>,
    trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for hop in hops {
        match hop {
            Some(hop) if trusted(client) => client = hop,
            _ => break,
        }
    }
    client
}

fn nth_from_the_right(
    peer: IpAddr,
    hops: impl Iterator<Item = Option<IpAddr>>,
    proxies: usize,
) -> IpAddr {
    let mut client = peer;
    let mut seen = 0;
    for hop in hops.take(proxies) {
        match hop {
            Some(hop) => client = hop,
            None => return client,
        }
        seen += 1;
    }
    if seen < proxies { peer } else { client }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        let peer = peer(head)?;
        Ok(key_of(self.client(peer, head), self.ipv6_prefix))
    }
}

/// `::ffff:10.0.0.0/104` means `10.0.0.0/8`.
fn unmapped(network: IpNet) -> IpNet {
    let canonical = canonical(network.addr());
    match network.prefix_len().checked_sub(96) {
        Some(bits) if canonical.is_ipv4() && network.addr().is_ipv6() => {
            IpNet::new(canonical, bits).unwrap_or(network)
        }
        _ => network,
    }
}
