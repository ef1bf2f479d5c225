//! Addresses as keys: the socket's peer, and the client behind trusted proxies.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderMap};
use ipnet::IpNet;

use super::forwarding::{Forwarding, MAX_HOPS};
use super::key::Key;
use super::key_extractor::KeyExtractor;
use super::silent_peers::SilentPeers;
use crate::error::KeyError;
use crate::warning::{Warning, WarningKind};

/// The address of the socket's peer, as a request extension for servers that are not axum's.
///
/// On axum, serve with `into_make_service_with_connect_info::<SocketAddr>()` instead. For a server
/// with an extension of its own, say [where the peer is](crate::PeerIp::peer).
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

/// Finds the address of a request's peer in its extensions.
#[derive(Clone)]
pub(crate) struct PeerHook(Arc<FindPeer>);

type FindPeer = dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync;

impl PeerHook {
    pub(crate) fn new(
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn find(&self, extensions: &Extensions) -> Option<SocketAddr> {
        (self.0)(extensions)
    }
}

impl fmt::Debug for PeerHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerHook")
    }
}

/// The address of the peer of the request with this head.
fn peer(head: &Parts, hook: Option<&PeerHook>) -> Result<IpAddr, KeyError> {
    let found = hook.and_then(|hook| hook.find(&head.extensions));
    let given = || head.extensions.get::<PeerAddr>().map(|peer| peer.0);
    let peer = found.or_else(given).or_else(|| connect_info(head));
    let peer = peer.ok_or_else(without_peer)?;
    // A dual-stack socket shows `10.0.0.7` as `::ffff:10.0.0.7`.
    Ok(peer.ip().to_canonical())
}

#[cold]
fn without_peer() -> KeyError {
    KeyError::server(
        "the request has no peer address: serve with \
         into_make_service_with_connect_info::<SocketAddr>(), insert a PeerAddr extension, or say \
         where it is with peer(|extensions| ..); on a Unix socket there is none: count by \
         ClientIp::behind_hops",
    )
}

#[cfg(feature = "axum")]
fn connect_info(head: &Parts) -> Option<SocketAddr> {
    use axum::extract::ConnectInfo;
    let info = head.extensions.get::<ConnectInfo<SocketAddr>>();
    info.map(|info| info.0).or_else(|| mock_info(head))
}

#[cfg(feature = "axum")]
fn mock_info(head: &Parts) -> Option<SocketAddr> {
    use axum::extract::connect_info::MockConnectInfo;
    static WARNED: std::sync::Once = std::sync::Once::new();
    let MockConnectInfo(mock) = head.extensions.get::<MockConnectInfo<SocketAddr>>()?;
    if cfg!(not(feature = "test-util")) {
        WARNED.call_once(|| {
            crate::trace::event!(warn: "MockConnectInfo makes all clients one: outside of tests \
                (feature \"test-util\") serve with into_make_service_with_connect_info");
        });
    }
    Some(*mock)
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Parts) -> Option<SocketAddr> {
    None
}

/// The address of the socket's peer as the key. IPv6 addresses count by their /64 network, and
/// those that hold the IPv4 address of a client as that [client](crate::ClientIp#one-client).
///
/// Behind a proxy every request has the proxy's address: use [`ClientIp`](crate::ClientIp) there.
///
/// The address comes from a [`PeerAddr`](super::PeerAddr) in the request's extensions, or from
/// axum's `ConnectInfo<SocketAddr>`, or in tests from its `MockConnectInfo`; on another server
/// [`peer`](PeerIp::peer) says where it is. A request with none of them means that the server was
/// set up without them: extraction fails with a [`KeyError`] of the kind
/// [`Server`](super::KeyErrorKind::Server).
///
/// ```
/// use std::time::Duration;
/// use tidegate::{PeerIp, RateLimitLayer};
///
/// # async fn run() -> std::io::Result<()> {
/// // Each address: at most 5 requests in any 10 seconds.
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).key(PeerIp);
/// # #[cfg(feature = "axum")] {
/// # use axum::{Router, routing::get};
/// let app: Router = Router::new().route("/getId", get(async || "1").layer(layer));
/// // Under `axum::serve(listener, app)` every request would be answered with a 500.
/// let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
/// axum::serve(tokio::net::TcpListener::bind("0.0.0.0:3000").await?, app).await?;
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PeerIp;

