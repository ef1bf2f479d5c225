//! Counts of different rules, subjects, costs and keys never share a name, whatever these contain.

use super::*;

const PATHS: [&str; 10] = [
    "a", "a:b", "{a}", "a}", "a}:b", "a~1", "~", "a b", "ü:b", "{a}:b",
];
const SUBJECTS: [&str; 12] = [
    "b", "a:b", "{b}", "b}", "b~1", "b~1:k", "~1", "~", " ", "ü", ":", "b:k",
];

fn keys() -> Vec<Key> {
    let long = "k".repeat(20_000);
    let texts = [
        "", "k", ":k", "k:", "~1", "~1:k", "{k}", "}", "1:k", " ", "ключ", "\0", "\n", "b:k", "#",
        "%3A", "k%3Ak", &long,
    ];
    let mut keys = texts.map(Key::from).to_vec();
    let none = Key::default();
    keys.extend([none.clone().with("k").with("k"), none.clone().with("k:k")]);
    keys.extend([none.clone().with("").with("k"), none]);
    keys
}

/// One rule for each path, algorithm and pair of subjects; the second has quotas of three counts.
fn rules() -> Vec<Arc<Rule>> {
    let mut rules = Vec::new();
    for (at, path) in PATHS.iter().enumerate() {
        for pair in SUBJECTS.chunks(2) {
            let algorithm = Algorithm::ALL[at % 4];
            let [plain, costly] = [pair[0], pair[1]].map(|name| subject(name, 10));
            let costly = costly.limit(costing(10, 1)).limit(costing(11, 2));
            rules.push(joint(algorithm, path, [plain, costly]));
        }
    }
    rules
}

/// What the name stands for: path, algorithm, the subject with its cost, and the key.
type What = (String, usize, String, usize);

#[tokio::test]
async fn no_two_counts_share_a_name() {
    let mut known: HashMap<String, What> = HashMap::new();
    let (mut keys_seen, keys) = (HashMap::new(), keys());
    for (number, key) in keys.iter().enumerate() {
        // `Key::default()` and the empty text may be one key.
        keys_seen.entry(key.as_str().to_owned()).or_insert(number);
    }
    for rule in rules() {
        for key in &keys {
            let names: Vec<_> = rule.subjects().iter().map(|it| it.name()).collect();
            let all = names.iter().map(|name| (*name, key.clone()));
            let take = Take::of_subjects(Arc::clone(&rule), all).expect("subjects");
            assert_eq!(take.counts().len(), 4);
            let counts = [names[0], names[1], names[1], names[1]];
            for (at, count) in take.counts().iter().enumerate() {
                let what = (
                    rule.path().to_owned(),
                    rule.algorithm().algorithm() as usize,
                    format!("{at}/{}", counts[at]),
                    keys_seen[key.as_str()],
                );
                let name = count.name("shop:");
                if let Some(other) = known.insert(name.clone(), what.clone()) {
                    assert_eq!(other, what, "{name}");
                }
            }
        }
    }
    let rule = Rule::new("a", [quota(10, 60_000)]).expect("valid");
    let rule = Arc::new(rule);
    for key in ["b:k", "}:b:k", "b~1:k", "{b", "", ":b"] {
        let name = Take::new(Arc::clone(&rule), Key::from(key)).name("shop:");
        assert!(!known.contains_key(&name), "{name}");
    }
}
