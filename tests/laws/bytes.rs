//! A count that is written and read again decides as before, and no bytes do harm.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::algorithm::{AlgorithmConfig, Count, CountError};
use tidegate::decision::{Receipt, Verdict};
use tidegate::{Algorithm, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Event, Player, Setup, Step, Way, quotas, start, steps, way};

for_each_algorithm!(
    a_count_that_is_read_decides_as_before,
    changed_bytes_do_no_harm,
    random_bytes_do_no_harm,
    a_count_that_is_cut_off_is_an_error,
);

/// The quotas, and with every fourth step perhaps others; now and then another algorithm.
#[derive(Debug, Clone)]
struct Story {
    rules: Vec<(Way, Vec<Quota>)>,
    start: u64,
    steps: Vec<Step>,
}

fn any_way() -> impl Strategy<Value = Way> {
    prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(way)
}

fn stories(algorithm: Algorithm) -> impl Strategy<Value = Story> {
    let other = prop_oneof![3 => way(algorithm).boxed(), 1 => any_way().boxed()];
    let rules = (
        (way(algorithm), quotas()),
        prop::collection::vec((other, quotas()), 0..3),
    );
    (rules, start(), steps(24)).prop_map(|((first, others), start, steps)| Story {
        rules: [vec![first], others].concat(),
        start,
        steps,
    })
}

/// Plays the story, and calls `after` behind each step.
fn play(
    told: &Story,
    seen: &Seen,
    mut after: impl FnMut(&mut Player) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let (way, quotas) = told.rules[0].clone();
    let start = told.start;
    let mut player = Player::new(&Setup { way, quotas, start });
    for step in &told.steps {
        if step.size % 8 == 0 {
            let rule = usize::from(step.size / 8) % told.rules.len();
            (player.way, player.quotas) = told.rules[rule].clone();
        }
        if step.size % 16 == 1 {
            seen.note("clocks that went back");
            player.now = player.now.saturating_sub(u64::from(step.wait) * 8);
        } else {
            player.wait(step.wait);
        }
        match player.act(*step) {
            Act::Take(cost) => {
                let decision = player.take_blindly(cost);
                let is_denied = matches!(decision.verdict(), Verdict::Denied { .. });
                seen.note_if(is_denied, "denials");
            }
            Act::Refund { index, units } => {
                let back = player.refund_blindly(index, units);
                seen.note_if(back > 0, "refunds");
            }
        }
        after(&mut player)?;
    }
    Ok(())
}

fn a_count_that_is_read_decides_as_before(algorithm: Algorithm) {
    let seen = check(stories(algorithm), |told, seen| {
        // It is written and read behind every step, so that whatever is lost is lost for good.
        let mut read = Count::default();
        play(&told, seen, |player| {
            let event = player.events.last().expect("a step is an event");
            let (expected, got) = match event {
                Event::Took(now, cost, decision) => {
                    let got = read.take(player.way, *now, &player.quotas, *cost);
                    (format!("{decision:?}"), format!("{got:?}"))
                }
                Event::Refunded(now, receipt, units, back) => {
                    let got = read.refund(*now, receipt, *units);
                    (back.to_string(), got.to_string())
                }
            };
            ensure!(
                got == expected,
                "{got} of the count that was read, not {expected}, after{}",
                story(&player.events)
            );
            let (forgotten, expected) = (read.forgotten_at(), player.count.forgotten_at());
            ensure!(forgotten == expected, "{forgotten} for {expected}");
            let bytes = player.count.to_bytes();
            ensure!(bytes == read.to_bytes(), "other bytes: {bytes:?}");
            read = match Count::from_bytes(&bytes) {
                Ok(read) => read,
                Err(error) => return Err(format!("{error}: {bytes:?}{}", story(&player.events))),
            };
            seen.note_if(bytes.len() > 50, "long counts");
            Ok(())
        })
    });
    seen.expect("denials", 100);
    seen.expect("refunds", 10);
    seen.expect("clocks that went back", 20);
    seen.expect("long counts", 3);
}