impl PeerIp {
    /// This key with the peer's address from a place of the server's own: the hook finds it in
    /// the request's extensions. If it finds none, the address comes from where it usually does. A
    /// panic is answered with a 500.
    ///
    /// For tonic's server that is
    /// `PeerIp.peer(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr())`.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use std::time::Duration;
    /// use tidegate::{PeerIp, RateLimitLayer};
    ///
    /// /// What the server puts into the extensions of each request.
    /// #[derive(Clone)]
    /// struct Connection {
    ///     remote: SocketAddr,
    /// }
    ///
    /// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5)
    ///     .key(PeerIp.peer(|extensions| Some(extensions.get::<Connection>()?.remote)));
    /// # let _ = layer;
    /// ```
    pub fn peer(
        self,
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> ClientIp {
        ClientIp::new(Trust::Nobody).peer(hook)
    }

    /// The address of the peer of the request with this head, whole.
    pub(crate) fn address(self, head: &Parts) -> Result<IpAddr, KeyError> {
        peer(head, None)
    }

    /// The key of a peer with this address, also within [alternatives](KeyExtractor::or):
    /// [`Key::from`] makes the same.
    #[must_use]
    pub fn key(&self, ip: IpAddr) -> Key {
        ip.into()
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(self.address(head)?.into())
    }

    fn mark(&self) -> Cow<'static, str> {
        "peer-ip".into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        ClientIp::behind([]).key_of_text(text)
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        if fields.is_empty() {
            return Some(Warning::of_guesses(&self.mark()).second());
        }
        let field = proxy_field(fields)?;
        Some(Warning::named(WarningKind::PeerIpBehindProxy, field))
    }
}

/// The address of the client behind trusted proxies as the key.
///
/// Each proxy appends the address of its own peer to one forwarding field. So the field is read
/// from the right, beginning with the socket's peer, and only as far as the proxies that wrote it
/// are trusted:
///
/// - with [trusted networks](ClientIp::behind), the first address outside of them is the client's.
///   If the peer itself is outside of them, the field is not read;
/// - with a [number of proxies](ClientIp::behind_hops), the address that many places from the right
///   is the client's, whatever the peer is, also on a Unix socket. A request with fewer addresses did
///   not come through all proxies, and its key is its peer.
///
/// An element that is no address ends the reading: the last address before it is the client's.
/// `unix:`, by which nginx tells that its own peer was on a Unix socket, is `127.0.0.1`. At most 64
/// elements and 8 KiB are read.
///
/// # One client
///
/// An IPv4 address is one client unless [`ClientIp::ipv4_prefix`] says otherwise. IPv6 addresses
/// count by their /64 network unless [`ClientIp::ipv6_prefix`] says otherwise. An IPv6 address that
/// holds the IPv4 address of a client counts as that IPv4 address, whatever the prefix: IPv4-mapped
/// (`::ffff:203.0.113.9`), behind a NAT64 with the well-known prefix (`64:ff9b::203.0.113.9`, [RFC
/// 6052](https://www.rfc-editor.org/rfc/rfc6052)), and all of a 6to4 site (`2002:cb00:7109::/48`,
/// [RFC 3056](https://www.rfc-editor.org/rfc/rfc3056)). The clients of a NAT64 with another prefix
/// are one /64 network: have it tell their addresses in a field.
///
/// # Trust
///
/// Trust only the service's proxies that append to the field or overwrite it. Every client inside a
/// trusted network can choose the address by which it is limited.
///
/// Networks are compared with addresses as they stand: of those in IPv6 only an IPv4-mapped one is
/// in a network of IPv4. For a proxy behind a NAT64 name its IPv6 network,
/// `64:ff9b::10.0.0.0/104` for `10.0.0.0/8`.
///
/// Among trusted networks the reading begins with the socket's peer, so the server has to provide
/// it, as for [`PeerIp`]:
/// `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`.
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
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    peer: Option<PeerHook>,
    silent: Arc<SilentPeers>,
}

