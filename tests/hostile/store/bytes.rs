//! Bytes from outside: those of a count, and the names of keys. None of them does harm, and no two
//! names are one.

use tidegate::algorithm::{AlgorithmConfig, Count, CountError};

use crate::prelude::*;

fn quotas(number: usize) -> Vec<Quota> {
    let all = [(40, 10), (90, 60), (1_000, 3_600)];
    let all = all.map(|(max, seconds)| kit::quota(max, Duration::from_secs(seconds)));
    all[..number].to_vec()
}

/// Counts of all kinds: empty, charged once, with several quotas, long, and with refunds.
fn counts() -> Vec<(Algorithm, Vec<u8>)> {
    let mut counts = vec![(Algorithm::SlidingLog, Count::default().to_bytes())];
    for algorithm in Algorithm::ALL {
        for (takes, number) in [(1, 1), (3, 3), (30, 1), (30, 2)] {
            let (mut count, mut now) = (Count::default(), NOW);
            for at in 0..takes {
                now += 137_001;
                let decision = count.take(algorithm, now, &quotas(number), 1 + at % 2);
                if let (Some(receipt), 0) = (decision.receipt(), at % 3) {
                    count.refund(now, &receipt, 1);
                }
            }
            counts.push((algorithm, count.to_bytes()));
        }
    }
    counts
}

/// Uses these bytes as a store would, and worse. Nothing panics, nothing goes on for ever, and no
/// more memory is used than the bytes and the takes themselves need.
fn misuse(bytes: &[u8]) {
    let used = allocation_counter::measure(|| {
        let Ok(count) = Count::from_bytes(bytes) else {
            return;
        };
        let _ = count.forgotten_at();
        let again = Count::from_bytes(&count.to_bytes());
        let again = again.unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
        assert_eq!(again.to_bytes(), count.to_bytes(), "{bytes:?}");
        for now in [NOW, NOW + 60_000_000, 0, 1, NOW * 2, (1 << 53) - 1, NOW + 1] {
            for algorithm in Algorithm::ALL {
                let mut count = count.clone();
                for (number, cost) in [(1, 0), (3, 1), (1, 40), (2, u64::MAX), (0, 3)] {
                    let quotas = quotas(number);
                    let decision = count.take(algorithm, now, &quotas, cost);
                    for (state, quota) in decision.quotas().iter().zip(&quotas) {
                        assert!(state.remaining() <= quota.max(), "{bytes:?}: {decision:?}");
                    }
                    let made_up = Receipt::new(now, 3, 2);
                    for receipt in decision.receipt().into_iter().chain([made_up]) {
                        let back = count.refund(now, &receipt, cost);
                        assert!(back <= receipt.units(), "{bytes:?}: {back} of {receipt:?}");
                    }
                }
                let _ = (count.forgotten_at(), count.to_bytes());
            }
        }
    });
    let most = 40_000 + 200 * bytes.len() as u64;
    assert!(used.bytes_max <= most, "{used:?}: {bytes:?}");
}

/// Every bit of every count flipped, alone.
#[test]
fn every_flipped_bit() {
    for (_, bytes) in counts().iter().filter(|(_, bytes)| bytes.len() < 150) {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                misuse(&flipped);
            }
        }
    }
}

/// Numbers that are as large as can be in the place of every byte: lengths, totals and instants.
#[test]
fn huge_numbers_in_every_place() {
    // Of seven bits each, the least ones first.
    let number = |mut value: u64| {
        let mut bytes = Vec::new();
        loop {
            let byte = (value & 0x7F) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(byte);
                return bytes;
            }
            bytes.push(byte | 0x80);
        }
    };
    let numbers = [1 << 16, 1 << 32, 1 << 52, (1 << 53) - 1, 1 << 62, u64::MAX].map(number);
    for (_, bytes) in counts() {
        for at in 1..bytes.len().min(60) {
            for number in &numbers {
                let huge = [&bytes[..at], number, &bytes[at + 1..]].concat();
                misuse(&huge);
                misuse(&huge[..at + number.len()]);
            }
        }
    }
    for number in &numbers {
        for algorithm in 0..8 {
            for length in 1..12 {
                misuse(&[&[1, algorithm], &*number.repeat(length)].concat());
            }
        }
    }
    misuse(&[0xFF; 100_000]);
    misuse(&[0; 100_000]);
    for algorithm in 0..8 {
        misuse(&[&[1, algorithm], &[1; 100_000][..]].concat());
        misuse(&[&[1, algorithm], &[0x80; 1_000][..]].concat());
    }
}