/// Asks a count that nobody has counted: all it says has to be possible.
fn ask(mut count: Count, asked: &Asked) -> Result<(), Broken> {
    for (now, quotas, cost) in &asked.takes {
        let decision = count.take(asked.way, *now, quotas, *cost);
        let limit = |quota: &Quota| match asked.way.algorithm {
            Algorithm::Gcra if quota.max() > 0 => quota.burst(),
            _ => quota.max(),
        };
        for (state, quota) in decision.quotas().iter().zip(quotas) {
            let (remaining, limit) = (state.remaining(), limit(quota));
            ensure!(remaining <= limit, "{remaining} left of {limit}");
        }
        for receipt in decision
            .receipt()
            .into_iter()
            .chain([asked.receipt.clone()])
        {
            let back = count.refund(*now, &receipt, *cost);
            let most = receipt.units().min(*cost);
            ensure!(back <= most, "{back} given back of {most}");
        }
        let bytes = count.to_bytes();
        let read = Count::from_bytes(&bytes);
        ensure!(
            read.is_ok(),
            "{:?}: {bytes:?} behind {decision:?}",
            read.err()
        );
        let _ = count.forgotten_at();
    }
    Ok(())
}

#[derive(Debug, Clone)]
struct Asked {
    way: Way,
    takes: Vec<(u64, Vec<Quota>, u64)>,
    receipt: Receipt,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..12_u64,
        4 => any::<u64>().prop_map(|number| number >> (number % 64)),
        2 => 1_760_000_000_000_000..1_760_000_100_000_000_u64,
        1 => Just(u64::MAX),
    ]
}

fn asked(algorithm: Algorithm) -> impl Strategy<Value = Asked> {
    let take = (number(), quotas(), number());
    let receipt = (number(), number(), number());
    let receipt = receipt.prop_map(|(stamp, serial, units)| Receipt::new(stamp, serial, units));
    (way(algorithm), prop::collection::vec(take, 1..6), receipt).prop_map(
        |(way, takes, receipt)| Asked {
            way,
            takes,
            receipt,
        },
    )
}

/// What is done to bytes: where, and what.
fn changes() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    prop::collection::vec(any::<(usize, u8, u8)>(), 1..5)
}

fn change(bytes: &mut Vec<u8>, (place, kind, byte): (usize, u8, u8)) {
    // The first two bytes say which format it is: changed, they are soon refused.
    let place = 2.min(bytes.len()) + place % (bytes.len().saturating_sub(1)).max(1);
    let place = place.min(bytes.len());
    match kind % 8 {
        0 => bytes.truncate(place),
        1 => bytes.insert(place, byte),
        2 => bytes.extend(std::iter::repeat_n(byte, 3)),
        // A number of 63 bits.
        3 => drop(bytes.splice(place..place, [255, 255, 255, 255, 255, 255, 255, 255, 127])),
        4 if place < bytes.len() => drop(bytes.remove(place)),
        _ => {
            if let Some(found) = bytes.get_mut(place) {
                *found = byte;
            }
        }
    }
}

fn changed_bytes_do_no_harm(algorithm: Algorithm) {
    let cases = (stories(algorithm), changes(), asked(algorithm));
    let seen = check(cases, |(told, changes, asked), seen| {
        let mut count = Count::default();
        play(&told, seen, |player| {
            count = player.count.clone();
            Ok(())
        })?;
        let mut bytes = count.to_bytes();
        changes.into_iter().for_each(|it| change(&mut bytes, it));
        match Count::from_bytes(&bytes) {
            Err(_) => seen.note("refused"),
            Ok(count) => {
                seen.note("read");
                ask(count, &asked).map_err(|broken| format!("{broken}, of {bytes:?}"))?;
            }
        }
        Ok(())
    });
    seen.expect("refused", 20);
    seen.expect("read", 5);
}

