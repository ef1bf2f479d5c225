//! The arguments and the reply that all algorithm scripts share.

use redis::Value;

use crate::algorithm::{Algorithm, Pace};
use crate::decision::{Decision, QuotaState, Ruling, Source, Token};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Take;

/// A key outlives its last charge by as long as that counts and two slices of the scripts', rounded up.
const SLACK_MILLIS: u64 = 2 * 1_049;

/// The quotas, and then a cost for each take; the expiry; and `now`, where a test says it.
pub(super) fn write(command: &mut redis::Cmd, now: Option<u64>, takes: &[Take]) {
    let Some(first) = takes.first() else { return };
    let (quotas, counting) = (first.quotas(), first.rule().counting());
    let mut question = Vec::with_capacity(1 + 35 * quotas.len() + 7 * takes.len());
    question.push(u8::try_from(quotas.len()).expect("a rule has at most 16 quotas"));
    let mut life = 0;
    for quota in quotas {
        let window = quota.window_micros();
        put(&mut question, &[quota.max(), window]);
        life = life.max(match counting.algorithm() {
            Algorithm::SlidingLog | Algorithm::FixedWindow => window,
            Algorithm::SlidingWindow => {
                put(&mut question, &[u64::from(counting.sub_windows)]);
                window
            }
            Algorithm::Gcra => {
                let pace = Pace::of(quota);
                put(&mut question, &[quota.burst(), pace.units, pace.micros]);
                pace.time_for(quota.max().max(quota.burst()))
            }
        });
    }
    for take in takes {
        put(&mut question, &[take.units()]);
    }
    command.arg(question).arg(life / 1_000 + SLACK_MILLIS);
    if let Some(now) = now {
        command.arg(now);
    }
}

/// Numbers in 7 bytes, which hold all that quotas and costs can be; larger costs are as hopeless as the
/// largest.
fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        let number = (*number).min(LARGEST_NUMBER);
        bytes.extend_from_slice(&number.to_le_bytes()[..7]);
    }
}

/// Two to the 53rd: the scripts' numbers are doubles.
const LARGEST_NUMBER: u64 = 1 << 53;

/// A token and the units to give back.
pub(super) fn write_refund(command: &mut redis::Cmd, now: Option<u64>, token: &Token, units: u64) {
    let mut bytes = Vec::with_capacity(21);
    for number in [token.stamp(), token.serial(), token.units()] {
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
    }
    command.arg(bytes).arg(units.min(token.units()));
    if let Some(now) = now {
        command.arg(now);
    }
}

/// The units that were given back.
pub(super) fn read_refund(reply: &Value) -> Result<u64, StoreError> {
    match reply {
        Value::Int(units) => u64::try_from(*units).map_err(|_| nonsense()),
        _ => Err(nonsense()),
    }
}

/// The decisions in the order of the takes.
pub(super) fn read(reply: &Value, takes: &[Take]) -> Result<Vec<Decision>, StoreError> {
    let expected: usize = takes.iter().map(|take| 3 + 2 * take.quotas().len()).sum();
    let Value::BulkString(bytes) = reply else {
        return Err(nonsense());
    };
    let (numbers, []) = bytes.as_chunks() else {
        return Err(nonsense());
    };
    if numbers.len() != expected {
        return Err(nonsense());
    }
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut next = || numbers.next().expect("as many numbers as expected");

    let decisions = takes.iter().map(|take| {
        let (now, verdict, retry_or_serial) = (next(), next(), next());
        let ruling = match verdict {
            0 => Ruling::Denied {
                retry_after: retry_or_serial,
            },
            1 => Ruling::Allowed,
            2 => Ruling::Never,
            _ => return Err(nonsense()),
        };
        let charged = ruling == Ruling::Allowed && take.units() > 0;
        let token = charged.then(|| Token::new(now, retry_or_serial, take.units()));
        let states = take.quotas().iter().map(|_| {
            let (remaining, reset_after) = (next(), next());
            QuotaState::from_micros(remaining, reset_after)
        });
        Ok(Decision::of_many(ruling, Source::Redis, states, token))
    });
    decisions.collect()
}

fn nonsense() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "redis gave an answer that is not a decision",
    )
}
