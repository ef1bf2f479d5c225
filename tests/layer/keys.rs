//! Keys of all kinds, alone, as alternatives of one another, and joined.

use std::net::IpAddr;

use proptest::prelude::*;
use tidegate::MatchedPath;
use tidegate::key::KeyErrorKind::{Absent, Malformed, Server};
use tidegate::key::{self, Cookie, Extension};

use crate::*;

const PEER: &str = "203.0.113.9";

#[derive(Clone)]
struct User(u64);

#[derive(Clone)]
struct Service(&'static str);

fn user() -> Extension<User> {
    Extension::new(|user: &User| user.0)
}

/// The head of a request from [`PEER`] with these fields.
fn head(fields: &[(&str, &str)]) -> Parts {
    from(PEER, "/", fields).into_parts().0
}

/// With these lines of a field, which may have any bytes but those of control characters.
fn with_lines(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let mut head = head(&[]);
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).expect("a value");
        head.headers.append(name, value);
    }
    head
}

/// The key of these lines of a field, or whose mistake it is that there is none.
fn of_lines(
    extractor: &dyn KeyExtractor,
    name: &'static str,
    lines: &[impl AsRef<[u8]>],
) -> Result<Key, key::KeyErrorKind> {
    let key = extractor.extract(&with_lines(name, lines));
    key.map_err(|error| error.kind())
}

fn key(extractor: &dyn KeyExtractor, fields: &[(&str, &str)]) -> String {
    let key = extractor.extract(&head(fields)).expect("a key");
    key.as_str().to_owned()
}

fn kind(extractor: &dyn KeyExtractor, fields: &[(&str, &str)]) -> key::KeyErrorKind {
    let error = extractor.extract(&head(fields)).expect_err("no key");
    error.kind()
}

/// Code names the count of a layer whose key is a tuple by a tuple.
#[test]
fn a_tuple_is_the_key_of_a_tuple() {
    let fields = [("x-org", "acme, inc"), ("x-user", "alice")];
    let of_request = key(&(Header::new("x-org"), Header::new("x-user")), &fields);
    assert_eq!(Key::from(("acme, inc", "alice")).as_str(), of_request);
    assert_eq!(Key::from((7, "a")), Key::default().with("7").with("a"));
    let three = (Header::new("x-org"), Header::new("x-user"), key::Method);
    let nested = Key::from((("acme, inc", "alice"), "GET"));
    assert_eq!(nested.as_str(), key(&three, &fields));
}

#[test]
fn the_user_of_http_basic() {
    let of = |lines: &[&str]| of_lines(&key::BasicUser, "authorization", lines);
    for (field, expected) in [
        ("Basic YWRhOmd1ZXNz", Ok("ada")),
        ("basic\t YWRhOg== ", Ok("ada")),
        ("BASIC YWRhOg", Ok("ada")),
        ("Basic YWRhOjpwOnc=", Ok("ada")),
        ("Basic QWRhOng=", Ok("Ada")),
        ("Basic w6Q6eA==", Ok("\u{e4}")),
        ("", Err(Absent)),
        ("Basic", Err(Absent)),
        ("Basic ", Err(Absent)),
        ("Basic Ong=", Err(Absent)),
        ("Bearer YWRhOng=", Err(Absent)),
        ("BasicYWRhOng=", Err(Absent)),
        ("Basic YWRh", Err(Malformed)),
        ("Basic a b", Err(Malformed)),
        ("Basic =", Err(Malformed)),
        ("Basic YWRh\u{e4}Ong=", Err(Malformed)),
        (&format!("Basic {}", "YWRh".repeat(100_000)), Err(Malformed)),
    ] {
        let expected = expected.map(|name| key::BasicUser.key(name));
        let again = |key: &Key| key::BasicUser.key_of_text(key.as_str());
        assert!(expected.iter().all(|it| again(it).as_ref() == Some(it)));
        assert_eq!(of(&[field]), expected, "{field:.99}");
    }
    // Another guess is the same key, and not that of a token.
    assert_eq!(of(&["Basic YWRhOng="]), of(&["Basic YWRhOnk="]));
    assert_eq!(of(&[]), Err(Absent));
    let two = ["Basic YWRhOng=", "Basic Ym9iOng="];
    assert_eq!(of(&two), Err(Malformed));
    let either = key::BasicUser.or(PeerIp);
    let ada = [("authorization", "Basic YWRhOng=")];
    assert_eq!(key(&either, &ada), "basic-user|ada");
    assert_eq!(key(&either, &[]), PEER);
}