#[derive(Debug, Clone)]
enum Trust {
    Networks(Box<[IpNet]>),
    Hops(usize),
    /// The key is that of [`PeerIp`].
    Nobody,
}

impl ClientIp {
    /// The most proxies of [`behind_hops`](Self::behind_hops).
    pub const MAX_HOPS: usize = MAX_HOPS;

    /// The client behind proxies whose addresses are in these networks. Without networks, the same
    /// as [`PeerIp`](crate::PeerIp).
    ///
    /// A network of IPv4 that is wider than /8, also inside of a NAT64, or one of IPv6 that is wider
    /// than /7 contains clients, which choose their addresses then: a layer logs it as an
    /// [error](crate::warning::WarningKind::WideTrust), and [`ready`](crate::Limits::ready) and
    /// [`verify`](crate::Limits::verify) fail. Behind an ingress that writes the field anew, say
    /// [`behind_hops`](Self::behind_hops).
    pub fn behind(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self::new(Trust::Networks(
            networks.into_iter().map(unmapped).collect(),
        ))
    }

    /// The client behind exactly this many proxies, whatever their addresses: 0 to 64. With 0, the
    /// same as [`PeerIp`](crate::PeerIp). More than 64 addresses of a request are never read, so
    /// with a larger number every key is the peer, which is a
    /// [warning](crate::warning::WarningKind::WrongHops).
    #[must_use]
    pub fn behind_hops(proxies: usize) -> Self {
        Self::new(Trust::Hops(proxies))
    }

    fn new(trust: Trust) -> Self {
        Self {
            trust,
            field: Forwarding::default(),
            ipv4_prefix: IPV4_PREFIX,
            ipv6_prefix: IPV6_PREFIX,
            peer: None,
            silent: Arc::default(),
        }
    }

    /// The field that the proxies write. Default: `X-Forwarded-For`.
    #[must_use]
    pub fn field(mut self, field: Forwarding) -> Self {
        self.field = field;
        self
    }

    /// How many leading bits of an IPv4 address count: 24 for its network of 256 addresses. More
    /// than 32 are the same as 32. Default: 32.
    ///
    /// ```
    /// use tidegate::ClientIp;
    ///
    /// let by_network = ClientIp::behind_hops(1).ipv4_prefix(24).ipv6_prefix(48);
    /// assert_eq!(by_network.key("203.0.113.9".parse()?).as_str(), "203.0.113.0/24");
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.ipv4_prefix = bits.min(32);
        self
    }

    /// How many leading bits of an IPv6 address count, if it does not hold the IPv4 address of a
    /// [client](Self#one-client). More than 128 are the same as 128. Default: 64.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// Where the address of the socket's peer is, as with [`PeerIp::peer`](crate::PeerIp::peer).
    /// Default: in [`PeerAddr`](super::PeerAddr) or axum's `ConnectInfo<SocketAddr>`.
    #[must_use]
    pub fn peer(
        mut self,
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Some(PeerHook::new(hook));
        self
    }

    /// The address of the client that sent the request with this head, whole. IPv4-mapped addresses
    /// are IPv4 addresses.
    ///
    /// ```
    /// use http::Request;
    /// use tidegate::ClientIp;
    /// use tidegate::key::PeerAddr;
    ///
    /// let client_ip = ClientIp::behind(["10.0.0.0/8".parse()?]);
    /// let request = Request::builder()
    ///     .extension(PeerAddr("10.0.0.7:4711".parse()?))
    ///     .header("x-forwarded-for", "198.51.100.1, 203.0.113.9")
    ///     .body(())?;
    /// let (head, ()) = request.into_parts();
    /// assert_eq!(client_ip.address(&head)?.to_string(), "203.0.113.9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError`] of the kind [`Server`](super::KeyErrorKind::Server) if the server does not
    /// provide the address of the socket's peer, unless the [number of proxies](Self::behind_hops)
    /// is known and the field has as many addresses.
    pub fn address(&self, head: &Parts) -> Result<IpAddr, KeyError> {
        self.find_address(head, None)
    }

    /// The same. Those who watch are told of a trusted peer, and whether it named an address.
    fn find_address(&self, head: &Parts, watch: Option<&SilentPeers>) -> Result<IpAddr, KeyError> {
        let peer = || peer(head, self.peer.as_ref());
        let mut hops = self.field.hops(&head.headers).peekable();
        match &self.trust {
            Trust::Networks(networks) => {
                let trusted = |ip| networks.iter().any(|network| network.contains(&ip));
                let peer = peer()?;
                if let Some(silent) = watch.filter(|_| trusted(peer)) {
                    silent.note(peer, matches!(hops.peek(), Some(Some(_))));
                }
                Ok(first_untrusted(peer, hops, trusted))
            }
            Trust::Hops(proxies) => nth_hop(hops, *proxies).map_or_else(peer, Ok),
            Trust::Nobody => peer(),
        }
    }

    /// The key of a client with this address, with the [prefix](Self::ipv6_prefix) of these
    /// settings. Within [alternatives](KeyExtractor::or) it is the same.
    ///
    /// ```
    /// use tidegate::{ClientIp, Key};
    ///
    /// let client = "2001:db8::7".parse()?;
    /// let by_site = ClientIp::behind_hops(1).ipv6_prefix(48);
    /// assert_eq!(by_site.key(client).as_str(), "2001%3Adb8%3A%3A/48");
    /// assert_eq!(ClientIp::behind_hops(1).key(client), Key::from(client));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn key(&self, ip: IpAddr) -> Key {
        ip_key(ip, self.ipv4_prefix, self.ipv6_prefix)
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

