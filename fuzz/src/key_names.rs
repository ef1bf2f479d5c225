//! The names of keys in a store: two that mean something else are never the same, and none can
//! break out of its place.
//!
//! The input is two takes: each a path and the parts of a key.

use std::sync::{Arc, Mutex};

use redis::Value;
use tidegate::decision::Receipt;
use tidegate::test_util::ManualClock;
use tidegate::{Key, Quota, RedisStore, Rule, Store, Take};

use super::input::Input;
use super::server::{Reply, Server, allowed, encoded, is_refund, keys, numbered};

/// Longer parts are hashed.
const LONGEST_PLAIN_PART: usize = 64;

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Plain(Vec<u8>),
    Hashed(Vec<u8>),
    Nothing,
}

#[derive(Debug, PartialEq, Eq)]
struct Who {
    path: String,
    parts: Vec<Part>,
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let prefix = *input.pick(&["CurrentLimiter:", "", "{eu}:", "a:b:", "limits/"]);
    let (one, key) = who(&mut input);
    let (other, other_key) = who(&mut input);
    assert_eq!(
        key == other_key,
        one.parts == other.parts,
        "{one:?} {other:?}"
    );

    let names = Server::with(|server| {
        let store = RedisStore::of(&server.redis).prefix(prefix);
        let store = store.clock(ManualClock::default());
        [(&one, &key), (&other, &other_key)].map(|(who, key)| {
            let name = names(server, &store, &who.path, key);
            is_in_its_place(&name, prefix, who);
            name
        })
    });
    let is_same = names[0].count == names[1].count;
    assert_eq!(is_same, one == other, "{one:?} {other:?} {names:?}");
    for (name, other) in [(&names[0], &names[1]), (&names[1], &names[0])] {
        assert_ne!(name.count, other.records);
        assert_eq!(
            slot(&name.count),
            slot(&name.records),
            "a refund would be CROSSSLOT"
        );
    }
}

fn who(input: &mut Input<'_>) -> (Who, Key) {
    let length = usize::from(input.byte() % 80);
    let path = String::from_utf8_lossy(input.bytes(length)).into_owned();
    // No rule has an empty path.
    let path = if path.is_empty() {
        "p".to_owned()
    } else {
        path
    };
    let (mut parts, mut key) = (Vec::new(), Key::default());
    for _ in 0..input.byte() % 5 {
        let kind = input.byte();
        let length = usize::from(input.byte() % 80);
        let bytes = input.bytes(length);
        let (part, with) = match kind % 8 {
            0 => (Part::Nothing, Key::default().with_nothing()),
            1 => (
                Part::Hashed(bytes.to_vec()),
                Key::default().with_secret(bytes),
            ),
            _ if bytes.len() > LONGEST_PLAIN_PART => {
                (Part::Hashed(bytes.to_vec()), Key::default().with(bytes))
            }
            _ => (Part::Plain(bytes.to_vec()), Key::default().with(bytes)),
        };
        parts.push(part);
        key = key.join(&with);
    }
    (Who { path, parts }, key)
}

/// The prefix, and then nothing that could end a word, choose a slot or make a name long.
fn is_in_its_place(name: &Names, prefix: &str, who: &Who) {
    let rest = name
        .count
        .strip_prefix(prefix)
        .expect("the prefix comes first");
    let printable = |byte: u8| matches!(byte, b'!'..=b'~') && !b"{}\"\\^`|<>[]".contains(&byte);
    assert!(rest.bytes().all(printable), "{rest}");
    assert_eq!(rest.matches(':').count(), who.parts.len(), "{rest}");
    let longest = 3 * who.path.len() + who.parts.len() * (1 + 3 * LONGEST_PLAIN_PART);
    assert!(rest.len() <= longest, "{} bytes", rest.len());
    for (part, text) in who.parts.iter().zip(rest.split(':').skip(1)) {
        match part {
            Part::Nothing => assert_eq!(text, "~"),
            Part::Hashed(_) => assert!(text.len() == 33 && text.starts_with('#'), "{text}"),
            Part::Plain(bytes) if bytes.is_empty() => assert_eq!(text, "%"),
            Part::Plain(bytes) => assert_eq!(decoded(text), *bytes),
        }
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (hex, rest) = piece.split_at(2);
        bytes.push(u8::from_str_radix(hex, 16).expect("hexadecimal"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

/// What chooses the slot of a cluster: what stands in the first braces, if there is anything.
fn slot(name: &str) -> &str {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    }
}

#[derive(Debug, Clone, Default)]
struct Names {
    count: String,
    records: String,
}

/// What a take and a refund call their keys.
fn names(server: &Server, store: &RedisStore, path: &str, key: &Key) -> Names {
    let rule = Rule::new(path, [Quota::per_second(1)]).expect("a valid rule");
    let take = Take::new(Arc::new(rule), key.clone());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    server.answer(move |words| {
        let names = keys(words)
            .iter()
            .map(|name| String::from_utf8(name.clone()));
        let names = names.map(|name| name.expect("names are text"));
        noted.lock().expect("no panic here").extend(names);
        Reply::Bytes(match is_refund(words) {
            true => numbered(words, b"*1\r\n:0\r\n"),
            false => encoded(&Value::BulkString(allowed(words))),
        })
    });
    server.block_on(async {
        let decided = store.take(&take).await;
        assert!(decided.expect("a decision").is_allowed());
        let refunded = store.refund(&take, &Receipt::new(1, 1, 1)).await;
        assert_eq!(refunded.expect("an answer"), 0);
    });
    let asked = std::mem::take(&mut *asked.lock().expect("no panic here"));
    let [of_take, count, records] = &*asked else {
        panic!("{asked:?}")
    };
    assert_eq!(of_take, count);
    Names {
        count: count.clone(),
        records: records.clone(),
    }
}