#[test]
fn a_bearer_token() {
    let of = |lines: &[&str]| of_lines(&Bearer, "authorization", lines);
    let token = || Ok(Bearer.key("t0ken"));
    for (field, expected) in [
        ("Bearer t0ken", token()),
        ("bearer\tt0ken", token()),
        ("BEARER \t t0ken  ", token()),
        (" Bearer t0ken", token()),
        ("Basic t0ken", Err(Absent)),
        ("Bearert0ken", Err(Absent)),
        ("", Err(Absent)),
        ("Bearer,t0ken", Err(Absent)),
        ("Bear", Err(Absent)),
        // Clients that have no token yet send the scheme alone.
        ("Bearer", Err(Absent)),
        ("bearer ", Err(Absent)),
        ("Bearer \t ", Err(Absent)),
        // Who verifies may read up to the blank.
        ("Bearer t0ken junk", Err(Malformed)),
        ("Bearer t0ken\tjunk", Err(Malformed)),
        ("Bearer t0ken\u{a0}", Err(Malformed)),
        ("Bearer \u{2003}t0ken", Err(Malformed)),
        ("Bearer t\u{e9}ken", Err(Malformed)),
    ] {
        assert_eq!(of(&[field]), expected, "{field}");
    }
    assert_ne!(Bearer.key("t0ken"), Bearer.key("T0KEN"));
    assert_eq!(Bearer.key("t0ken"), Key::default().with_secret("t0ken"));
    assert_eq!(of(&[]), Err(Absent));
    // A valid token beside junk would pass authentication, and escape the limit of its user.
    for other in ["Bearer t1ken", "Basic t0ken", "Bearer", ""] {
        for lines in [["Bearer t0ken", other], [other, "Bearer t0ken"]] {
            assert_eq!(of(&lines), Err(Malformed), "{lines:?}");
        }
    }
    assert_eq!(of(&["Bearer t0ken", " Bearer t0ken"]), token());
    assert_eq!(of(&["Bearer", "Bearer "]), Err(Absent));
}

#[test]
fn a_cookie() {
    let sid = Cookie::new("sid");
    let session = || Ok(sid.key("5e55i0n"));
    for (lines, expected) in [
        (&["sid=5e55i0n"][..], session()),
        (&["theme=dark; sid=5e55i0n;"], session()),
        (&["theme=dark;sid=5e55i0n ; other=1"], session()),
        (&["theme=dark", "sid=5e55i0n"], session()),
        (&["sid=5e55i0n; sid=5e55i0n", "sid=5e55i0n"], session()),
        (&["SID=other; sid=5e55i0n; sid2=1; sid; =sid"], session()),
        (&["sid=a=b"], Ok(sid.key("a=b"))),
        (&["theme=dark"], Err(Absent)),
        (&["sid"], Err(Absent)),
        (&["xsid=1; SID=1"], Err(Absent)),
        (&[""], Err(Absent)),
        (&[], Err(Absent)),
        // As it is left where a session has ended.
        (&["sid="], Err(Absent)),
        (&["sid= ; theme=dark"], Err(Absent)),
        (&["sid=; sid="], Err(Absent)),
        (&["sid=1; sid=2"], Err(Malformed)),
        (&["sid=1", "sid=2"], Err(Malformed)),
        (&["sid=; sid=1"], Err(Malformed)),
        (&["sid=1; sid=1; sid="], Err(Malformed)),
    ] {
        assert_eq!(of_lines(&sid, "cookie", lines), expected, "{lines:?}");
    }
    for name in ["", "a b", "a=b", "a;b", "\u{e4}"] {
        let error = Cookie::try_from(name).expect_err("no name");
        assert!(error.to_string().contains("no name of a cookie"), "{error}");
    }
}

