//! Who is asking, as forwarding fields and attackers have it.

use std::net::IpAddr;

use axum::extract::ConnectInfo;
use axum::extract::connect_info::MockConnectInfo;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate::MatchedPath;
use tidegate::key::Forwarding;
use tokio::net::UnixStream;

use crate::*;

/// The key of a request from this peer with these lines of a field.
fn key(extractor: &impl KeyExtractor, peer: &str, field: &str, lines: &[&str]) -> String {
    let fields: Vec<_> = lines.iter().map(|line| (field, *line)).collect();
    let (mut head, _) = from(peer, "/", &fields).into_parts();
    // As axum tells of it.
    let PeerAddr(peer) = head.extensions.remove().expect("a peer");
    head.extensions.insert(ConnectInfo(peer));
    let key = extractor.extract(&head).expect("a key").to_string();
    key.replace("%3A", ":")
}

fn without_peer() -> Parts {
    Request::new(()).into_parts().0
}

fn xff(extractor: &ClientIp, peer: &str, lines: &[&str]) -> String {
    key(extractor, peer, "x-forwarded-for", lines)
}

fn behind(networks: &[&str]) -> ClientIp {
    let networks = networks.iter();
    ClientIp::behind(networks.map(|network| network.parse().expect("a network")))
}

/// Which networks of proxies are trusted, or how many proxies; the peer; lines of the field, divided
/// by slashes; and the client.
const CLIENTS: &str = "
  10.0.0.0/8          | 203.0.113.9 | 1.1.1.1                    | 203.0.113.9
                      | 10.0.0.1    | 1.1.1.1                    | 10.0.0.1
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | 1.1.1.1                    | 1.1.1.1
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | 6.6.6.6, 1.1.1.1, 10.0.0.2 | 1.1.1.1
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | 6.6.6.6/1.1.1.1/10.0.0.3,fd00::1 | 1.1.1.1
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | 10.0.0.5, 10.0.0.4         | 10.0.0.5
  10.0.0.0/8 fd00::/8 | 10.0.0.1    |                            | 10.0.0.1
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | 1.1.1.1, garbage, 10.0.0.2 | 10.0.0.2
  10.0.0.0/8 fd00::/8 | 10.0.0.1    | garbage                    | 10.0.0.1
  1 | 198.51.100.1 | 6.6.6.6, 1.1.1.1         | 1.1.1.1
  2 | 198.51.100.1 | 6.6.6.6, 1.1.1.1/2.2.2.2 | 1.1.1.1
  3 | 198.51.100.1 | 1.1.1.1, 2.2.2.2         | 198.51.100.1
  0 | 198.51.100.1 | 1.1.1.1                  | 198.51.100.1
  2 | 198.51.100.1 | garbage, 2.2.2.2         | 2.2.2.2
  10.0.0.0/8 127.0.0.0/8 | 10.0.0.1 | 1.1.1.1, unix:          | 1.1.1.1
  10.0.0.0/8 127.0.0.0/8 | 10.0.0.1 | 6.6.6.6, unix:, 1.1.1.1 | 1.1.1.1
  10.0.0.0/8             | 10.0.0.1 | 1.1.1.1, unix:          | 127.0.0.1
  1                      | 10.0.0.1 | 1.1.1.1, unix:          | 127.0.0.1
  10.0.0.0/8 127.0.0.0/8 | 10.0.0.1 | 1.1.1.1/unix            | 10.0.0.1
  10.0.0.0/8 127.0.0.0/8 | 10.0.0.1 | 1.1.1.1/UNIX:           | 10.0.0.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | 1.1.1.1:8080                    | 1.1.1.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | [2001:db8:1:2:3::4]:8080        | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | [2001:db8:1:2:3::4]             | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2:3::4               | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | ::ffff:1.1.1.1                  | 1.1.1.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2:3:4:5:6:443        | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:DB8:1:2:3:4:5:6:65535      | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2::4:50000           | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2:3:4:5:443          | 2001:db8:1:2::/64
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2:3:4:5:6:7:443      | 10.0.0.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | 2001:db8:1:2:3:4:5:6:65536      | 10.0.0.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | 1:2:3                           | 10.0.0.1
  10.0.0.0/8          | ::ffff:10.0.0.1 | ::1:x                           | 10.0.0.1
  ::ffff:10.0.0.0/104 | 10.0.0.1        | 1.1.1.1                         | 1.1.1.1
  10.0.0.0/8             | 64:ff9b::10.0.0.1 | 1.1.1.1                     | 10.0.0.1
  10.0.0.0/8             | 2002:a00:1::7     | 1.1.1.1                     | 10.0.0.1
  10.0.0.0/8             | 10.0.0.1          | 1.1.1.1, 64:ff9b::10.0.0.2  | 10.0.0.2
  64:ff9b::10.0.0.0/104  | 64:ff9b::10.0.0.1 | 1.1.1.1                     | 1.1.1.1
  64:ff9b::10.0.0.0/104  | 10.0.0.1          | 1.1.1.1                     | 10.0.0.1";

