//! `ClientIp` on heads with any field lines: never a panic, never an address that an untrusted party chose.
//!
//! The input is four settings and then the lines of the one field that is believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use ipnet::IpNet;
use tidegate::key::{Forwarding, PeerAddr};
use tidegate::{ClientIp, KeyExtractor, PeerIp};

use super::input::Input;

const PEERS: [&str; 5] = [
    "10.0.0.1",
    "::ffff:10.0.0.2",
    "198.51.100.7",
    "2001:db8::1",
    "fd00::9",
];
const NETWORKS: [&str; 5] = [
    "10.0.0.0/8",
    "::ffff:10.0.0.0/104",
    "fd00::/8",
    "0.0.0.0/0",
    "::/0",
];
/// What a proxy of ours saw at the other end of its socket.
const SEEN: &str = "203.0.113.77";

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let field = field(input.byte());
    let trust = Trust::of(&mut input);
    let prefix = input.byte();
    let peer: IpAddr = input.pick(&PEERS).parse().expect("an address");
    let lines = input.rest().split(|byte| *byte == b'\n');
    let lines: Vec<_> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();

    let extractor = trust.extractor().field(field.clone()).ipv6_prefix(prefix);
    let head = head(&field, &lines, peer);
    let key = extractor.extract(&head).expect("there is a peer");
    let client = address(key.as_str());
    is_a_network(client, prefix);

    if !trust.believes(peer) {
        let of_peer = PeerIp.extract(&head).expect("there is a peer");
        let key = extractor
            .ipv6_prefix(64)
            .extract(&head)
            .expect("there is a peer");
        assert_eq!(
            key, of_peer,
            "a field was believed that nobody trusted wrote"
        );
    }
    if let Some(expected) = expected(&field, &trust, peer, &lines) {
        assert_eq!(client, masked(expected, prefix), "{lines:?}");
    }
    cannot_be_chosen(&field, &lines, prefix);
}

/// A proxy adds where a request came from, to the last line or as a line of its own: then nothing that a client wrote before
/// it counts, whatever it is.
fn cannot_be_chosen(field: &Forwarding, lines: &[HeaderValue], choice: u8) {
    let seen = match field {
        Forwarding::Forwarded if choice & 4 == 0 => format!("for={SEEN}"),
        // The host is the client's choice, and the proxy quotes it.
        Forwarding::Forwarded => {
            format!("for={SEEN};host=\"a;for=6.6.6.6, for=6.6.6.6;by=\\\"\\\\\"")
        }
        _ => SEEN.to_owned(),
    };
    let mut lines = lines.to_vec();
    match lines.last_mut() {
        Some(last) if choice & 1 == 0 => {
            let line = [last.as_bytes(), b", ", seen.as_bytes()].concat();
            *last = HeaderValue::from_bytes(&line).expect("both were valid");
        }
        _ => lines.push(HeaderValue::from_str(&seen).expect("printable")),
    }
    let behind = match choice & 2 {
        0 => ClientIp::behind_hops(1),
        _ => ClientIp::behind([NETWORKS[0].parse().expect("a network")]),
    };
    let proxy = PEERS[0].parse().expect("an address");
    let key = behind
        .field(field.clone())
        .extract(&head(field, &lines, proxy));
    assert_eq!(key.expect("there is a peer").as_str(), SEEN, "{lines:?}");
}

fn field(kind: u8) -> Forwarding {
    match kind % 3 {
        0 => Forwarding::XForwardedFor,
        1 => Forwarding::Forwarded,
        _ => Forwarding::Header(HeaderName::from_static("cf-connecting-ip")),
    }
}

fn name(field: &Forwarding) -> HeaderName {
    match field {
        Forwarding::Forwarded => http::header::FORWARDED,
        Forwarding::Header(name) => name.clone(),
        _ => HeaderName::from_static("x-forwarded-for"),
    }
}

/// The lines, and in all other fields what must not be looked at.
fn head(field: &Forwarding, lines: &[HeaderValue], peer: IpAddr) -> Parts {
    let mut head = Request::new(()).into_parts().0;
    let own = name(field);
    for (decoy, value) in [
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("cf-connecting-ip", "6.6.6.6"),
    ] {
        if own != decoy {
            head.headers.insert(
                HeaderName::from_static(decoy),
                HeaderValue::from_static(value),
            );
        }
    }
    for line in lines {
        head.headers.append(&own, line.clone());
    }
    head.extensions.insert(PeerAddr(SocketAddr::new(peer, 80)));
    head
}

