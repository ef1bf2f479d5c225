//! A count that is written and read again decides as before, and no bytes do harm.

use kit::ensure;
use kit::steps::{
    Broken, History, Theme, Way, any_start, check_each, history, number_of_histories, quotas, way,
};
use proptest::prelude::{any, *};
use tidegate::algorithm::CountError;

use crate::reference::bytes_of;
use crate::*;

kit::for_each_algorithm!(
    changed_bytes_do_no_harm,
    random_bytes_do_no_harm,
    a_count_that_is_cut_off_is_an_error,
);

/// Whatever can happen to a count, and the clock goes back.
fn stories(algorithm: Algorithm) -> impl Strategy<Value = History> {
    history(algorithm, Theme::Mixed, any_start())
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
            let back = count.refund(*now, quotas, &receipt, *cost);
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
    let seen = check_each(
        number_of_histories(800),
        &cases,
        |(told, changes, asked), seen| {
            for mut bytes in bytes_of(told) {
                changes.iter().for_each(|it| change(&mut bytes, *it));
                let read = Count::from_bytes(&bytes);
                seen.note_if(read.is_err(), "refused");
                if let Ok(count) = read {
                    seen.note_if(true, "read");
                    ask(count, asked).map_err(|broken| format!("{broken}, of {bytes:?}"))?;
                }
            }
            Ok(())
        },
    );
    seen.expect(160, "refused");
    seen.expect(40, "read");
}

fn random_bytes_do_no_harm(algorithm: Algorithm) {
    let number = Count::default().to_bytes();
    let mut sample = Count::default();
    let quota = Quota::per_second(5);
    assert!(sample.take(algorithm, 1, &[quota], 1).is_allowed());
    let head = [number[0], sample.to_bytes()[1]];
    let byte = prop_oneof![3 => 0..4_u8, 2 => any::<u8>(), 1 => Just(255)];
    let bytes = prop::collection::vec(byte, 0..40);
    let cases = (bytes, asked(algorithm), 0..9);
    let seen = check_each(
        number_of_histories(800),
        &cases,
        |(bytes, asked, headed), seen| {
            let bytes = match headed {
                0 => bytes.clone(),
                _ => [&head[..], bytes].concat(),
            };
            let read = Count::from_bytes(&bytes);
            seen.note_if(read.is_err(), "refused");
            read.map_or(Ok(()), |count| {
                ask(count, asked).map_err(|broken| format!("{broken}, of {bytes:?}"))
            })
        },
    );
    seen.expect(160, "refused");
}

fn a_count_that_is_cut_off_is_an_error(algorithm: Algorithm) {
    let seen = check_each(
        number_of_histories(800),
        &stories(algorithm),
        |told, seen| {
            for bytes in bytes_of(told) {
                for length in 0..bytes.len() {
                    let read = Count::from_bytes(&bytes[..length]);
                    let whole = bytes.len();
                    ensure!(read.is_err(), "{length} of {whole} bytes: {bytes:?}");
                }
                let more = [&bytes[..], &[0]].concat();
                let error = Count::from_bytes(&more).err();
                ensure!(error == Some(CountError::TooLong(1)), "{error:?}");
                seen.note_if(bytes.len() > 50, "long counts");
            }
            Ok(())
        },
    );
    seen.expect(10, "long counts");
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
        count.refund(4_000_000, &quotas, &first.expect("it was charged"), 1);

        let mut read = Count::from_bytes(written).expect("the bytes of a count");
        let take = |count: &mut Count| count.take(counting, 5_000_000, &quotas, 2);
        assert_eq!(take(&mut read), take(&mut count), "{algorithm:?}");
    }
}

/// Bytes of versions 2 and 4, with the mark of a rule that leased units for 50 ms in a window of
/// 10 s: they are read, and what they count goes on. The mark is dropped.
#[test]
fn marks_of_earlier_versions_are_read_and_dropped() {
    let quotas = [Quota::new(Duration::from_secs(10), 3).expect("valid")];
    let written: [(Algorithm, u64, &[u8]); 3] = [
        (
            Algorithm::SlidingLog,
            0,
            &[
                2, 1, 2, 192, 132, 61, 2, 192, 141, 183, 1, 1, 3, 0, 194, 78, 3, 0, 0, 0, 50, 128,
                146, 244, 1, 194, 78,
            ],
        ),
        (
            Algorithm::SlidingLog,
            1,
            &[
                4, 1, 2, 192, 132, 61, 2, 192, 141, 183, 1, 1, 3, 0, 194, 78, 3, 0, 0, 0, 1, 0, 1,
                50, 128, 146, 244, 1, 194, 78,
            ],
        ),
        (
            Algorithm::SlidingWindow,
            0,
            &[
                2, 2, 3, 128, 146, 244, 1, 1, 3, 194, 78, 231, 202, 9, 2, 192, 132, 61, 2, 192,
                141, 183, 1, 1, 160, 231, 202, 9, 255, 154, 238, 2, 0, 50, 128, 146, 244, 1, 194,
                78,
            ],
        ),
    ];
    for (algorithm, given_back, written) in written {
        let case = format!("{algorithm:?}, {given_back}");
        let mut read = Count::from_bytes(written).expect("the bytes of a count");
        let mut left = |now| read.take(algorithm, now, &quotas, 0).remaining();
        // The window was as much longer, and is another one now. A log has no windows.
        let (then, later) = match algorithm {
            Algorithm::SlidingLog => (given_back, 2),
            _ => (3, 3),
        };
        assert_eq!(left(5_000_000), then, "{case}");
        // The last of them was charged at 4 s.
        assert_eq!((left(13_999_999), left(14_000_000)), (later, 3), "{case}");
        assert!(read.take(algorithm, 14_000_000, &quotas, 1).is_allowed());
        let version = read.to_bytes()[0];
        assert!(version == 1 || version == 3, "{case}: {version}");
        for length in 0..written.len() {
            Count::from_bytes(&written[..length]).expect_err("it is cut off");
        }
    }
}
