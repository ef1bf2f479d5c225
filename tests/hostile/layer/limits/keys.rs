//! Keys that clients try to forge: fields that are malformed, sent twice, in odd cases and bytes, and
//! values that look like another subject's key.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use proptest::prelude::*;
use tidegate::key::{Alternatives, Extension};

use super::*;

fn head(fields: &[(&'static str, &[u8])]) -> Parts {
    let mut head = request(&[]).into_parts().0;
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).expect("a value that hyper lets through");
        head.headers.append(*name, value);
    }
    head
}

/// What a request has, by the words of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Absent,
    Malformed,
    Value(Vec<u8>),
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = bytes.iter().position(|byte| !is_blank(byte));
    let to = bytes.iter().rposition(|byte| !is_blank(byte));
    from.zip(to).map_or(&[], |(from, to)| &bytes[from..=to])
}

/// The scheme in any case, then blanks; another scheme is absent, an empty token malformed, and so
/// are a token with anything but visible ASCII, and two fields.
fn bearer_of(fields: &[Vec<u8>]) -> Found {
    let [field] = fields else {
        return match fields.is_empty() {
            true => Found::Absent,
            false => Found::Malformed,
        };
    };
    let field = trim(field);
    let end = field.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (scheme, token) = field.split_at(end.unwrap_or(field.len()));
    let token = trim(token);
    let is_whole = !token.is_empty() && token.iter().all(|byte| (33..127).contains(byte));
    match scheme.eq_ignore_ascii_case(b"bearer") {
        false => Found::Absent,
        true if is_whole => Found::Value(token.to_vec()),
        true => Found::Malformed,
    }
}

/// Without blanks around it, and percent-decoded; nothing if it is no UTF-8.
fn decoded(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.trim().as_bytes();
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let escaped = digit(at + 1).zip(digit(at + 2));
        match escaped.filter(|_| text[at] == b'%') {
            Some((high, low)) => bytes.push((16 * high + low) as u8),
            None => bytes.push(text[at]),
        }
        let is_escape = text[at] == b'%' && escaped.is_some();
        at += if is_escape { 3 } else { 1 };
    }
    String::from_utf8(bytes).ok()
}

/// All fields are one list; the name in its case, before the first `=`; named twice, empty and no
/// UTF-8 is malformed.
fn cookie_of(fields: &[Vec<u8>], name: &str) -> Found {
    let mut values = Vec::new();
    for field in fields {
        for pair in field.split(|byte| *byte == b';') {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let found = halves.next().and_then(decoded);
            let value = halves.next().filter(|_| found.as_deref() == Some(name));
            values.extend(value.map(decoded));
        }
    }
    match &values[..] {
        [] => Found::Absent,
        // As handlers have it: `Cookie::key` knows quotes.
        [Some(one)] if !["", "\"\""].contains(&&**one) => Found::Value(one.as_bytes().to_vec()),
        _ => Found::Malformed,
    }
}

fn is_found(
    extractor: &dyn KeyExtractor,
    head: &Parts,
    expected: &Found,
    key: impl Fn(&[u8]) -> Key,
) -> bool {
    let got = extractor.find(head).map_err(|error| error.kind());
    let alone = extractor.extract(head).map_err(|error| error.kind());
    match expected {
        Found::Absent => got == Ok(None) && alone == Err(KeyErrorKind::Absent),
        Found::Malformed => {
            got == Err(KeyErrorKind::Malformed) && alone == Err(KeyErrorKind::Malformed)
        }
        Found::Value(value) => got == Ok(Some(key(value))) && alone == Ok(key(value)),
    }
}

fn credentials() -> impl Strategy<Value = Vec<u8>> {
    let scheme = prop_oneof![
        6 => "[Bb][Ee][Aa][Rr][Ee][Rr]",
        1 => "Basic|Bearer,|Bearer:|Bear|xBearer|Bearer=|\"Bearer\"|",
    ];
    let blanks = "[ \t]{0,2}";
    let token = prop_oneof![
        3 => prop::collection::vec(prop_oneof![33..127_u8, 128..=255_u8], 0..6),
        1 => "[ab \t]{0,4}".prop_map(String::into_bytes),
        1 => Just(b"Bearer t0ken".to_vec()),
        1 => Just(vec![b'x'; 9_000]),
    ];
    (blanks, scheme, blanks, token, blanks).prop_map(|(before, scheme, between, token, after)| {
        let name = format!("{before}{scheme}{between}");
        [name.as_bytes(), &token, after.as_bytes()].concat()
    })
}

