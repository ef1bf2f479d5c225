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
    seen.expect(4, "long counts");
}

/// Lists that are said to be longer than all memory.
#[test]
fn a_length_needs_its_bytes() {
    let longest = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let heads: [&[u8]; 3] = [
        // The entries of a log; the counters of a fixed window; the ranges given back.
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

/// The bytes of version 1, with what was given back: every later version reads them.
#[test]
fn the_first_format_is_read() {
    let quotas = [Quota::new(Duration::from_secs(10), 3).expect("valid")];
    let written: [(Algorithm, &[u8]); 4] = [
        (
            Algorithm::SlidingLog,
            &[
                1, 1, 2, 192, 132, 61, 2, 192, 132, 61, 1, 3, 0, 144, 78, 3, 0, 0, 1, 0, 0, 1,
            ],
        ),
        (
            Algorithm::SlidingWindow,
            &[
                1, 2, 3, 128, 137, 122, 1, 3, 144, 78, 218, 196, 9, 2, 192, 132, 61, 1, 192, 132,
                61, 1, 255, 136, 122, 0,
            ],
        ),
        (
            Algorithm::Gcra,
            &[
                1, 3, 3, 128, 137, 122, 1, 3, 144, 78, 3, 255, 136, 122, 2, 0, 255, 136, 122, 1,
                192, 132, 61, 0, 1,
            ],
        ),
        (
            Algorithm::FixedWindow,
            &[
                1, 4, 3, 128, 137, 122, 1, 3, 144, 78, 255, 136, 122, 2, 255, 136, 122, 0,
            ],
        ),
    ];
    for (algorithm, written) in written {
        let mut count = Count::default();
        let first = count.take(algorithm, 1_000_000, &quotas, 2).receipt();
        count.take(algorithm, 2_000_000, &quotas, 1);
        count.refund(2_000_000, &quotas, &first.expect("it was charged"), 1);
        assert_eq!(count.to_bytes(), written, "{algorithm:?}");

        let mut read = Count::from_bytes(written).expect("the bytes of a count");
        let take = |count: &mut Count| count.take(algorithm, 5_000_000, &quotas, 2);
        assert_eq!(take(&mut read), take(&mut count), "{algorithm:?}");
    }
}

/// What another version wrote, or nobody, is no count.
#[test]
fn another_version_is_an_error() {
    let written = Count::default().to_bytes();
    for version in (0..=u8::MAX).filter(|version| *version != written[0]) {
        let error = Count::from_bytes(&[&[version], &written[1..]].concat()).err();
        assert_eq!(error, Some(CountError::UnknownVersion(version)));
    }
}
