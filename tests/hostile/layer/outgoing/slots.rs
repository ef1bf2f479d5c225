//! The names of counts and holds.

use kit::Redis;
use tidegate::{RedisStore, Rules};

use kit::{HOUR, PATIENT, run};

use super::servers::names;
use super::*;

/// A count and its hold are in one slot, and no two keys have one name. (A prefix with braces that
/// do not match, or with an empty pair, is not for clusters.)
#[tokio::test]
async fn names_share_a_slot() {
    let server = Redis::start();
    let prefixes = [
        "shop", "{shop}", "sh{op", "a{b}c{d}", "{a}{}", "~until", ":",
    ];
    let paths = ["shop", "{shop}", "s}hop", "{}", "a{b}c{d}", "~until", ":"];
    for prefix in prefixes {
        for path in paths {
            run(&server, "FLUSHALL");
            let store = RedisStore::connect(&*server.url).await.expect("a server");
            let store = store.prefix(prefix).timeout(PATIENT);
            let rule = per_minute(path, 5).with_outgoing().expect("one subject");
            let limits = Limits::new(Rules::from([rule])).store(store);
            for key in ["us", "{us}", "u{s", "}", "~until", ""] {
                limits.check(path, key).await.expect("room");
                limits.hold(path, key, HOUR).await.expect("held");
                assert!(
                    limits.check(path, key).await.is_err(),
                    "{prefix} {path} {key}"
                );
            }
            let names = names(&server);
            assert_eq!(names.len(), 12, "{prefix} {path}: no two keys are one");
            for count in &names {
                let plain = [&count[..], b"~until"].concat();
                let tagged = [b"{", &count[..], b"}~until"].concat();
                let hold = names.iter().find(|it| **it == plain || **it == tagged);
                if let Some(hold) = hold {
                    let shown = String::from_utf8_lossy(hold);
                    assert_eq!(tag(hold), tag(count), "{prefix} {path} {shown}: two slots");
                }
            }
        }
    }
}

/// What Redis computes a key's slot of.
fn tag(name: &[u8]) -> &[u8] {
    let Some(from) = name.iter().position(|it| *it == b'{') else {
        return name;
    };
    let rest = &name[from + 1..];
    match rest.iter().position(|it| *it == b'}') {
        None | Some(0) => name,
        Some(to) => &rest[..to],
    }
}