/// A count that is cut off anywhere, and one with anything behind it, is an error.
#[test]
fn cut_off_and_too_long() {
    for (_, bytes) in counts() {
        assert!(Count::from_bytes(&bytes).is_ok());
        for end in 0..bytes.len() {
            let error = Count::from_bytes(&bytes[..end]).err();
            assert_eq!(error, Some(CountError::CutOff), "{end} of {bytes:?}");
        }
        for more in [1, 2, 1_000] {
            for byte in [0, 1, 0x7F, 0xFF] {
                let longer = [&bytes[..], &vec![byte; more]].concat();
                let error = Count::from_bytes(&longer).err();
                assert_eq!(error, Some(CountError::TooLong(more)), "{bytes:?}");
            }
        }
        let twice = [&bytes[..], &bytes].concat();
        let expected = Some(CountError::TooLong(bytes.len()));
        assert_eq!(Count::from_bytes(&twice).err(), expected);
    }
}

/// Random bytes, most of them behind a right beginning.
#[test]
fn random_bytes() {
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let length = random.below(60) as usize;
        let small = random.below(2) == 0;
        let byte = |random: &mut Random| match small {
            true => random.below(6) as u8,
            false => random.below(256) as u8,
        };
        let mut bytes: Vec<_> = (0..length).map(|_| byte(&mut random)).collect();
        if random.below(8) > 0 && length > 2 {
            bytes[0] = 1;
            bytes[1] = random.below(5) as u8;
        }
        misuse(&bytes);
    }
}

/// Two halves of different counts put together.
#[test]
fn halves_of_different_counts() {
    let counts = counts();
    for (_, one) in &counts {
        for (_, other) in &counts {
            for cut in (1..one.len().min(other.len())).step_by(3) {
                misuse(&[&one[..cut], &other[cut..]].concat());
            }
        }
    }
}

/// Random histories, written and read at random steps: the count that was read decides, gives back
/// and is forgotten as the one that was kept, under changing quotas, sub-windows and clocks.
#[test]
fn round_trips_in_random_histories() {
    let mut random = Random::new(1);
    for round in 0..3_000 {
        let algorithm = Algorithm::ALL[round % Algorithm::ALL.len()];
        let (mut kept, mut read) = (Count::default(), Count::default());
        let (mut now, mut receipts) = (NOW, Vec::new());
        let mut quotas = quotas(1 + random.below(3) as usize);
        let mut counting = AlgorithmConfig::from(algorithm);
        for step in 0..40 {
            let story = format!("{algorithm:?}, round {round}, step {step}");
            now += [0, 0, 1, 999, 1_000, 400_000, 5_000_000, 11_000_000][random.below(8) as usize];
            if random.below(30) == 0 {
                now -= random.below(20_000_000);
            }
            if random.below(8) == 0 {
                quotas = self::quotas(1 + random.below(3) as usize);
                if random.below(2) == 0 {
                    let max = 1 + random.below(50);
                    let window = Duration::from_millis(1 + random.below(20_000));
                    quotas[0] = Quota::new(window, max).expect("valid");
                }
            }
            if random.below(10) == 0 {
                counting = counting.sub_windows(1 + random.below(100) as u16);
            }
            if random.below(60) == 0 {
                let other = Algorithm::ALL[random.below(4) as usize];
                counting = AlgorithmConfig::from(other);
            }
            if random.below(3) > 0 {
                let cost = random.below(12);
                let decision = kept.take(counting, now, &quotas, cost);
                assert_eq!(decision, read.take(counting, now, &quotas, cost), "{story}");
                receipts.extend(decision.receipt());
            } else if !receipts.is_empty() {
                let receipt = receipts[random.below(receipts.len() as u64) as usize].clone();
                let units = random.below(6);
                let back = kept.refund(now, &receipt, units);
                assert_eq!(back, read.refund(now, &receipt, units), "{story}");
            }
            assert_eq!(kept.forgotten_at(), read.forgotten_at(), "{story}");
            if random.below(3) == 0 {
                let bytes = read.to_bytes();
                assert_eq!(bytes, kept.to_bytes(), "{story}");
                read = Count::from_bytes(&bytes).expect("its own bytes");
            }
        }
    }
}

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
        "\0", "\n", "é", "-", "#", "*", "refunds",
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

/// No two different rules and keys share a name, whatever the paths and the parts of the keys are.
#[test]
fn names_differ() {
    let keys = keys();
    let mut seen = HashMap::new();
    for path in ["a", "a:b", "a%3Ab", "a~gcra", "b", "refunds", "a:"] {
        for algorithm in [Algorithm::SlidingLog, Algorithm::Gcra] {
            let rule = by(algorithm, path, 1, HOUR);
            for (parts, key) in &keys {
                let name = Take::new(Arc::clone(&rule), key.clone()).name("p:");
                assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
                assert!(!name.contains(['{', '}']), "{name:?}");
                let what = (rule.id().to_owned(), parts);
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
