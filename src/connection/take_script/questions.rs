use super::{Batch, Row};
use crate::algorithm::{Algorithm, Pace};
use crate::rule::Rule;

/// A key outlives its last charge by as long as that counts and two slices of the scripts', rounded
/// up.
const SLACK_MILLIS: u64 = 2 * 1_049;
/// The scripts' numbers are doubles.
const MAX_NUMBER: u64 = 1 << 53;

/// The questions about these keys.
pub(in crate::connection) fn write_questions(batches: &[Batch<'_>], into: &mut Vec<u8>) {
    let mut known: Option<&Rule> = None;
    for batch in batches {
        match known {
            // The quotas are those of the key before.
            Some(rule) if std::ptr::eq(rule, batch.rule) => into.push(0),
            _ => into.extend_from_slice(batch.rule.question(encode)),
        }
        known = Some(batch.rule);
        write_count(batch.rows.len(), into);
        for Row {
            cost,
            takes,
            deadline,
        } in batch.rows
        {
            write(&[*cost], into);
            into.extend_from_slice(&takes.to_le_bytes());
            write(&[*deadline], into);
        }
    }
}

/// What a question says of a rule: its quotas, and how long a key lives.
fn encode(rule: &Rule) -> Box<[u8]> {
    let counting = rule.counting();
    let mut bytes = Vec::with_capacity(8 + 35 * rule.quotas().len());
    let into = &mut bytes;
    into.push(u8::try_from(rule.quotas().len()).expect("a rule has at most 16 quotas"));
    for quota in rule.quotas() {
        write(&[quota.max(), quota.window_micros()], into);
        match counting.algorithm() {
            Algorithm::SlidingLog | Algorithm::FixedWindow => {}
            Algorithm::SlidingWindow => write(&[u64::from(counting.sub_windows)], into),
            Algorithm::Gcra => {
                let pace = Pace::of(quota);
                write(&[quota.burst(), pace.units, pace.micros], into);
            }
        }
    }
    write(&[rule.life_micros().div_ceil(1_000) + SLACK_MILLIS], into);
    bytes.into()
}

fn write_count(number: usize, into: &mut Vec<u8>) {
    let number = u16::try_from(number).expect("a call has at most 512 takes");
    into.extend_from_slice(&number.to_le_bytes());
}

/// In 7 bytes, which hold all that quotas and costs can be; larger costs are as hopeless as the
/// largest.
fn write(numbers: &[u64], into: &mut Vec<u8>) {
    for number in numbers {
        into.extend_from_slice(&(*number).min(MAX_NUMBER).to_le_bytes()[..7]);
    }
}