/// What `CookieJar` of axum-extra and `Cookies` of tower-cookies give the handler as the value of
/// `sid`, or what `Cookie::value_trimmed` of the crate cookie makes of it: one value is one key. The
/// values are those of the crate cookie 0.18.2, with `Cookie::parse_encoded`.
#[test]
fn spellings_of_a_cookie() {
    let sid = Cookie::new("sid");
    let of = |lines: &[&str]| of_lines(&sid, "cookie", lines);
    let spellings = [
        "sid=a:1 b=",
        "sid=%61%3A1%20b%3D",
        "sid=%61%3a1%20b%3d",
        "sid=a%3a1 b=",
        "sid=\"a:1 b=\"",
        "sid=%22a:1 b=%22",
        "sid=%22a:1%20b%3d\"",
        "sid= \t a:1 b=\t",
        " sid\t=a:1 b=",
        "s%69d=a:1 b=",
        "%73%69%64=%61%3A%31%20%62%3D",
        "sid=\u{a0}a:1 b=\u{2003}",
        "\u{2003}sid\u{a0}=a:1 b=",
        "%20sid=2; sid%3D=2; sid%3D2; \"sid\"=2; SID=2; sid=a:1 b=; $Path=/",
        "theme=%ff; sid=a:1 b=",
    ];
    for line in spellings {
        assert_eq!(of(&[line]), Ok(sid.key("a:1 b=")), "{line}");
        assert_eq!(of(&["theme=\u{e9}", line]), Ok(sid.key("a:1 b=")), "{line}");
    }
    // As the handler has it, with and without the quotes.
    assert_eq!(sid.key("\"a:1 b=\""), sid.key("a:1 b="));

    // Whatever is no escape stands for itself, and nothing is decoded twice.
    let others = [
        ("sid=%", "%"),
        ("sid=%4", "%4"),
        ("sid=%zz", "%zz"),
        ("sid=%+4", "%+4"),
        ("sid=%4g1%41", "%4g1A"),
        ("sid=%%341", "%41"),
        ("sid=%2541", "%41"),
        ("sid=a+b", "a+b"),
        ("sid=%00", "\0"),
        ("sid=%20a", " a"),
        ("sid=%c3%a9", "\u{e9}"),
        ("sid=\u{e9}", "\u{e9}"),
        ("sid=a%3Bb", "a;b"),
        ("sid=\"a;b\"", "\"a"),
        ("sid=\"", "\""),
        ("sid=\"\"a\"\"", "\"\"a\"\""),
        ("sid==a", "=a"),
        ("sid=a,sid=b", "a,sid=b"),
    ];
    for (line, value) in others {
        assert_eq!(of(&[line]), Ok(sid.key(value)), "{line}");
    }

    for (lines, expected) in [
        (&["sid=\"\""][..], Err(Absent)),
        (&["sid=%22%22"], Err(Absent)),
        (&["sid=; sid=\"\""], Err(Absent)),
        (&["sid=1; %73id=%31"], Ok("1")),
        (&["sid=a; sid=\"a\""], Ok("a")),
        (&["sid=\"a\"; sid=%22a%22", "sid=a"], Ok("a")),
        (&["sid=a; sid=\"b\""], Err(Malformed)),
        // The jars choose one of two, and have none that is not UTF-8.
        (&["sid=%ff"], Err(Malformed)),
        (&["sid=%c3%28"], Err(Malformed)),
        (&["sid=%ff; sid=%ff"], Err(Malformed)),
        (&["sid=1; s%69d=2"], Err(Malformed)),
        (&["sid=%ff; sid=1"], Err(Malformed)),
        (&["sid=1", "s%69d=%ff"], Err(Malformed)),
    ] {
        assert_eq!(of(lines), expected.map(|it| sid.key(it)), "{lines:?}");
    }
    let no_utf_8 = of_lines(&sid, "cookie", &[b"sid=a\xff"]);
    assert_eq!(no_utf_8, Err(Malformed));
    let escaped = key(&Cookie::new("a%20b"), &[("cookie", "a%20b=1")]);
    assert_eq!(escaped, sid.key("1").as_str());
}

/// A verified session has one limit, however the client spells it.
#[tokio::test]
async fn forty_spellings_of_a_session_are_one_key() {
    let layer = RateLimitLayer::new("me", WINDOW, 3).key(Cookie::new("sid"));
    let app = app(layer);
    let session = "5e55i0n-of-a1ice-0123456789-abcdefghijkl";
    let mut allowed = 0;
    for at in 0..session.len() {
        let escape = format!("%{:02x}", session.as_bytes()[at]);
        let spelled = [&session[..at], &escape, &session[at + 1..]].concat();
        let statuses = statuses(&app, "/", &format!("cookie: sid={spelled}"), 1).await;
        allowed += u32::from(statuses == [200]);
    }
    assert_eq!(allowed, 3, "of {}", session.len());
}