/// `None` is the peer, of which a server on a Unix socket knows no address.
fn nth_hop(hops: impl Iterator<Item = Option<IpAddr>>, proxies: usize) -> Option<IpAddr> {
    let mut client = None;
    for (number, hop) in (1..=proxies).zip(hops) {
        if number == proxies || hop.is_none() {
            return hop.or(client);
        }
        client = hop;
    }
    None
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        Ok(self.key(self.find_address(head, Some(&self.silent))?))
    }

    fn mark(&self) -> Cow<'static, str> {
        "client-ip".into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        let text = text.replace("%3A", ":");
        let network = text.parse::<IpNet>().ok();
        let network = network.filter(|it| match it {
            IpNet::V4(network) => network.prefix_len() == self.ipv4_prefix,
            IpNet::V6(network) => network.prefix_len() == self.ipv6_prefix,
        });
        let ip = text.parse().ok().or_else(|| Some(network?.addr()))?;
        Some(self.key(ip))
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        let about = |kind| Some(Warning::with_name(kind, self.field.name()));
        let before = match &self.trust {
            Trust::Hops(proxies) if !fields.is_empty() => proxies.checked_sub(1)?,
            Trust::Networks(it) if it.iter().any(is_too_wide) => {
                return about(WarningKind::WideTrust);
            }
            Trust::Networks(_) if self.silent.is_found() => return about(WarningKind::SilentProxy),
            Trust::Networks(_) if !fields.is_empty() => return None,
            _ => return PeerIp.warning(fields),
        };
        let addresses = self.field.hops(fields).map_while(|hop| hop);
        let mut are_public = addresses.skip(before).map(is_public);
        match (are_public.next(), are_public.next()) {
            (None, _) => about(WarningKind::WrongHops),
            (Some(false), Some(true)) => about(WarningKind::WrongHops).map(Warning::second),
            _ => None,
        }
    }
}

