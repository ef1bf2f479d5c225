//! The key of somebody who is known: what a layer counts for a request is found, and forgotten, by
//! `check`, `peek` and `reset` with the key that the extractor makes of the value.

use std::net::IpAddr;

use tidegate::MatchedPath;
use tidegate::key::{Extension, Host, Joined, Method};

use super::*;

#[derive(Debug, Clone)]
struct User(u64);

const FIELDS: [(&str, &str); 6] = [
    ("host", "Acme.example:80"),
    ("x-user", "alice: 7"),
    ("x-api-key", "s3cret"),
    ("authorization", "Bearer t0ken"),
    ("cookie", "sid=5e55i0n"),
    ("x-forwarded-for", "198.51.100.1, 2001:db8::7"),
];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The key of an extractor as the file names it, if it has a name there.
struct Known {
    name: Option<&'static str>,
    extractor: Arc<dyn KeyExtractor>,
    /// Of the request with [`FIELDS`].
    key: Key,
}

fn known(name: &'static str, extractor: impl KeyExtractor, key: Key) -> Known {
    Known {
        name: (!name.is_empty()).then_some(name),
        extractor: Arc::new(extractor),
        key,
    }
}

fn all() -> Vec<Known> {
    let (user, api_key) = (Header::new("x-user"), Header::new("x-api-key"));
    let (sid, account) = (Cookie::new("sid"), Extension::<User>::new(|user| user.0));
    let (client, path) = (ClientIp::behind_hops(1), MatchedPath.extract(&head()));
    vec![
        known("everyone", Everyone, Key::default()),
        known("header:x-user", user.clone(), user.key("alice: 7")),
        known("header:X-API-Key", api_key.clone(), api_key.key("s3cret")),
        known("bearer", Bearer, Bearer.key("t0ken")),
        known("host", Host, Host.key("acme.example")),
        known("cookie:sid", sid.clone(), sid.key("5e55i0n")),
        known("method", Method, Method.key(&http::Method::GET)),
        known("peer-ip", PeerIp, PeerIp.key(ip(PEER))),
        known("client-ip", client.clone(), client.key(ip("2001:db8::7"))),
        known("", account.clone(), account.key(&User(17))),
        known("", user.clone().secret(), user.secret().key("alice: 7")),
        known("matched-path", MatchedPath, path.expect("a key")),
    ]
}

fn head() -> http::request::Parts {
    let mut request = request(&FIELDS);
    request.extensions_mut().insert(User(17));
    request.into_parts().0
}

/// A layer's request, the check and the reset meet in one count.
async fn check_meeting(case: &str, limits: Limits, key: Key) {
    let layer = wrap(limits.layer("a"));
    let request = || Request::from_parts(head(), Body::empty());
    let ask = async || send(&layer, request()).await.status();
    assert_eq!(ask().await, 200, "{case}");
    assert_eq!(left(&limits, "a", key.clone()).await, 1, "{case}");
    let checked = limits.check("a", key.clone()).await;
    checked.unwrap_or_else(|refused| panic!("{case}: {refused}"));
    assert_eq!(ask().await, 429, "{case}");
    let other = Key::default().with("nobody").with("else");
    assert!(!reset(&limits, "a", other.clone()).await, "{case}");
    assert_eq!(left(&limits, "a", other).await, 2, "{case}");
    assert!(reset(&limits, "a", key.clone()).await, "{case}");
    assert!(!reset(&limits, "a", key).await, "{case}");
    assert_eq!(ask().await, 200, "{case}");
}

fn of_file(key: &str) -> Limits {
    // An error where no key reads it.
    let reads_it = key.contains("client-ip");
    let client_ip = if reads_it {
        "[client-ip]\nhops = 1\n"
    } else {
        ""
    };
    let text = format!("{client_ip}[rules.a]\nmax-count = 2\nwindow = \"1h\"\nkey = {key}\n");
    let limits = Limits::from_toml(&text).unwrap_or_else(|error| panic!("{key}: {error}"));
    limits.store(clocked().1)
}

fn of_code(extractor: Arc<dyn KeyExtractor>) -> Limits {
    Limits::new(Rules::from_iter([hourly("a", 2).with_key(extractor)])).store(clocked().1)
}

/// Each of two alternatives joined with each other one: the parts of both.
#[tokio::test]
async fn joined() {
    for one in all() {
        for other in all() {
            let absent: Arc<dyn KeyExtractor> = Arc::new(Header::new("x-absent"));
            let either: Arc<dyn KeyExtractor> = Arc::new(absent.or(Arc::clone(&other.extractor)));
            let both = Joined::new([Arc::clone(&one.extractor), either]);
            let marked = other.extractor.marked(other.key.clone());
            let key = one.key.clone().join(&marked);
            let case = format!("{:?} and {:?}: {key:?}", one.name, other.name);
            check_meeting(&case, of_code(Arc::new(both)), key.clone()).await;
            if let (Some(one), Some(other)) = (one.name, other.name) {
                let text = format!("[\"{one}\", \"header:x-absent | {other}\"]");
                check_meeting(&case, of_file(&text), key).await;
            }
        }
    }
}