/// Whoever verifies a field may read its first line, or its last one.
#[test]
fn a_field_is_one_line_without_the_blanks_around_it() {
    let own = Header::new("x-api-key");
    for value in ["s3cret", " s3cret", "s3cret \t", "\t s3cret"] {
        let key = key(&own, &[("x-api-key", value)]);
        assert_eq!(key, own.key("s3cret").as_str());
    }
    for other in ["", "junk"] {
        for lines in [["s3cret", other], [other, "s3cret"]] {
            let fields = lines.map(|line| ("x-api-key", line));
            assert_eq!(kind(&own, &fields), Malformed, "{lines:?}");
        }
    }
    let equal = ["s3cret", " s3cret", "s3cret "].map(|line| ("x-api-key", line));
    assert_eq!(key(&own, &equal), own.key("s3cret").as_str());
    // As gateways send it of somebody whom they do not know.
    for lines in [&[""][..], &[" \t "], &["", " "]] {
        let fields: Vec<_> = lines.iter().map(|line| ("x-api-key", *line)).collect();
        assert_eq!(kind(&own, &fields), Absent, "{lines:?}");
        assert_eq!(key(&own.clone().or(PeerIp), &fields), PEER, "{lines:?}");
    }
    // What is no credential may be empty: `x-tenant: ` is a value.
    assert_eq!(key(&Header::new("x-tenant"), &[("x-tenant", " ")]), "%");
    let secret = Header::new("x-tenant").secret();
    assert_eq!(kind(&secret, &[("x-tenant", " ")]), Absent);
    assert_ne!(own.key("s3 cret"), own.key("s3cret"));
}

#[test]
#[should_panic(expected = "\"s id\" is no name of a cookie")]
fn a_literal_that_is_no_name_of_a_cookie() {
    let _ = Cookie::new("s id");
}

#[test]
#[should_panic(expected = "invalid HTTP header name")]
fn a_literal_that_is_no_name_of_a_field() {
    let _ = Header::new("x tenant");
}

#[test]
fn a_name_of_a_field_is_a_text_or_a_name() {
    let name = HeaderName::from_static("x-tenant");
    let of_text = Header::new("X-Tenant".to_owned());
    for header in [Header::new("x-tenant"), of_text, Header::new(name)] {
        assert_eq!(key(&header, &[("x-tenant", "acme")]), "acme");
        assert_eq!(kind(&header, &[]), Absent);
    }
}

#[test]
fn an_extension_is_the_servers_to_insert_unless_there_is_an_alternative() {
    let without = head(&[]);
    let mut with = head(&[]);
    with.extensions.insert(User(17));
    assert_eq!(user().extract(&with).expect("a key"), user().key(&User(17)));
    let error = user().extract(&without).expect_err("no user");
    assert_eq!(error.kind(), Server);
    assert!(error.to_string().contains("no extension User"), "{error}");

    let visitor = user().or(PeerIp);
    assert_eq!(visitor.extract(&without).expect("a key").as_str(), PEER);
    let known = visitor.extract(&with).expect("a key");
    assert_eq!(known.as_str(), "extension.User|17");
    assert_eq!(known, user().marked(user().key(&User(17))));

    let of_both = user().or(Extension::new(|service: &Service| service.0));
    let error = of_both.extract(&without).expect_err("neither");
    assert_eq!(error.kind(), Absent);
    let expected = "the request has none of extension.User | extension.Service";
    assert_eq!(error.to_string(), expected);
}

/// What stood in stores before there were alternatives.
#[test]
fn a_lone_key_has_no_mark() {
    let fields = [("x-tenant", "a:b"), ("cookie", "sid=1")];
    assert_eq!(key(&Header::new("x-tenant"), &fields), "a%3Ab");
    assert_eq!(key(&Everyone, &fields), "");
    assert_eq!(key(&PeerIp, &fields), PEER);
    assert_eq!(key(&ClientIp::behind_hops(0), &fields), PEER);
    assert_eq!(key(&MatchedPath, &fields), "~");
    assert_eq!(key(&key::Method, &fields), "GET");
    let joined = (PeerIp, Header::new("x-tenant"), Cookie::new("sid"));
    let hashed = Key::default().with_secret("1");
    assert_eq!(key(&joined, &fields), format!("{PEER}:a%3Ab:{hashed}"));
}