/// The client is the first from the right that is no trusted proxy, or whose number from the right
/// is that of the proxies; lines are one list, what is left of the client is its own claim, and
/// garbage ends the walk. An untrusted peer, or one around the proxies, is the client itself.
///
/// Ports and brackets are no part of an address. Without brackets nine groups are an address and a
/// port, and so are digits that no group has. Whoever writes `unix:` is this machine, and is trusted
/// no more than that. Trust is compared with the address as it stands: nobody becomes a proxy by
/// what an IPv6 address contains.
#[test]
fn whose_address_it_is() {
    for row @ [trusted, peer, lines, expected] in table(CLIENTS) {
        let client = match trusted.parse() {
            Ok(hops) => ClientIp::behind_hops(hops),
            Err(_) => behind(&words(trusted)),
        };
        let lines: Vec<_> = lines.split('/').filter(|it| !it.is_empty()).collect();
        assert_eq!(xff(&client, peer, &lines), expected, "{row:?}");
    }
    // A path is no socket's name, and has slashes.
    let here = behind(&["10.0.0.0/8", "127.0.0.0/8"]);
    let lines = ["1.1.1.1", "unix:/run/app.sock"];
    assert_eq!(xff(&here, "10.0.0.1", &lines), "10.0.0.1");
    let forwarded = here.field(Forwarding::Forwarded);
    let lines = ["for=1.1.1.1, for=\"unix:\""];
    assert_eq!(key(&forwarded, "10.0.0.1", "forwarded", &lines), "1.1.1.1");
}

/// As the documentation of axum has it for tests: the real address and `PeerAddr` win. With the
/// feature `test-util` no warning is logged; `tests/grpc` has none.
#[tokio::test]
async fn a_mocked_peer() {
    let log = Log::start();
    let mock = SocketAddr::from(([203, 0, 113, 9], 1));
    let real = SocketAddr::from(([198, 51, 100, 7], 1));
    let rule = "[rules.p]\nmax-count = 1\nwindow = \"1m\"\n";
    let counted = [200, 429, 200, 429, 429];
    for (lines, statuses) in [
        ("key = 'peer-ip'", counted),
        (
            "key = 'client-ip'\nclient-ip.trusted = ['10.0.0.0/8']",
            counted,
        ),
        (
            "key = 'everyone'\nexempt.networks = ['203.0.113.0/24']",
            [200, 200, 200, 429, 200],
        ),
    ] {
        let limits = of_toml(&format!("{rule}{lines}"));
        let app = app(limits.layer("p")).layer(MockConnectInfo(mock));
        let requests = [(); 5].map(|()| request("/", ""));
        for ((at, mut request), expected) in requests.into_iter().enumerate().zip(statuses) {
            match at {
                2 => drop(request.extensions_mut().insert(ConnectInfo(real))),
                3 => drop(request.extensions_mut().insert(PeerAddr(real))),
                _ => {}
            }
            assert_eq!(
                call(&app, request).await.status(),
                expected,
                "{lines}: {at}"
            );
        }
    }
    let lines = log.lines();
    assert!(!lines.iter().any(|it| it.contains("WARN")), "{lines:?}");
}