fn cookies() -> impl Strategy<Value = Vec<u8>> {
    let pair = prop_oneof![
        4 => "[ \t]{0,1}(sid|SID|sid2|xsid|\"sid\"|sid,)[ \t]{0,1}=[ \t]{0,1}[ab=,\" ]{0,3}",
        2 => "(s%69d|%73id|sid|s%6|%20sid)=[a\"%]{0,2}(%61|%22|%|%2|%20|%c3%a9|%ff|%25|\u{a0}|\u{e9}){0,2}[a\"]{0,1}",
        1 => "sid|=|;|sid=|=sid|sid==",
        1 => "[ -~]{0,6}",
    ];
    let pairs = prop::collection::vec(pair, 0..4);
    let separator = prop::sample::select(vec![";", "; ", ",", " ;"]);
    (pairs, separator, prop::option::of(128..=255_u8)).prop_map(|(pairs, separator, odd)| {
        let mut field = pairs.join(separator).into_bytes();
        field.extend(odd);
        field
    })
}

proptest! {
    #![proptest_config(kit::random::config(3_000))]

    /// What is malformed is malformed also where there are alternatives, and what is absent is
    /// never a key.
    #[test]
    fn tokens_as_a_model_reads_them(fields in prop::collection::vec(credentials(), 0..3)) {
        let of_head: Vec<_> = fields.iter().map(|it| ("authorization", &it[..])).collect();
        let head = head(&of_head);
        let expected = bearer_of(&fields);
        let is_right = is_found(&Bearer, &head, &expected, |token| Bearer.key(token));
        prop_assert!(is_right, "{:?}", expected);
        check_alternative(Bearer, &head, &expected, |token| Bearer.key(token))?;
    }

    #[test]
    fn cookies_as_a_model_reads_them(fields in prop::collection::vec(cookies(), 0..3)) {
        let of_head: Vec<_> = fields.iter().map(|it| ("cookie", &it[..])).collect();
        let head = head(&of_head);
        let expected = cookie_of(&fields, "sid");
        let sid = Cookie::new("sid");
        let is_right = is_found(&sid, &head, &expected, |value| sid.key(value));
        prop_assert!(is_right, "{:?} {:?}", expected, sid.find(&head));
        let key = sid.clone();
        check_alternative(sid, &head, &expected, move |value| key.key(value))?;
    }
}

/// The same behind what is absent, before an address, and as a part of a joined key.
fn check_alternative(
    extractor: impl KeyExtractor + Clone,
    head: &Parts,
    expected: &Found,
    key: impl Fn(&[u8]) -> Key,
) -> Result<(), TestCaseError> {
    let peer = PeerIp.key(PEER.parse().expect("an address"));
    let absent = || Header::new("x-absent");
    let all = [
        absent().or(extractor.clone()).or(PeerIp),
        extractor.clone().or(absent()).or(PeerIp),
        extractor.clone().or(PeerIp).or(Everyone),
    ];
    for either in all {
        let got = either.extract(head).map_err(|error| error.kind());
        let expected = match expected {
            Found::Absent => Ok(peer.clone()),
            Found::Malformed => Err(KeyErrorKind::Malformed),
            Found::Value(value) => Ok(extractor.marked(key(value))),
        };
        prop_assert_eq!(got, expected);
    }
    let joined = (PeerIp, extractor.clone()).or(Everyone);
    let got = joined.extract(head).map_err(|error| error.kind());
    match expected {
        Found::Absent => prop_assert_eq!(got, Ok(Key::from("everyone"))),
        Found::Malformed => prop_assert_eq!(got, Err(KeyErrorKind::Malformed)),
        Found::Value(_) => prop_assert!(got.is_ok_and(|key| key.as_str().starts_with("joined|"))),
    }
    Ok(())
}