#[test]
fn alternatives_are_tried_where_a_part_is_absent() {
    let caller = Bearer.or(Header::new("x-api-key")).or(PeerIp);
    let token = Bearer.key("t0ken");
    let of_header = format!("header.x-api-key|{token}");
    for (fields, expected) in [
        (
            &[("authorization", "Bearer t0ken"), ("x-api-key", "other")][..],
            &*format!("bearer|{token}"),
        ),
        (&[("x-api-key", "t0ken")], &of_header),
        (&[("authorization", "Basic t0ken")], PEER),
        (&[("authorization", "Bearer "), ("x-api-key", "")], PEER),
        (
            &[("authorization", "Bearer"), ("x-api-key", "t0ken")],
            &of_header,
        ),
        (&[], PEER),
    ] {
        assert_eq!(key(&caller, fields), expected);
    }

    let malformed = [("authorization", "Bearer a b"), ("x-api-key", "other")];
    assert_eq!(kind(&caller, &malformed), Malformed);
    let mistake = |_: &Parts| Err::<Key, _>(KeyError::server("nobody set this up"));
    assert_eq!(kind(&mistake.or(PeerIp), &[]), Server);
    let no_peer = Request::new(()).into_parts().0;
    let error = PeerIp.or(Everyone).extract(&no_peer).expect_err("no peer");
    assert_eq!(error.kind(), Server);

    let error = Bearer.or(Cookie::new("sid")).extract(&head(&[]));
    let error = error.expect_err("neither");
    assert_eq!(error.kind(), Absent);
    let expected = "the request has none of bearer | cookie.sid";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn marks() {
    let absent = |_: &Parts| Err::<Key, _>(KeyError::absent("never there"));
    let closure = |_: &Parts| Ok(Key::default().with("a").with("b"));
    let joined = (Header::new("x-a"), Header::new("x-b"));
    let fields = [("x-a", "1"), ("x-b", "2"), ("cookie", "s|d=3")];
    assert_eq!(key(&joined.clone().or(PeerIp), &fields), "joined|<1:2>");
    assert_eq!(key(&absent.or(joined), &fields), "joined|<1:2>");
    assert_eq!(key(&closure.or(PeerIp), &fields), "custom|<a:b>");
    assert_eq!(key(&absent.or(closure), &fields), "custom#2|<a:b>");
    assert_eq!(key(&absent.or(Everyone), &fields), "everyone");
    assert_eq!(key(&absent.or(key::Method), &fields), "method|GET");
    assert_eq!(key(&absent.or(MatchedPath), &fields), "matched-path|~");
    let sid = Cookie::new("s|d");
    let of_cookie = format!("cookie.s%7Cd|{}", sid.key("3"));
    assert_eq!(key(&sid.or(PeerIp), &fields), of_cookie);
    // Of keys that are made of an address, only the address alone has none.
    let ip: IpAddr = PEER.parse().expect("an address");
    let alone = absent.or(move |_: &Parts| Ok(Key::from(ip)));
    assert_eq!(key(&alone, &[]), PEER);
    for made in [
        Key::from(ip).with("x"),
        Key::from(ip).with_nothing(),
        Key::from(ip).with_secret("x"),
        Key::from(ip).join(&Key::from("x")),
        Key::from(ip).join(&Key::from(ip)),
        Key::from(PEER),
    ] {
        let made = absent.or(move |_: &Parts| Ok(made.clone()));
        let made = key(&made, &[]);
        assert!(made.starts_with("custom#2|"), "{made}");
    }
    let mut head = head(&[]);
    head.extensions.insert(PEER.to_owned());
    let user = Extension::<String>::new(Clone::clone);
    let of_user = user.clone().or(PeerIp).extract(&head).expect("a key");
    assert_eq!(of_user, user.marked(user.key(&PEER.to_owned())));
    assert_ne!(of_user, PeerIp.key(ip));
    let either = Header::new("x-c").or(Header::new("x-a"));
    let of_both = format!("header.x-a|1:{PEER}");
    assert_eq!(key(&(either, PeerIp), &fields), of_both);
}

/// What its parts say, of a key by an extractor.
fn parts(extractor: &dyn KeyExtractor, fields: &[(&str, &str)]) -> Vec<Option<String>> {
    let key = extractor.extract(&head(fields)).expect("a key");
    key.parts().collect()
}

#[test]
fn parts_as_text() {
    let some = |text: &str| Some(text.to_owned());
    let of = |key: Key| key.parts().collect::<Vec<_>>();
    assert_eq!(of(Key::default()), []);
    assert_eq!(of(Key::from("")), [some("")]);
    let empty = Key::default().with("").with("a").with("");
    assert_eq!(of(empty), ["", "a", ""].map(some));
    assert_eq!(of(Key::from(17_u64)), [some("17")]);
    let address: IpAddr = "2001:db8::7".parse().expect("valid");
    assert_eq!(of(Key::from(address)), [some("2001:db8::/64")]);
    // A hash says nothing, nor does what is no text.
    let hashed = Key::from("a").with_secret("t0ken").with("x".repeat(65));
    assert_eq!(of(hashed), [some("a"), None, None]);
    assert_eq!(of(Key::default().with([0xff]).with("ä")), [None, some("ä")]);

    let user = || Header::new("x-user");
    let tenant = Header::new("x-tenant");
    let fields = [("x-user", "Ada|<L>: #~%41 "), ("x-tenant", "acme")];
    let ada = || some("Ada|<L>: #~%41");
    assert_eq!(parts(&user(), &fields), [ada()]);
    assert_eq!(parts(&Bearer.or(user()), &fields), [ada()]);
    let both = (tenant, user());
    assert_eq!(parts(&both, &fields), [some("acme"), ada()]);
    assert_eq!(parts(&Bearer.or(both), &fields), [some("acme"), ada()]);
    let either = (Bearer.or(user()), PeerIp);
    assert_eq!(parts(&either, &fields), [ada(), some(PEER)]);
    let token = [("authorization", "Bearer t0ken")];
    assert_eq!(parts(&Bearer.or(user()), &token), [None]);
    let absent = |_: &Parts| Err::<Key, _>(KeyError::absent("never there"));
    assert_eq!(parts(&absent.or(MatchedPath), &[]), [None]);
}

/// Wherever they are kept, and however they are put together.
#[test]
fn alternatives_of_alternatives_are_one_list() {
    let stored: Arc<dyn KeyExtractor> = Arc::new(Bearer.or(Header::new("x-a")));
    let closure = |_: &Parts| Ok(Key::from("a"));
    let absent = |_: &Parts| Err::<Key, _>(KeyError::absent("never there"));
    let fields = [("x-a", "1")];
    assert_eq!(key(&stored.clone().or(PeerIp), &fields), "header.x-a|1");
    assert_eq!(key(&Cookie::new("sid").or(stored), &fields), "header.x-a|1");
    assert_eq!(key(&absent.or(absent.or(closure)), &[]), "custom#3|a");
    assert_eq!(key(&absent.or(absent).or(closure), &[]), "custom#3|a");
}

/// A joined key is there if all its parts are. One that is malformed is never passed over.
#[test]
fn a_joined_key_as_an_alternative() {
    let joined = || (Header::new("x-a"), Bearer);
    let list = Joined::new([
        Arc::new(Header::new("x-a")) as Arc<dyn KeyExtractor>,
        Arc::new(Bearer),
    ]);
    for extractor in [joined().or(PeerIp), list.or(PeerIp)] {
        assert_eq!(key(&extractor, &[("x-a", "1")]), PEER);
        assert_eq!(key(&extractor, &[("authorization", "Bearer 1")]), PEER);
        let malformed = kind(&extractor, &[("authorization", "Bearer a b")]);
        assert_eq!(malformed, Malformed);
    }
    assert_eq!(kind(&joined(), &[]), Absent);
}

#[test]
fn the_whole_address_of_a_client() {
    let client = ClientIp::behind_hops(1);
    let fields = [("x-forwarded-for", "1.1.1.1, 2001:db8::7")];
    let address = client.address(&head(&fields)).expect("an address");
    assert_eq!(address.to_string(), "2001:db8::7");
    let peer = client.address(&head(&[])).expect("the peer");
    assert_eq!(peer.to_string(), PEER);
    let nobody = client.address(&Request::new(()).into_parts().0);
    assert_eq!(nobody.expect_err("no peer").kind(), Server);
}

#[test]
fn numbers_and_texts_are_keys() {
    assert_eq!(Key::from(17_u8).as_str(), "17");
    assert_eq!(Key::from(-17_i64).as_str(), "-17");
    assert_eq!(Key::from(u128::MAX), Key::from(u128::MAX.to_string()));
    assert_eq!(Key::from("a:b".to_owned()), Key::from("a:b"));
}

/// An extractor, as a test makes it and as it tells subjects apart itself.
#[derive(Debug, Clone)]
enum Kind {
    Field(&'static str),
    Hashed(&'static str),
    Cookie(&'static str),
    Bearer,
    Method,
    User,
    Everyone,
    Peer,
    /// A closure over a field: a key of one part for each word in it.
    Words(&'static str),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// Whom a request is counted with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Address(IpAddr),
    Value(Vec<u8>),
    Words(Vec<String>),
    Everyone,
    All(Vec<Self>),
    /// The one of the alternatives with this number.
    Any(usize, Box<Self>),
}

impl Kind {
    fn extractor(&self) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Field(name) => Arc::new(Header::new(*name)),
            Self::Hashed(name) => Arc::new(Header::new(*name).secret()),
            Self::Cookie(name) => Arc::new(Cookie::new(name)),
            Self::Bearer => Arc::new(Bearer),
            Self::Method => Arc::new(key::Method),
            Self::User => Arc::new(user()),
            Self::Everyone => Arc::new(Everyone),
            Self::Peer => Arc::new(PeerIp),
            Self::Words(name) => {
                let name = *name;
                Arc::new(move |head: &Parts| {
                    let words = words(head, name).ok_or_else(|| KeyError::absent("no words"))?;
                    Ok(words.iter().fold(Key::default(), Key::with))
                })
            }
            Self::All(kinds) => Arc::new(Joined::new(kinds.iter().map(Self::extractor))),
            Self::Any(kinds) => {
                let mut extractors = kinds.iter().map(Self::extractor);
                let first = extractors.next().expect("not empty");
                extractors.fold(first, |all, next| Arc::new(all.or(next)))
            }
        }
    }

    /// `None` if a part is absent. No test sends what is malformed.
    fn subject(&self, head: &Parts) -> Option<Subject> {
        let field = |name: &str| {
            let value = head.headers.get(name)?;
            Some(Subject::Value(value.as_bytes().to_vec()))
        };
        match self {
            Self::Field(name) | Self::Hashed(name) => field(name),
            Self::Cookie(_) => field("cookie"),
            Self::Bearer => field("authorization"),
            Self::Method => Some(Subject::Value(head.method.as_str().into())),
            Self::User => {
                let User(id) = head.extensions.get()?;
                Some(Subject::Value(id.to_string().into()))
            }
            Self::Everyone => Some(Subject::Everyone),
            Self::Peer => {
                let PeerAddr(peer) = head.extensions.get()?;
                Some(Subject::Address(peer.ip()))
            }
            Self::Words(name) => words(head, name).map(Subject::Words),
            Self::All(kinds) => {
                let subjects = kinds.iter().map(|kind| kind.subject(head));
                subjects.collect::<Option<_>>().map(Subject::All)
            }
            Self::Any(kinds) => {
                let mut found = kinds.iter().map(|kind| kind.subject(head)).enumerate();
                let (number, subject) = found.find_map(|(number, it)| Some((number, it?)))?;
                Some(match subject {
                    Subject::Address(_) => subject,
                    subject => Subject::Any(number, Box::new(subject)),
                })
            }
        }
    }
}

fn words(head: &Parts, name: &str) -> Option<Vec<String>> {
    let field = head.headers.get(name)?.to_str().expect("text");
    Some(field.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Keys of one part each: joined, they are a key of as many parts as there are.
fn single_kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        prop::sample::select(vec!["x-a", "x-b"]).prop_map(Kind::Field),
        prop::sample::select(vec!["x-a", "x-b"]).prop_map(Kind::Hashed),
        Just(Kind::Cookie("s|d")),
        Just(Kind::Bearer),
        Just(Kind::Method),
        Just(Kind::User),
        Just(Kind::Everyone),
        Just(Kind::Peer),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    single_kinds().prop_recursive(3, 12, 3, |inner| {
        let words = prop::sample::select(vec!["x-a", "x-b"]).prop_map(Kind::Words);
        let single = prop_oneof![3 => inner.clone(), 1 => words];
        prop_oneof![
            prop::collection::vec(single, 2..4).prop_map(Kind::Any),
            prop::collection::vec(inner, 1..4).prop_map(Kind::All),
        ]
    })
}

/// What looks like an address, a mark, a hash, a separator or the end of a part.
fn values() -> impl Strategy<Value = String> {
    let short = [
        "1", "17", "GET", "a", "a b", "a:b", "<a:b>", "a>", "<a", "|", "a|b", "#", "~", "%7C", "%",
    ];
    let long = [
        PEER,
        "198.51.100.7",
        "everyone",
        "header.x-a|a",
        "header.x-a",
        "bearer|a",
        "joined|<a:b>",
        "custom|a",
        "#ca978112ca1bbdcafac231b39a23dc4d",
    ];
    let nasty = [&short[..], &long].concat();
    prop_oneof![
        4 => prop::sample::select(nasty).prop_map(str::to_owned),
        1 => "[ab:|<>%#~]{1,3}",
        1 => "[ab]{65,66}",
    ]
}

fn requests() -> impl Strategy<Value = Parts> {
    let field = || prop::option::of(values());
    let peer = prop::sample::select(vec![PEER, "198.51.100.7", "2001:db8::"]);
    let method = prop::sample::select(vec![Method::GET, Method::POST]);
    let user = prop::option::of(prop::sample::select(vec![1_u64, 17]));
    let fields = (field(), field(), field(), field());
    (fields, peer, method, user).prop_map(|((a, b, cookie, token), peer, method, user)| {
        let mut head = from(peer, "/", &[]).into_parts().0;
        head.method = method;
        let cookie = cookie.map(|value| format!("s|d={}", value.replace('%', "%25")));
        let token = token.map(|value| format!("Bearer {}", value.replace(' ', "_")));
        let fields = [
            ("x-a", a),
            ("x-b", b),
            ("cookie", cookie),
            ("authorization", token),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                let value = HeaderValue::from_str(&value).expect("visible");
                head.headers.insert(name, value);
            }
        }
        if let Some(id) = user {
            head.extensions.insert(User(id));
        }
        head
    })
}

proptest! {
    #![proptest_config(kit::random::config(500))]

    /// Alone, joined and as an alternative, whatever stands in it.
    #[test]
    fn parts_are_what_was_put_in(texts in prop::collection::vec("\\PC{0,16}|[:|<>#~% ]{0,4}", 1..4)) {
        let key = texts.iter().fold(Key::default(), |key, text| key.with(text));
        let expected: Vec<_> = texts.iter().cloned().map(Some).collect();
        prop_assert_eq!(&key.parts().collect::<Vec<_>>(), &expected);
        let alternative = Bearer.or(move |_: &Parts| Ok(key.clone()));
        prop_assert_eq!(parts(&alternative, &[]), expected);
    }

    /// Whatever stands in a request: two have the same key exactly if they are the same subject.
    #[test]
    fn no_two_subjects_share_a_key(kind in kinds(), heads in prop::collection::vec(requests(), 2..12)) {
        let extractor = kind.extractor();
        let keys: Vec<_> = heads.iter().map(|head| {
            let subject = kind.subject(head);
            let key = extractor.find(head).expect("nothing is malformed");
            (subject, key)
        }).collect();
        for (at, (subject, key)) in keys.iter().enumerate() {
            prop_assert_eq!(subject.is_some(), key.is_some(), "{:?}", subject);
            for (other, other_key) in &keys[at + 1..] {
                let is_same = key == other_key;
                prop_assert_eq!(is_same, subject == other, "{:?}: {:?}, {:?}", key, subject, other);
            }
            if let Some(key) = key {
                let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
                prop_assert!(key.as_str().bytes().all(is_safe), "{:?}", key);
            }
        }
    }
}

/// Under [`Limits::key`] a rule says by its own key that it is for everybody together.
#[tokio::test]
async fn a_rule_stays_for_everyone_under_a_default_key() {
    let file = "[rules.all]\nmax-count = 2\nwindow = \"1h\"\nkey = \"everyone\"\n\
        [rules.each]\nmax-count = 2\nwindow = \"1h\"\n";
    let of_code = Limits::new([per_hour("all", 2).with_key(Everyone), per_hour("each", 2)]);
    for limits in [of_toml(file), of_code] {
        let limits = limits.key(Header::new("x-user"));
        for (path, of_bob) in [("all", [429, 429]), ("each", [200, 200])] {
            let app = app(limits.layer(path));
            let of_alice = statuses(&app, "/", "x-user: alice", 3).await;
            assert_eq!(of_alice, [200, 200, 429], "{path}");
            let found = statuses(&app, "/", "x-user: bob", 2).await;
            assert_eq!(found, of_bob, "{path}");
        }
        assert_eq!(limits.warnings(), []);
    }
}