enum Trust {
    Networks(Vec<IpNet>),
    Hops(usize),
}

impl Trust {
    fn of(input: &mut Input<'_>) -> Self {
        match input.byte() {
            few @ 0..=31 => Self::Hops(usize::from(few % 8)),
            255 => Self::Hops(usize::MAX),
            chosen => {
                let chosen = NETWORKS
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| chosen & (1 << at) != 0);
                Self::Networks(
                    chosen
                        .map(|(_, text)| text.parse().expect("a network"))
                        .collect(),
                )
            }
        }
    }

    fn extractor(&self) -> ClientIp {
        match self {
            Self::Networks(networks) => ClientIp::behind(networks.iter().copied()),
            Self::Hops(hops) => ClientIp::behind_hops(*hops),
        }
    }

    fn believes(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        match self {
            Self::Hops(hops) => *hops > 0,
            Self::Networks(networks) => networks.iter().any(|network| match (network.addr(), ip) {
                // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
                (IpAddr::V6(v6), IpAddr::V4(v4)) if v6.to_ipv4_mapped().is_some() => {
                    network.contains(&IpAddr::V6(v4.to_ipv6_mapped()))
                }
                _ => network.contains(&ip),
            }),
        }
    }
}

/// What the rules come to where a field is a plain list and not too long; written without looking at how the crate does it.
fn expected(
    field: &Forwarding,
    trust: &Trust,
    peer: IpAddr,
    lines: &[HeaderValue],
) -> Option<IpAddr> {
    let text: Vec<&str> = lines
        .iter()
        .map(|line| line.to_str().ok())
        .collect::<Option<_>>()?;
    let text = text.join(",");
    if *field == Forwarding::Forwarded || text.contains('"') || text.len() > 4_000 {
        return None;
    }
    let all: Vec<&str> = text.split(',').collect();
    if all.len() > 64 {
        return None;
    }
    let hops = all
        .iter()
        .map(|hop| hop.trim_ascii())
        .filter(|hop| !hop.is_empty());
    let hops: Vec<Option<IpAddr>> = hops.rev().map(plain).collect();
    let peer = peer.to_canonical();
    let mut client = peer;
    match trust {
        Trust::Networks(_) => {
            for hop in hops {
                match hop {
                    Some(hop) if trust.believes(client) => client = hop,
                    _ => break,
                }
            }
        }
        Trust::Hops(number) => {
            let good = hops
                .iter()
                .take(*number)
                .take_while(|hop| hop.is_some())
                .count();
            let complete = good == *number || hops.get(good).is_some_and(Option::is_none);
            if complete && good > 0 {
                client = hops[good - 1]?;
            }
        }
    }
    Some(client)
}

fn plain(text: &str) -> Option<IpAddr> {
    let ip = text.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    let ip = ip.or_else(|| {
        text.strip_prefix('[')?
            .strip_suffix(']')?
            .parse::<IpAddr>()
            .ok()
    });
    let ip = ip.or_else(|| (text == "unix:").then_some(Ipv4Addr::LOCALHOST.into()));
    // A port behind an IPv6 address without brackets, where all of it is no address.
    let ip = ip.or_else(|| {
        let (ip, port) = text.rsplit_once(':')?;
        let ip = ip.parse::<Ipv6Addr>().ok()?;
        port.parse::<u16>().is_ok().then_some(ip.into())
    });
    ip.map(|ip| ip.to_canonical())
}

/// The address in a key, without its prefix.
fn address(key: &str) -> IpAddr {
    assert!(key.len() <= 200, "{key}");
    let text = key.replace("%3A", ":");
    let ip = text.split('/').next().unwrap_or_default();
    ip.parse().unwrap_or_else(|_| panic!("{key} is no address"))
}

fn masked(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        // Behind a NAT64, and of a 6to4 site.
        IpAddr::V6(ip) if ip.to_bits() >> 32 == 0x64_ff9b << 64 => {
            Ipv4Addr::from(ip.to_bits() as u32).into()
        }
        IpAddr::V6(ip) if ip.to_bits() >> 112 == 0x2002 => {
            Ipv4Addr::from((ip.to_bits() >> 80) as u32).into()
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & !host).into())
        }
    }
}

fn is_a_network(ip: IpAddr, prefix: u8) {
    assert_eq!(ip, masked(ip, prefix.min(128)));
    if let IpAddr::V6(ip) = ip
        && prefix >= 96
    {
        assert_eq!(ip.to_ipv4_mapped(), None::<Ipv4Addr>, "IPv4 in disguise");
    }
}
