//! Names of keys, whatever bytes they are made of: no two are one.

use crate::prelude::*;

/// Paths that look like others' names.
fn paths() -> Vec<String> {
    let parts = [
        "a", ":", "%", "%3A", "~", "~gcra", "~window", "~fixed", "{", "}", " ", "\0", "é",
    ];
    let long = "a".repeat(300);
    let mut paths: Vec<String> = parts.map(str::to_owned).into();
    for one in parts {
        for other in parts {
            paths.push(format!("{one}{other}"));
            paths.push(format!("a{one}{other}a"));
        }
    }
    paths.extend([long.clone(), long + "~gcra"]);
    paths.sort();
    paths.dedup();
    paths
}

/// Different paths and algorithms have different ids, printable and without what names are made of.
#[test]
fn ids_differ() {
    let mut seen = HashMap::new();
    for path in paths() {
        for algorithm in Algorithm::ALL {
            let rule = by(algorithm, &path, 1, HOUR);
            let id = rule.id().to_owned();
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":{}".contains(&byte);
            assert!(id.bytes().all(is_plain), "{path:?}: {id:?}");
            let before = seen.insert(id.clone(), (path.clone(), algorithm));
            assert_eq!(before, None, "{id} of {path:?} {algorithm:?}");
        }
    }
}

/// Keys of random parts, and those that look like what is made of other parts.
fn keys() -> HashMap<Vec<Part>, Key> {
    let long = "x".repeat(65);
    let hashed = Key::from(long.as_str());
    let secret = Key::default().with_secret("a");
    let nothing = Key::default().with_nothing();
    let mut texts: Vec<Vec<u8>> = [
        "", "a", "b", "ab", ":", "a:b", "%", "%3A", "%3a", "%25", "~", "~gcra", "{", "}", " ", "+",
        "\0", "\n", "é", "-", "#", "*", "refunds", "k", ":k", "k:", "~1", "~1:k", "{k}", "1:k",
        "ключ", "b:k", "k%3Ak", "}:b:k", "b~1:k", "{b", ":b",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    texts.extend([&hashed, &secret, &nothing].map(|key| key.as_str().as_bytes().to_vec()));
    texts.extend([vec![0xFF], vec![0xC3], long.into_bytes()]);
    texts.extend([b'x', b'%'].map(|byte| vec![byte; 64]));
    let mut parts: Vec<_> = texts.iter().cloned().map(Part::Text).collect();
    parts.extend(texts.into_iter().map(Part::Secret));
    parts.push(Part::Nothing);
    let mut random = Random::new(3);
    let mut keys = HashMap::from([(Vec::new(), Key::default())]);
    let mut add = |parts: Vec<Part>| {
        let mut key = Key::default();
        for part in &parts {
            key = match part {
                Part::Text(text) => key.with(text),
                Part::Secret(text) => key.with_secret(text),
                Part::Nothing => key.with_nothing(),
            };
        }
        keys.insert(parts, key);
    };
    for part in &parts {
        add(vec![part.clone()]);
        for other in &parts {
            add(vec![part.clone(), other.clone()]);
        }
    }
    for _ in 0..3_000 {
        let number = 3 + random.below(3);
        let part = |random: &mut Random| parts[random.below(parts.len() as u64) as usize].clone();
        add((0..number).map(|_| part(&mut random)).collect());
    }
    keys
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(Vec<u8>),
    Secret(Vec<u8>),
    Nothing,
}

/// Rules of one subject, and of two, the second of which has quotas of three counts.
fn rules() -> Vec<Arc<Rule>> {
    let paths = ["a", "a:b", "a%3Ab", "a~gcra", "b", "refunds", "a:"];
    let algorithms = [Algorithm::SlidingLog, Algorithm::Gcra];
    let plain = paths.map(|path| algorithms.map(|algorithm| by(algorithm, path, 1, HOUR)));
    let mut rules = plain.concat();
    let paths = [
        "a", "a:b", "{a}", "a}", "a}:b", "a~1", "~", "a b", "ü:b", "{a}:b",
    ];
    let subjects = [
        "b", "a:b", "{b}", "b}", "b~1", "b~1:k", "~1", "~", " ", "ü", ":", "b:k",
    ];
    for (at, path) in paths.into_iter().enumerate() {
        for pair in subjects.chunks(2) {
            let subject = |name| Subject::new(name, Everyone).limit(kit::quota(10, HOUR));
            let costing = |cost| Policy::from(kit::quota(10 + cost, HOUR)).with_cost(cost);
            let costly = subject(pair[1]).limit(costing(1)).limit(costing(2));
            let rule = Rule::joint(path, [subject(pair[0]), costly]).expect("a valid rule");
            rules.push(Arc::new(rule.with_algorithm(Algorithm::ALL[at % 4])));
        }
    }
    rules
}

/// No two different rules, subjects, costs and keys share a name, whatever they contain.
#[test]
fn names_differ() {
    let keys = keys();
    let mut seen = HashMap::new();
    for rule in rules() {
        let is_joint = !rule.subjects().is_empty();
        // Of several subjects fewer keys do.
        let last = Part::Text(b"k".to_vec());
        let is_left_out =
            |parts: &[Part]| is_joint && parts.len() > 1 && parts.last() != Some(&last);
        for (parts, key) in keys.iter().filter(|(parts, _)| !is_left_out(parts)) {
            let of_each = rule.subjects().iter().map(|it| (it.name(), key.clone()));
            let take = match is_joint {
                true => Take::of_subjects(Arc::clone(&rule), of_each).expect("its subjects"),
                false => Take::new(Arc::clone(&rule), key.clone()),
            };
            assert_eq!(take.counts().len(), if is_joint { 4 } else { 1 });
            for (at, count) in take.counts().iter().enumerate() {
                let name = count.name("p:");
                let is_plain = name
                    .bytes()
                    .all(|it| it.is_ascii_graphic() && !b"{}".contains(&it));
                assert!(is_joint || is_plain, "{name:?}");
                let subject = rule.subjects().get(at.min(1)).map_or("", Subject::name);
                let what = (format!("{} {at} {subject}", rule.id()), parts);
                let before = seen.insert(name.clone(), what.clone());
                // A long part and the same as a secret are both kept as the same hash.
                let is_the_same = before
                    .as_ref()
                    .is_none_or(|(id, before)| *id == what.0 && hashed(before) == hashed(parts));
                assert!(is_the_same, "{name}: {before:?} and {what:?}");
            }
        }
    }
}

/// The parts, with long ones as the secrets that they are stored as.
fn hashed(parts: &[Part]) -> Vec<Part> {
    let hashed = parts.iter().map(|part| match part {
        Part::Text(text) if text.len() > 64 => Part::Secret(text.clone()),
        part => part.clone(),
    });
    hashed.collect()
}

/// A rule's prefix stands in front of its names, and in the place of the store's.
#[test]
fn prefixes() {
    let rule = kit::per_hour("p", 1);
    let key = Key::from("k");
    let name = |rule: &Rule, key: &Key, default_prefix| {
        Take::new(Arc::new(rule.clone()), key.clone()).name(default_prefix)
    };
    assert_eq!(name(&rule, &key, ""), "p:k");
    assert_eq!(name(&rule, &Key::default(), "x:"), "x:p");
    assert_eq!(name(&rule, &Key::from(""), "x:"), "x:p:%");
    let rule = rule.with_prefix("{own}");
    assert_eq!(name(&rule, &key, "x:"), "{own}p:k");
}
