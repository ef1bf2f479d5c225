//! In a cluster all keys that a take and its refund touch lie in one slot, whatever the names of the
//! service, the rule, the subject and the key contain.

use super::*;

/// What a cluster hashes of a key.
fn tag(name: &str) -> &str {
    let Some((_, behind)) = name.split_once('{') else {
        return name;
    };
    match behind.split_once('}') {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    }
}

#[tokio::test]
async fn all_keys_of_a_take_share_a_slot() {
    let (server, plain) = near().await;
    let names = [
        "a", "}", "{", "{}", "}{", "a}b", "{a}b", "", "~", ":", "%7B%7D",
    ];
    for prefix in ["CurrentLimiter:", "", "{shop}:", "}:", "{:", "a{b"] {
        let store = plain.clone().prefix(prefix);
        for algorithm in Algorithm::ALL {
            for path in names.iter().filter(|it| !it.is_empty()) {
                let subjects = names.iter().filter(|it| !it.is_empty()).take(8).enumerate();
                let subjects = subjects.map(|(at, name)| {
                    let subject = Subject::new(name, Everyone).limit(quota(10, 60_000));
                    match at {
                        2 => subject.limit(costing(10, 1)),
                        _ => subject,
                    }
                });
                let rule = joint(algorithm, path, subjects);
                for key in ["k", "}", "{}", ""] {
                    run(&server, "FLUSHDB");
                    let keys = rule.subjects().iter().map(|it| (it.name(), Key::from(key)));
                    let take = Take::of_subjects(Arc::clone(&rule), keys).expect("subjects");
                    let take = take.with_cost(3);
                    let receipt = receipt_of(&store, &take).await;
                    let some = take.clone().with_cost(2);
                    refund(&store, &some, &receipt).await;
                    let keys = server.names();
                    let tags: Vec<_> = keys.iter().map(|name| tag(name)).collect();
                    let are_alike = tags.iter().all(|it| *it == tags[0]);
                    assert!(are_alike, "{prefix}, {path}, {key}: {keys:?}");
                }
            }
        }
    }
}