fn random_bytes_do_no_harm(algorithm: Algorithm) {
    let number = Count::default().to_bytes();
    let mut sample = Count::default();
    let quota = Quota::per_second(5);
    assert!(sample.take(algorithm, 1, &[quota], 1).is_allowed());
    let head = [number[0], sample.to_bytes()[1]];
    let byte = prop_oneof![3 => 0..4_u8, 2 => any::<u8>(), 1 => Just(255)];
    let bytes = prop::collection::vec(byte, 0..40);
    let seen = check(
        (bytes, asked(algorithm), 0..9),
        |(bytes, asked, headed), seen| {
            let bytes = match headed {
                0 => bytes,
                _ => [&head[..], &bytes].concat(),
            };
            match Count::from_bytes(&bytes) {
                Err(_) => seen.note("refused"),
                Ok(count) => {
                    seen.note("read");
                    ask(count, &asked).map_err(|broken| format!("{broken}, of {bytes:?}"))?;
                }
            }
            Ok(())
        },
    );
    seen.expect("refused", 20);
}

fn a_count_that_is_cut_off_is_an_error(algorithm: Algorithm) {
    let seen = check(stories(algorithm), |told, seen| {
        let mut count = Count::default();
        play(&told, seen, |player| {
            count = player.count.clone();
            Ok(())
        })?;
        let bytes = count.to_bytes();
        for length in 0..bytes.len() {
            let read = Count::from_bytes(&bytes[..length]);
            ensure!(
                read.is_err(),
                "{length} of {} bytes: {bytes:?}",
                bytes.len()
            );
        }
        let more = [&bytes[..], &[0]].concat();
        let error = Count::from_bytes(&more).err();
        ensure!(error == Some(CountError::TooLong(1)), "{error:?}");
        Ok(())
    });
    seen.expect("denials", 100);
}

/// Lists that are said to be longer than all memory.
#[test]
fn a_length_needs_its_bytes() {
    let longest = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let heads: [&[u8]; 3] = [
        // The entries of a log; the tallies of a fixed window; what was
        // given back.
        &[1, 1],
        &[1, 4, 0, 0],
        &[1, 4, 0, 0, 0],
    ];
    for head in heads {
        let error = Count::from_bytes(&[head, &longest].concat()).err();
        assert!(error.is_some(), "{head:?}");
        let error = Count::from_bytes(&[head, &[255, 255, 3]].concat()).err();
        assert!(error.is_some(), "{head:?}");
    }
}

/// Bytes of version 1, as they were first written, with a list of refunds: every later version
/// reads them.
#[test]
fn the_first_format_is_read() {
    let quotas = [Quota::new(Duration::from_secs(10), 3).expect("valid")];
    let written: [(Algorithm, &[u8]); 4] = [
        (
            Algorithm::SlidingLog,
            &[
                1, 1, 2, 192, 132, 61, 1, 192, 141, 183, 1, 1, 3, 0, 144, 78, 3, 0, 0, 1, 192, 132,
                61, 2, 2, 1,
            ],
        ),
        (
            Algorithm::SlidingWindow,
            &[
                1, 2, 3, 128, 146, 244, 1, 1, 3, 144, 78, 218, 196, 9, 2, 192, 132, 61, 1, 192,
                141, 183, 1, 1, 128, 218, 196, 9, 255, 154, 238, 2, 1, 192, 132, 61, 2, 2, 1,
            ],
        ),
        (
            Algorithm::Gcra,
            &[
                1, 3, 3, 128, 146, 244, 1, 1, 3, 144, 78, 3, 255, 154, 238, 2, 2, 128, 218, 196, 9,
                255, 154, 238, 2, 1, 192, 132, 61, 2, 2, 1,
            ],
        ),
        (
            Algorithm::FixedWindow,
            &[
                1, 4, 3, 128, 146, 244, 1, 1, 3, 144, 78, 255, 154, 238, 2, 2, 128, 218, 196, 9,
                255, 154, 238, 2, 1, 192, 132, 61, 2, 2, 1,
            ],
        ),
    ];
    for (algorithm, written) in written {
        let counting = AlgorithmConfig::from(algorithm);
        let mut count = Count::default();
        let first = count.take(counting, 1_000_000, &quotas, 2).receipt();
        count.take(counting, 4_000_000, &quotas, 1);
        count.refund(4_000_000, &first.expect("it was charged"), 1);

        let mut read = Count::from_bytes(written).expect("the bytes of a count");
        let take = |count: &mut Count| count.take(counting, 5_000_000, &quotas, 2);
        assert_eq!(take(&mut read), take(&mut count), "{algorithm:?}");
    }
}
