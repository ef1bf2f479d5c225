//! The names of counts and holds.

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
            let store = store_on(&server).await.prefix(prefix);
            let rule = per_minute(path, 5).with_outgoing().expect("one subject");
            let limits = Limits::new([rule]).store(store);
            for key in ["us", "{us}", "u{s", "}", "~until", ""] {
                limits.check(path, key).await.expect("room");
                limits.hold(path, key, HOUR).await.expect("held");
                let again = limits.check(path, key).await;
                assert!(again.is_err(), "{prefix} {path} {key}");
            }
            let names = keys(&server, "*");
            assert_eq!(names.len(), 12, "{prefix} {path}: no two keys are one");
            for count in &names {
                let of_hold = [format!("{count}~until"), format!("{{{count}}}~until")];
                if let Some(hold) = names.iter().find(|it| of_hold.contains(it)) {
                    assert_eq!(tag(hold), tag(count), "{prefix} {path} {hold}: two slots");
                }
            }
        }
    }
}

/// What Redis computes a key's slot of.
fn tag(name: &str) -> &str {
    let inside = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match inside {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    }
}
