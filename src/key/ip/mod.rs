//! Addresses as keys: the socket's peer, and the client behind trusted proxies.

pub(crate) mod client_ip;
mod field;
pub(crate) mod peer_ip;

pub(crate) use client_ip::ClientIp;
pub use field::Forwarding;
pub use peer_ip::PeerAddr;
pub(crate) use peer_ip::PeerIp;

use std::net::{IpAddr, Ipv6Addr};

use super::Key;

/// The bits of an IPv6 address that name one customer: most get a whole /64.
const IPV6_PREFIX: u8 = 64;

/// `::ffff:10.0.0.7` is how a dual-stack socket shows `10.0.0.7`.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// An address as a key: IPv4 whole, IPv6 by its first bits.
fn key_of(ip: IpAddr, ipv6_prefix: u8) -> Key {
    let part = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) if ipv6_prefix >= 128 => ip.to_string(),
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix));
            let network = Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0));
            format!("{network}/{ipv6_prefix}")
        }
    };
    Key::default().with(part)
}
