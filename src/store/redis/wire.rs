//! The arguments and the reply that all algorithm scripts share.

use std::time::Duration;

use redis::Value;

use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::{StoreError, StoreErrorKind};
use crate::quota::Quota;
use crate::store::Take;

/// A key outlives its last charge by its longest window and two slices of the script's, rounded up.
const SLACK_MILLIS: u64 = 2 * 1_049;

/// `now`, the expiry, the quotas, and then a cost for each take. No text is built on the way.
pub(super) fn write(command: &mut redis::Cmd, now: Option<u64>, takes: &[Take]) {
    let quotas = takes.first().map_or(&[][..], Take::quotas);
    match now {
        Some(now) => command.arg(now),
        None => command.arg(&b""[..]),
    };
    let longest = quotas.iter().map(Quota::window_micros).max().unwrap_or(0);
    command
        .arg(longest / 1_000 + SLACK_MILLIS)
        .arg(quotas.len());
    for quota in quotas {
        command.arg(quota.max()).arg(quota.window_micros());
    }
    for take in takes {
        command.arg(take.units());
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
        let (_now, verdict, retry_after) = (next(), next(), next());
        let verdict = match verdict {
            0 => Verdict::Denied {
                retry_after: Duration::from_micros(retry_after),
            },
            1 => Verdict::Allowed,
            2 => Verdict::Never,
            _ => return Err(nonsense()),
        };
        let states = take.quotas().iter().map(|_| {
            let (remaining, reset_after) = (next(), next());
            QuotaState::new(remaining, Duration::from_micros(reset_after))
        });
        Ok(Decision::new(verdict, Source::Redis, states))
    });
    decisions.collect()
}

fn nonsense() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "redis gave an answer that is not a decision",
    )
}
