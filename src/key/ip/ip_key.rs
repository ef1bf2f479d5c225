use std::net::{IpAddr, Ipv6Addr};

use crate::key::key::Key;

/// How many leading bits of an IPv6 address identify a customer: most customers get a whole /64.
pub(super) const IPV6_PREFIX: u8 = 64;

/// The IPv4 address of an IPv4-mapped IPv6 address, and any other address as it is. A dual-stack
/// socket shows `10.0.0.7` as `::ffff:10.0.0.7`.
pub(super) fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The key of an address: all of an IPv4 address, and the first `ipv6_prefix` bits of an IPv6
/// address.
pub(super) fn ip_key(ip: IpAddr, ipv6_prefix: u8) -> Key {
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