/// Whether an address is none of a private network, of a provider, of a link or of this machine.
fn is_public(ip: IpAddr) -> bool {
    !match ip {
        IpAddr::V4(ip) => {
            let is_shared = matches!(ip.octets(), [100, 64..128, ..]);
            is_shared || ip.is_private() || ip.is_loopback() || ip.is_link_local()
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// The fields by which proxies and networks for delivery tell the client's address.
const PROXY_FIELDS: &str = "x-forwarded-for forwarded x-real-ip cf-connecting-ip true-client-ip \
     fastly-client-ip fly-client-ip x-client-ip";

/// The field by which a proxy told the client's address, if there is one.
pub(crate) fn proxy_field(fields: &HeaderMap) -> Option<&'static str> {
    let mut known = PROXY_FIELDS.split(' ');
    known.find(|field| fields.keys().any(|name| name == *field))
}

/// The IPv4 network of an IPv4-mapped IPv6 network: `10.0.0.0/8` for `::ffff:10.0.0.0/104`.
pub(crate) fn unmapped(network: IpNet) -> IpNet {
    let canonical = network.addr().to_canonical();
    match network.prefix_len().checked_sub(96) {
        Some(bits) if canonical.is_ipv4() && network.addr().is_ipv6() => {
            IpNet::new(canonical, bits).unwrap_or(network)
        }
        _ => network,
    }
}

/// Whether no service has so many proxies: IPv4 is also measured inside of a NAT64.
pub(crate) fn is_too_wide(network: &IpNet) -> bool {
    const NAT64: IpAddr = IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0));
    let bits = network.prefix_len();
    let prefix = IpNet::new(network.addr(), bits.min(96));
    bits < match network {
        IpNet::V4(_) => 8,
        IpNet::V6(_) if prefix.is_ok_and(|it| it.contains(&NAT64)) => 96 + 8,
        IpNet::V6(_) => 7,
    }
}

const IPV4_PREFIX: u8 = 32;
/// How many leading bits of an IPv6 address identify a customer: most customers get a whole /64.
const IPV6_PREFIX: u8 = 64;

/// The address of the client that sends from this one: IPv4 of an address that is IPv4-mapped, of a
/// NAT64 or of a 6to4 site.
fn client(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(ipv6) = ip else {
        return ip;
    };
    match ipv6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ => ip.to_canonical(),
    }
}

/// The key of an address: the first bits of the IPv4 address of a client, or of an IPv6 address. A
/// whole address has no prefix behind it.
fn ip_key(ip: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) -> Key {
    let client = client(ip);
    if let (IpAddr::V4(ip), IPV4_PREFIX) = (client, ipv4_prefix) {
        return whole_ipv4_key(ip);
    }
    // Longer than any address with its prefix.
    let mut text = [0_u8; 64];
    let mut rest = &mut text[..];
    let whole = IpNet::from(client);
    let prefix = match whole {
        IpNet::V4(_) => ipv4_prefix,
        IpNet::V6(_) => ipv6_prefix,
    };
    let written = match IpNet::new(whole.addr(), prefix) {
        Ok(network) if network != whole => write!(rest, "{}", network.trunc()),
        _ => write!(rest, "{}", whole.addr()),
    };
    written.expect("the text is long enough");
    let length = 64 - rest.len();
    Key::address(&text[..length])
}

/// The same of most addresses, without the formatting machinery.
fn whole_ipv4_key(ip: Ipv4Addr) -> Key {
    let (mut text, mut length) = ([0; 16], 0);
    for octet in ip.octets() {
        let (digits, number) = OCTETS[usize::from(octet)];
        text[length..length + 4].copy_from_slice(&digits);
        length += number + 1;
    }
    Key::plain_address(&text[..length - 1])
}

/// The digits of each octet, with a dot behind them, and their number.
static OCTETS: [([u8; 4], usize); 256] = {
    let (mut table, mut octet) = ([([b'.'; 4], 0); 256], 0);
    while octet < 256 {
        let (digits, number) = &mut table[octet];
        let mut unit = 100;
        while unit > 0 {
            if octet >= unit || unit == 1 {
                digits[*number] = b'0' + (octet / unit % 10) as u8;
                *number += 1;
            }
            unit /= 10;
        }
        octet += 1;
    }
    table
};

impl From<IpAddr> for Key {
    /// The key that [`PeerIp`](crate::PeerIp) makes of a peer with this address: IPv6 addresses
    /// count by their /64 network, or as the [client](crate::ClientIp#one-client) in them.
    fn from(ip: IpAddr) -> Self {
        ip_key(ip, IPV4_PREFIX, IPV6_PREFIX)
    }
}