/// The values of a field are kept apart, byte by byte. One that is sent twice has no key: whoever has
/// verified it may have read either line.
#[test]
fn values_of_a_field() {
    let tenant = Header::new("x-tenant");
    let of = |lines: &[&[u8]]| {
        let fields: Vec<_> = lines.iter().map(|line| ("x-tenant", *line)).collect();
        tenant.extract(&head(&fields)).map_err(|error| error.kind())
    };
    let all: [&[u8]; 8] = [b"", b"ab", b"a b", b"a,b", b"a, b", b"a\xff", b"AB", b"%"];
    for (number, value) in all.iter().enumerate() {
        for other in &all[number + 1..] {
            assert_ne!(of(&[value]), of(&[other]), "{value:?} {other:?}");
        }
        assert!(!of(&[value]).expect("a key").is_empty());
        for other in all {
            let both = of(&[value, other]);
            assert_eq!(both, Err(KeyErrorKind::Malformed), "{value:?} {other:?}");
        }
    }
    assert_eq!(of(&[b"acme"]), Ok(tenant.key("acme")));
    assert_eq!(of(&[b"\xff\xfe"]), Ok(tenant.key([0xff, 0xfe])));
}

/// An extractor with a mark of its own, which looks like another one's.
#[derive(Clone)]
struct Marked(&'static str, &'static str);

impl KeyExtractor for Marked {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        key_of_field(head, self.1)
    }

    fn mark(&self) -> Cow<'static, str> {
        self.0.into()
    }
}

fn key_of_field(head: &Parts, name: &str) -> Result<Key, KeyError> {
    let value = head.headers.get(name);
    let value = value.ok_or_else(|| KeyError::absent("no field"))?;
    Ok(Key::default().with(value.as_bytes()))
}

/// Marks that are equal, that contain the marks of others, and that look like numbered ones: no two
/// alternatives share a key.
#[test]
fn marks_that_look_like_others() {
    const FIELDS: [&str; 8] = ["x-0", "x-1", "x-2", "x-3", "x-4", "x-5", "x-6", "x-7"];
    let marks = [
        words("custom custom#2 custom#3 custom%232 #2 a|b a header.x-0 | < joined everyone 2"),
        vec!["", "\n", "a b"],
    ]
    .concat();
    let mut random = kit::random::Random::new(5);
    for case in 0..2_000 {
        let mut any_mark = || marks[random.below(marks.len() as u64) as usize];
        let chosen = FIELDS.map(|field| Marked(any_mark(), field));
        let mut all = chosen.iter().cloned();
        let first = all.next().expect("eight");
        let first: Alternatives = first.or(all.next().expect("eight"));
        let mut all: Alternatives = all.fold(first, |all, next| all.or(next));
        if case % 2 == 0 {
            all = all.or(|head: &Parts| key_of_field(head, "x-closure"));
        }
        let mut keys = HashMap::new();
        for name in FIELDS.into_iter().chain(["x-closure"]) {
            for value in ["v", "b|v", "#2|v"] {
                let Ok(key) = all.extract(&head(&[(name, value.as_bytes())])) else {
                    assert_eq!(name, "x-closure");
                    continue;
                };
                let marks = chosen.each_ref().map(|it| it.0);
                if let Some(other) = keys.insert(key.to_string(), (name, value)) {
                    panic!("{marks:?}: {name} {value} is {other:?}: {key}");
                }
            }
        }
    }
}

/// Keys of code that are made of an address and more, or of an address in another way, are marked;
/// only an address alone is not.
#[test]
fn addresses_and_more() {
    let ip: IpAddr = PEER.parse().expect("an address");
    type Make = fn(IpAddr) -> Key;
    let made: [(&str, Make); 6] = [
        ("with", |ip| Key::from(ip).with("x")),
        ("with nothing", |ip| Key::from(ip).with_nothing()),
        ("with a secret", |ip| Key::from(ip).with_secret("x")),
        ("joined", |ip| Key::from(ip).join(&Key::from("x"))),
        ("twice", |ip| Key::from(ip).join(&Key::from(ip))),
        ("as a text", |ip| Key::from(ip.to_string())),
    ];
    let absent = || Header::new("x-absent");
    for (name, make) in made {
        let extractor = absent().or(move |_: &Parts| Ok(make(ip)));
        let key = extractor.extract(&head(&[])).expect("a key");
        assert!(key.as_str().starts_with("custom|"), "{name}: {key}");
        assert_ne!(key, PeerIp.key(ip));
    }
    let plain = absent().or(move |_: &Parts| Ok(Key::from(ip)));
    assert_eq!(plain.extract(&head(&[])).expect("a key"), PeerIp.key(ip));
    let user = Extension::<String>::new(Clone::clone);
    let of_user = user.clone().or(PeerIp);
    let mut request = head(&[]);
    request.extensions.insert(PEER.to_owned());
    let key = of_user.extract(&request).expect("a key");
    assert_eq!(key, user.marked(user.key(&PEER.to_owned())));
    assert_ne!(key, PeerIp.key(ip));
}

