//! What the algorithms' scripts are asked: see `lua/include/question.lua`.

use redis::Cmd;

use crate::algorithm::{Algorithm, Pace};
use crate::connection::{FIXED_WINDOW, GCRA, SLIDING_LOG, SLIDING_WINDOW, Script};
use crate::decision::Token;
use crate::rule::Rule;

/// A key outlives its last charge by as long as that counts and two slices of the scripts', rounded up.
const SLACK_MILLIS: u64 = 2 * 1_049;

/// Two to the 53rd: the scripts' numbers are doubles.
pub(crate) const LARGEST_NUMBER: u64 = 1 << 53;

/// Marks are below 2^48.
pub(crate) const MARKS: u64 = 1 << 48;

/// Takes of one rule and key, in order of arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) rule: &'a Rule,
    /// What the count is called in Redis: the caller puts it into the call's keys.
    #[allow(dead_code, reason = "for those who send several batches in a call")]
    pub(crate) name: &'a str,
    /// At most 65,535.
    pub(crate) rows: &'a [Row],
}

/// Takes of the same cost, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// In units; 0 only looks.
    pub(crate) cost: u64,
    pub(crate) takes: u16,
    /// In microseconds of the server's clock: later than that nothing is charged.
    pub(crate) deadline: u64,
}

/// The script that answers takes by this algorithm, and refunds.
pub(crate) fn script_of(algorithm: Algorithm) -> &'static Script {
    match algorithm {
        Algorithm::SlidingLog => &SLIDING_LOG,
        Algorithm::SlidingWindow => &SLIDING_WINDOW,
        Algorithm::Gcra => &GCRA,
        Algorithm::FixedWindow => &FIXED_WINDOW,
    }
}

/// Appends the question about batches of one algorithm, each of a key of its own: the first argument of a
/// call whose keys are the batches' names.
///
/// The quotas of a rule are written once for neighbours that share it, so batches of the same rule should stand
/// side by side.
pub(crate) fn write_questions(batches: &[Batch<'_>], into: &mut Vec<u8>) {
    let mut before: Option<&Rule> = None;
    for batch in batches {
        match before {
            Some(rule) if std::ptr::eq(rule, batch.rule) => into.push(0),
            _ => into.extend_from_slice(batch.rule.question(encode)),
        }
        before = Some(batch.rule);
        let rows = u16::try_from(batch.rows.len()).expect("calls are short");
        into.extend_from_slice(&rows.to_le_bytes());
        for row in batch.rows {
            put(into, row.cost);
            into.extend_from_slice(&row.takes.to_le_bytes());
            put(into, row.deadline);
        }
    }
}

/// What the question says of a rule: its quotas, and how long a key lives.
fn encode(rule: &Rule) -> Box<[u8]> {
    let (quotas, counting) = (rule.quotas(), rule.counting());
    let mut bytes = Vec::with_capacity(1 + 35 * quotas.len() + 7);
    bytes.push(u8::try_from(quotas.len()).expect("a rule has at most 16 quotas"));
    for quota in quotas {
        put(&mut bytes, quota.max());
        put(&mut bytes, quota.window_micros());
        match counting.algorithm() {
            Algorithm::SlidingLog | Algorithm::FixedWindow => {}
            Algorithm::SlidingWindow => put(&mut bytes, u64::from(counting.sub_windows)),
            Algorithm::Gcra => {
                let pace = Pace::of(quota);
                put(&mut bytes, quota.burst());
                put(&mut bytes, pace.units);
                put(&mut bytes, pace.micros);
            }
        }
    }
    put(
        &mut bytes,
        rule.life_micros().div_ceil(1_000) + SLACK_MILLIS,
    );
    bytes.into()
}

/// A number in 7 bytes, which hold all that quotas and costs can be; larger costs are as hopeless as the
/// largest.
fn put(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.min(LARGEST_NUMBER).to_le_bytes()[..7]);
}

/// A token and the most units to give back.
pub(super) fn write_refund(command: &mut Cmd, now: Option<u64>, token: &Token, most: u64) {
    let mut bytes = Vec::with_capacity(21);
    for number in [token.stamp(), token.serial(), token.units()] {
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
    }
    command.arg("refund").arg(bytes).arg(most);
    if let Some(now) = now {
        command.arg(now);
    }
}