/// A server on a Unix socket knows no address of its peer. The number of proxies is enough.
#[tokio::test]
async fn over_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = async |hops: usize, expected: &[(&str, u16)]| {
        let path = folder.path().join(hops.to_string());
        let layer = RateLimitLayer::new("p", WINDOW, 1).key(ClientIp::behind_hops(hops));
        let listener = tokio::net::UnixListener::bind(&path).expect("a socket");
        tokio::spawn(async move { axum::serve(listener, app(layer)).await });
        for (value, expected) in expected {
            let io = TokioIo::new(UnixStream::connect(&path).await.expect("a server"));
            let (mut client, connection) = http1::handshake(io).await.expect("a server");
            tokio::spawn(connection);
            let mut request = request("/", "host: a");
            if !value.is_empty() {
                let value = value.parse().expect("a value");
                request.headers_mut().insert("x-forwarded-for", value);
            }
            let answer = client.send_request(request).await.expect("an answer");
            assert_eq!(answer.status(), *expected, "{hops}: {value}");
        }
    };
    let one = [
        ("1.1.1.1", 200),
        ("6.6.6.6, 1.1.1.1", 429),
        ("1.1.1.2", 200),
        ("", 500),
        ("garbage", 500),
        ("1.1.1.3, garbage", 500),
    ];
    check(1, &one).await;
    // As nginx writes it where its own peer is a Unix socket.
    let two = [
        ("1.1.1.1, unix:", 200),
        ("6.6.6.6, 1.1.1.1, unix:", 429),
        ("1.1.1.2, unix:", 200),
        ("unix:", 500),
    ];
    check(2, &two).await;
}

#[test]
fn only_the_one_field_is_believed() {
    let trusting = behind(&["10.0.0.0/8"]);
    let of = |client: &ClientIp, field, lines: &[&str]| key(client, "10.0.0.1", field, lines);
    assert_eq!(of(&trusting, "forwarded", &["for=1.1.1.1"]), "10.0.0.1");
    let forwarded = trusting.clone().field(Forwarding::Forwarded);
    let two = ["for=6.6.6.6", "for=\"[2001:db8::1]:443\";proto=https"];
    assert_eq!(of(&forwarded, "forwarded", &two), "2001:db8::/64");
    assert_eq!(of(&forwarded, "forwarded", &["for=_hidden"]), "10.0.0.1");
    // What is quoted is no parameter.
    let quoted = ["for=1.1.1.1;host=\"a;for=6.6.6.6\""];
    assert_eq!(of(&forwarded, "forwarded", &quoted), "1.1.1.1");
    assert_eq!(xff(&forwarded, "10.0.0.1", &["1.1.1.1"]), "10.0.0.1");
    let own = HeaderName::from_static("cf-connecting-ip");
    let own = trusting.field(Forwarding::Header(own));
    assert_eq!(of(&own, "cf-connecting-ip", &["1.1.1.1"]), "1.1.1.1");
}

#[test]
fn ipv6_counts_by_its_network() {
    let of = |bits| xff(&behind(&[]).ipv6_prefix(bits), "2001:db8:1:2:3:4:5:6", &[]);
    assert_eq!(of(64), "2001:db8:1:2::/64");
    assert_eq!(of(48), "2001:db8:1::/48");
    assert_eq!(of(128), "2001:db8:1:2:3:4:5:6");
    assert_eq!(of(255), "2001:db8:1:2:3:4:5:6");
    assert_eq!(of(0), "::/0");
    assert_eq!(key(&PeerIp, "2001:db8::1", "x", &[]), "2001:db8::/64");
}