/// A network of clients has one key, and its neighbours have others, for every length of the prefix.
#[test]
fn networks_of_clients() {
    let mut random = kit::random::Random::new(9);
    for bits in 0..=128_u8 {
        let client = ClientIp::behind_hops(1).ipv6_prefix(bits);
        let number =
            (u128::from(random.below(u64::MAX)) << 64) | u128::from(random.below(u64::MAX));
        let number = number | (1 << 127);
        let key = |number: u128| client.key(IpAddr::V6(Ipv6Addr::from(number)));
        for bit in 0..128_u8 {
            let is_same = key(number) == key(number ^ (1 << (127 - bit)));
            assert_eq!(is_same, bit >= bits, "bit {bit} of /{bits}");
        }
        let of_v4: IpAddr = "198.51.100.7".parse().expect("an address");
        assert_eq!(client.key(of_v4).as_str(), "198.51.100.7", "/{bits}");
        let mapped: IpAddr = "::ffff:198.51.100.7".parse().expect("an address");
        assert_eq!(client.key(mapped), client.key(of_v4), "/{bits}");
    }
}

/// Long values, secrets and all bytes: the name in the store is short, printable, and another one
/// for each.
#[test]
fn bytes_of_all_kinds() {
    let user = Header::new("x-user");
    let either = user.clone().or(Everyone);
    let (rule, mut names) = (Arc::new(hourly("a", 1)), HashMap::new());
    let mut add = |value: &[u8]| {
        for key in [
            user.key(value),
            user.marked(user.key(value)),
            Cookie::new("c").key(value),
        ] {
            let name = Take::new(Arc::clone(&rule), key).name("p:");
            let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
            assert!(name.bytes().all(is_safe), "{name}");
            assert!(name.len() < 300, "{} bytes", name.len());
            let other = names.insert(name.clone(), value.to_vec());
            let other = other.filter(|other| other != value);
            assert!(other.is_none(), "{value:?} and {other:?}: {name}");
        }
        if HeaderValue::from_bytes(value).is_ok() {
            let key = either.extract(&head(&[("x-user", value)])).expect("a key");
            assert_eq!(key, user.marked(user.key(value.trim_ascii())));
        }
    };
    add(b"");
    for byte in 0..=255 {
        add(&[byte]);
        add(&[b'a', byte]);
        add(&[byte, 0]);
    }
    for length in [63, 64, 65, 66, 1_000, 100_000] {
        add(&vec![b'%'; length]);
        add(&vec![0xff; length]);
    }
    // A value that is what a long one is stored as.
    let long = user.key(vec![b'x'; 200]).to_string();
    add(long.as_bytes());
    add(&[b'x'; 200]);
}

/// Extractors whose own hooks are wrong: an error or a panic, and no admission.
#[tokio::test]
async fn extractors_that_are_wrong() {
    struct Lies;
    impl KeyExtractor for Lies {
        fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
            Err(KeyError::absent("alone it has none"))
        }
        fn find(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
            panic!("an extractor of a test")
        }
        fn mark(&self) -> Cow<'static, str> {
            "lies".into()
        }
        fn warning(&self, _: &HeaderMap) -> Option<tidegate::warning::Warning> {
            panic!("an extractor of a test")
        }
    }
    let limits = Limits::new([hourly("a", 1)]).key(Lies.or(Everyone));
    assert_eq!(status(&wrap(limits.layer("a")), &[]).await, 500);
    assert_eq!(status(&wrap(limits.layer("a").key(Lies)), &[]).await, 400);
    // A check needs no extractor.
    admitted(&limits, "a", "k").await;
}
