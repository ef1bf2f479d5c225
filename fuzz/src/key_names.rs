//! The names of keys in a store: two that mean something else are never the same, and none can break out of its place.
//!
//! The input is two takes: each a path and the parts of a key.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tidegate::{Key, ManualClock, Quota, RedisStore, Rule, Store, Take, Token};

use super::input::Input;
use super::replies::in_runtime;

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

    let asked = Asked::default();
    let store = RedisStore::new(asked.clone());
    let store = store.prefix(prefix).clock(ManualClock::default());
    let names = [(&one, &key), (&other, &other_key)].map(|(who, key)| {
        let name = asked.name(&store, &who.path, key);
        is_in_its_place(&name, prefix, who);
        name
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

/// A connection that notes the keys of a call, and answers nonsense.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    /// What a take and a refund call their keys.
    fn name(&self, store: &RedisStore<Self>, path: &str, key: &Key) -> Names {
        let rule = Rule::new(path, [Quota::per_second(1)]).expect("a valid rule");
        let take = Take::new(Arc::new(rule), key.clone());
        in_runtime(|| {
            let takes = [take.clone()];
            let answer = store.take(&takes).now_or_never();
            assert!(answer.expect("it answers at once").is_err());
            let token = Token::new(1, 1, 1);
            let answer = store.refund(&take, &token).now_or_never();
            assert!(answer.expect("it answers at once").is_err());
        });
        let keys = std::mem::take(&mut *self.0.lock().expect("nobody panics here"));
        let [of_take, count, records] = &*keys else {
            panic!("{keys:?}")
        };
        assert_eq!(of_take, count);
        Names {
            count: count.clone(),
            records: records.clone(),
        }
    }
}

impl ConnectionLike for Asked {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let text = |arg: Arg<&[u8]>| match arg {
            Arg::Simple(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
            _ => None,
        };
        let mut arguments = command.args_iter().skip(2).map(text);
        let number = arguments
            .next()
            .flatten()
            .and_then(|number| number.parse().ok());
        let keys = arguments.take(number.expect("the number of keys"));
        let keys = keys.map(|key| key.expect("names are text"));
        self.0.lock().expect("nobody panics here").extend(keys);
        Box::pin(async { Ok(Value::Nil) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("takes are single commands")
    }

    fn get_db(&self) -> i64 {
        0
    }
}