#[test]
fn ipv4_counts_by_its_network_if_asked() {
    let of = |bits, text| xff(&behind(&[]).ipv4_prefix(bits), text, &[]);
    for text in [
        "203.0.113.9",
        "::ffff:203.0.113.9",
        "64:ff9b::203.0.113.9",
        "2002:cb00:7109::1",
    ] {
        assert_eq!(of(24, text), "203.0.113.0/24");
        assert_eq!(of(20, text), "203.0.112.0/20");
        assert_eq!(of(0, text), "0.0.0.0/0");
        assert_eq!(of(32, text), "203.0.113.9");
        assert_eq!(of(255, text), "203.0.113.9");
    }
    assert_eq!(of(24, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    let both = behind(&[]).ipv4_prefix(24).ipv6_prefix(48);
    assert_eq!(xff(&both, "2001:db8:1:2:3:4:5:6", &[]), "2001:db8:1::/48");
    for shown in ["203.0.113.0/24", "203.0.113.77/24", "203.0.113.9"] {
        let found = both.key_of_text(shown).expect("a network of the key");
        assert_eq!(found.as_str(), "203.0.113.0/24");
    }
    assert_eq!(both.key_of_text("203.0.113.0/16"), None);
}

/// Who owns a /48 has 65,536 networks of /64, and neighbours in it: one limit for each.
#[tokio::test]
async fn two_sizes_of_networks_in_a_file() {
    let limits = of_toml(
        r#"
        client-ip = { hops = 1 }
        [rules.api]
        quotas = [
          { max-count = 2, window = "1h", key = "client-ip/64" },
          { max-count = 5, window = "1h", key = "client-ip/24/48", subject = "site" },
        ]
        "#,
    );
    let app = app_of(&limits, &["api"]);
    for (client, expected) in [
        ("2001:db8:1:1::1", 200),
        ("2001:db8:1:1::2", 200),
        ("2001:db8:1:1::3", 429),
        ("2001:db8:1:2::1", 200),
        ("2001:db8:1:3::1", 200),
        ("2001:db8:1:4::1", 200),
        ("2001:db8:1:5::1", 429),
        ("2001:db8:2:1::1", 200),
        ("203.0.113.1", 200),
        ("203.0.113.1", 200),
        ("203.0.113.1", 429),
        ("203.0.113.2", 200),
        ("203.0.113.3", 200),
        ("203.0.113.4", 200),
        ("203.0.113.5", 429),
        ("203.0.114.1", 200),
    ] {
        let fields = format!("x-forwarded-for: {client}");
        let answer = ask(&app, "/api", &fields).await;
        assert_eq!(answer.status, expected, "{client}");
    }
    let client: IpAddr = "2001:db8:1:1::7".parse().expect("an address");
    let key = [("client-ip/64", Key::from(client))];
    assert_eq!(left(&limits, "api", key).await, 0);
}

/// Clients whose IPv4 address a translator or a tunnel has put into an IPv6 address.
#[test]
fn an_ipv4_client_in_ipv6_is_that_client() {
    let client = "203.0.113.9";
    for (text, expected) in [
        // NAT64, RFC 6052; 6to4, RFC 3056, in which the address is that of the site; and mapped.
        ("64:ff9b::203.0.113.9", client),
        ("64:ff9b::cb00:7109", client),
        ("2002:cb00:7109::1", client),
        ("2002:cb00:7109:1:2:3:4:5", client),
        ("2002:cb00:7109:ffff::", client),
        ("::ffff:203.0.113.9", client),
        ("64:ff9b::203.0.113.10", "203.0.113.10"),
        // Neighbours of those networks.
        ("64:ff9b::1:cb00:7109", "64:ff9b::/64"),
        ("64:ff9b:0:1::cb00:7109", "64:ff9b:0:1::/64"),
        ("64:ff9b:1::cb00:7109", "64:ff9b:1::/64"),
        ("64:ff9c::cb00:7109", "64:ff9c::/64"),
        ("2003:cb00:7109::1", "2003:cb00:7109::/64"),
        ("::203.0.113.9", "::/64"),
        ("::1", "::/64"),
    ] {
        let hops = ClientIp::behind_hops(1);
        assert_eq!(key(&PeerIp, text, "x", &[]), expected, "{text}");
        assert_eq!(xff(&hops, "10.0.0.1", &[text]), expected, "{text}");
        let ip = text.parse().expect("an address");
        assert_eq!(Key::from(ip), PeerIp.key(ip), "{text}");
        assert_eq!(Key::from(ip), hops.key(ip), "{text}");
        if expected.contains('.') {
            for bits in [0, 48, 96, 128] {
                let of = xff(&behind(&[]).ipv6_prefix(bits), text, &[]);
                assert_eq!(of, expected, "{text} {bits}");
            }
        }
    }
}

#[test]
fn huge_fields_are_bounded() {
    let trusting = behind(&["10.0.0.0/8"]);
    let many = vec!["10.0.0.9"; 10_000].join(",");
    assert_eq!(xff(&trusting, "10.0.0.1", &["1.1.1.1", &many]), "10.0.0.9");
    let lines = vec!["10.0.0.9"; 500];
    assert_eq!(xff(&trusting, "10.0.0.1", &lines), "10.0.0.9");
    let blanks = format!("1.1.1.1{}", ", ".repeat(20_000));
    assert_eq!(xff(&trusting, "10.0.0.1", &[&blanks]), "10.0.0.1");
}

/// Error callbacks and the answer depend on whose mistake it is.
#[test]
fn errors_say_whose_mistake_it_is() {
    let head = without_peer();
    let kind = |extractor: &dyn KeyExtractor| {
        let error = extractor.extract(&head).expect_err("nothing to go by");
        error.kind()
    };
    let tenant = || Header::new("x-tenant");
    assert_eq!(kind(&tenant()), KeyErrorKind::Absent);
    assert_eq!(kind(&PeerIp), KeyErrorKind::Server);
    assert_eq!(kind(&behind(&["10.0.0.0/8"])), KeyErrorKind::Server);
    assert_eq!(kind(&ClientIp::behind_hops(1)), KeyErrorKind::Server);
    // The first part that is missing decides.
    assert_eq!(kind(&(tenant(), PeerIp)), KeyErrorKind::Absent);
    assert_eq!(kind(&(MatchedPath, PeerIp)), KeyErrorKind::Server);

    let own = |error: fn(&'static str) -> KeyError| error("no token").with_source("cause").kind();
    assert_eq!(own(KeyError::malformed), KeyErrorKind::Malformed);
    assert_eq!(own(KeyError::absent), KeyErrorKind::Absent);
    assert_eq!(own(KeyError::server), KeyErrorKind::Server);
}

#[test]
fn parts_join() {
    let tenant = || Header::new("x-tenant");
    let (head, _) = from("192.0.2.1", "/", &[("x-tenant", "a:b")]).into_parts();
    let tuple = (PeerIp, tenant(), MatchedPath).extract(&head);
    let tuple = tuple.expect("a key");
    assert_eq!(tuple.as_str(), "192.0.2.1:a%3Ab:~");
    let list = Joined::new([
        Arc::new(PeerIp) as Arc<dyn KeyExtractor>,
        Arc::new(tenant()),
        Arc::new(MatchedPath),
    ]);
    assert_eq!(list.extract(&head).expect("a key"), tuple);
}

#[test]
fn secrets_are_hashed() {
    let of = |name: &str, header: &Header| key(header, "192.0.2.1", name, &["Bearer t0ken"]);
    for name in ["authorization", "cookie", "x-api-key"] {
        let key = of(name, &Header::new(name));
        assert!(key.starts_with('#') && !key.contains("t0ken"));
    }
    let plain = Header::new("x-session");
    assert_eq!(of("x-session", &plain), "Bearer%20t0ken");
    assert!(of("x-session", &plain.secret()).starts_with('#'));
}

/// What a server that is not axum's puts into the extensions of each request.
#[derive(Clone)]
struct Connection(Option<SocketAddr>);

impl Connection {
    fn peer(extensions: &http::Extensions) -> Option<SocketAddr> {
        extensions.get::<Self>()?.0
    }

    /// A request over this connection, which came to a server behind `198.51.100.1`.
    fn request(peer: Option<&str>) -> Request<Body> {
        let peer = peer.map(|peer| SocketAddr::new(peer.parse().expect("an address"), 4711));
        let server = PeerAddr("198.51.100.1:80".parse().expect("an address"));
        let request = Request::get("/").header("x-forwarded-for", "1.1.1.1");
        let request = request.extension(Self(peer)).extension(server);
        request.body(Body::empty()).expect("a valid request")
    }
}

#[test]
fn a_hook_finds_the_peer() {
    let key = |extractor: &dyn KeyExtractor, peer| {
        let (head, _) = Connection::request(peer).into_parts();
        extractor.extract(&head).expect("a key").to_string()
    };
    let peer = PeerIp.peer(Connection::peer);
    assert_eq!(key(&peer, Some("203.0.113.9")), "203.0.113.9");
    assert_eq!(key(&peer, Some("::ffff:203.0.113.9")), "203.0.113.9");
    assert_eq!(key(&peer, None), "198.51.100.1", "as without a hook");
    let client = behind(&["10.0.0.0/8"]).peer(Connection::peer);
    assert_eq!(key(&client, Some("10.0.0.1")), "1.1.1.1");
    assert_eq!(key(&client, Some("203.0.113.9")), "203.0.113.9");

    let error = peer.extract(&without_peer()).expect_err("no peer");
    assert_eq!(error.kind(), KeyErrorKind::Server);
}

/// The keys of a file, and of the file that replaces it.
#[tokio::test]
async fn limits_have_a_hook_for_keys_of_the_file() {
    let of = |max, key: &str| {
        let rule = format!("[rules.p]\nmax-count = {max}\nwindow = \"1m\"\nkey = {key}");
        let trust = key.contains("client-ip").then_some("client-ip.hops = 1\n");
        trust.unwrap_or_default().to_owned() + &rule
    };
    let statuses = async |limits: &Limits, peers: &[Option<&str>]| {
        let app = app(limits.layer("p"));
        let mut statuses = Vec::new();
        for peer in peers {
            let response = call(&app, Connection::request(*peer)).await;
            statuses.push(response.status().as_u16());
        }
        statuses
    };
    let [nine, eight] = ["203.0.113.9", "203.0.113.8"].map(Some);
    let peers = [nine, eight, nine, None, None];
    for key in ["\"peer-ip\"", "[\"matched-path\", \"peer-ip\"]"] {
        let limits = of_toml(&of(1, key)).peer(Connection::peer);
        assert_eq!(statuses(&limits, &peers).await, [200, 200, 429, 200, 429]);
        LimitsFile::new("").reload(&limits, of(2, "\"peer-ip\""));
        let again = [Some("203.0.113.7"); 3];
        assert_eq!(statuses(&limits, &again).await, [200, 200, 429]);
    }
    // One client behind the proxy, whatever the proxy's address is.
    let limits = of_toml(&of(1, "\"client-ip\"")).peer(Connection::peer);
    assert_eq!(statuses(&limits, &peers[..2]).await, [200, 429]);
}

#[tokio::test]
async fn a_panic_of_a_hook_is_a_500() {
    let text = "[rules.p]\nmax-count = 1\nwindow = \"1m\"\nkey = \"peer-ip\"\n\
         [rules.all]\nmax-count = 1\nwindow = \"1m\"\n\
         [rules.shadow]\nmax-count = 1\nwindow = \"1m\"\nkey = \"peer-ip\"\nshadow = true";
    let limits = of_toml(text).peer(|_| panic!("no peer"));
    let own = RateLimitLayer::new("own", WINDOW, 1).key(PeerIp.peer(|_| panic!("no peer")));
    for (layer, status) in [
        (limits.layer("p"), 500),
        (own, 500),
        (limits.layer("all"), 200),
        (limits.layer("shadow"), 200),
    ] {
        let response = call(&app(layer), Connection::request(None)).await;
        assert_eq!(response.status(), status);
    }
}
