//! Keys that clients try to forge: fields that are malformed, sent twice, in odd cases and bytes, and
//! values that look like another subject's key.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use tidegate::key::Alternatives;

use super::*;

fn head(fields: &[(&'static str, &[u8])]) -> Parts {
    let mut head = request(&[]).into_parts().0;
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).expect("a value that hyper lets through");
        head.headers.append(*name, value);
    }
    head
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
