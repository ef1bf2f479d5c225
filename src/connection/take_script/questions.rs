use crate::connection::take_call::{KeyTakes, Row};
use crate::rule::Rule;

/// The shortest of the slices of time in each of which the scripts set an expiry once, in
/// microseconds, rounded up.
const MIN_SLICE: u64 = 1_049_000;
/// Added to the number of quotas where the rule has a lease.
const WITH_LEASE: usize = 128;
/// The scripts' numbers are doubles.
const MAX_NUMBER: u64 = 1 << 53;

/// The questions about these keys.
///
/// Calls about many keys are mostly about one rule. Its part of the question is encoded once for
/// each rule, and sent once for a run of keys.
pub(in crate::connection) fn write_questions(keys: &[KeyTakes], into: &mut Vec<u8>) {
    let mut known: Option<&Rule> = None;
    for key in keys {
        let Some((first, others)) = key.rows.split_first() else {
            continue;
        };
        // The quotas are left out if they are those of the key before.
        let rule: &Rule = key.rule();
        let is_known = known.is_some_and(|known| std::ptr::eq(known, rule));
        let mut quotas = if is_known { 0 } else { rule.quotas().len() };
        if !is_known && rule.algorithm().lease_micros() > 0 {
            quotas += WITH_LEASE;
        }
        into.push(u8::try_from(quotas).expect("a rule has at most 16 quotas"));
        write_count(key.rows.len(), into);
        write_row(first, into);
        if !is_known {
            into.extend_from_slice(rule.question(encode));
        }
        known = Some(rule);
        others.iter().for_each(|row| write_row(row, into));
    }
}

/// What a question says of a rule: its quotas, and how long a key lives.
fn encode(rule: &Rule) -> Box<[u8]> {
    let counting = rule.algorithm();
    let mut bytes = Vec::new();
    let into = &mut bytes;
    for quota in rule.quotas() {
        let algorithm = counting.algorithm();
        write(&[quota.max(), quota.window_micros()], into);
        write(
            &algorithm.script_numbers(quota, counting.number_of_sub_windows()),
            into,
        );
    }
    if counting.lease_micros() > 0 {
        write(&[counting.lease_micros()], into);
    }
    let life = rule.life_micros();
    let slice = (life / 16).max(MIN_SLICE);
    write(&[(life + 2 * slice).div_ceil(1_000)], into);
    bytes.into()
}

fn write_row(row: &Row, into: &mut Vec<u8>) {
    write(&[row.cost], into);
    into.extend_from_slice(&row.takes.to_le_bytes());
    write(&[row.deadline], into);
}

fn write_count(number: usize, into: &mut Vec<u8>) {
    let number = u16::try_from(number).expect("a call has at most 512 takes");
    into.extend_from_slice(&number.to_le_bytes());
}

/// Writes numbers in 7 bytes, which hold every quota's numbers. A cost above [`MAX_NUMBER`] never
/// fits, as that number does not.
fn write(numbers: &[u64], into: &mut Vec<u8>) {
    for number in numbers {
        into.extend_from_slice(&(*number).min(MAX_NUMBER).to_le_bytes()[..7]);
    }
}
