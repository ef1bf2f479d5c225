//! What all algorithm scripts answer.

use redis::Value;

use crate::algorithm::{Algorithm, MODULUS_MASK, Pace};
use crate::decision::{Decision, QuotaState, Ruling, Source, Token};
use crate::error::{StoreError, StoreErrorKind};
use crate::quota::Quota;
use crate::store::Take;

/// What the server's clock showed, in microseconds.
pub(super) fn now(reply: &Value) -> Option<u64> {
    let now = match reply {
        Value::Int(now) => u64::try_from(*now).ok(),
        Value::BulkString(bytes) => bytes.first_chunk().map(|now| u64::from_le_bytes(*now)),
        _ => None,
    };
    // The scripts' numbers are doubles: no clock of theirs shows more.
    now.filter(|now| *now < 1 << 53)
}

/// Whether the deadline had passed, and nothing was done.
pub(super) fn is_late(reply: &Value, deadline: u64) -> bool {
    matches!(reply, Value::Int(now) if u64::try_from(*now).is_ok_and(|now| now > deadline))
}

/// Whether this is the reply to another question than the one with this deadline. A reply that was lost on the way, which
/// only something between us and the server can do, gives everybody behind it somebody else's.
pub(super) fn is_anothers(reply: &Value, deadline: u64) -> bool {
    let bytes = match reply {
        Value::BulkString(bytes) => bytes,
        Value::Int(_) => return !is_late(reply, deadline),
        _ => return false,
    };
    let mark = deadline % REPEATED;
    let verdict = bytes.get(8..).and_then(<[u8]>::first_chunk);
    verdict.is_some_and(|verdict| u64::from_le_bytes(*verdict) / MARK != mark)
}

/// The digits of the deadline that a reply repeats, its question's mark.
const REPEATED: u64 = 1 << 20;

/// So many times the question's mark are added to the verdict and the number of answers.
const MARK: u64 = 1 << 11;

/// The units that were given back, of at most so many.
pub(super) fn read_refund(reply: &Value, most: u64) -> Result<u64, StoreError> {
    match reply {
        Value::Int(units @ 0..) if units.unsigned_abs() <= most => Ok(units.unsigned_abs()),
        _ => Err(nonsense()),
    }
}

/// The decisions in the order of the takes.
pub(super) fn read(reply: &Value, takes: &[Take]) -> Result<Vec<Decision>, StoreError> {
    let Value::BulkString(bytes) = reply else {
        return Err(nonsense());
    };
    let (numbers, []) = bytes.as_chunks() else {
        return Err(nonsense());
    };
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut decisions = Vec::with_capacity(takes.len());
    while let Some(left @ [first, ..]) = takes.get(decisions.len()..) {
        let row = Row::read(&mut numbers, first).ok_or_else(nonsense)?;
        let alike = left.iter().take_while(|take| take.units() == first.units());
        if !(1..=alike.count() as u64).contains(&row.answers) {
            return Err(nonsense());
        }
        decisions.extend((0..row.answers).rev().map(|behind| row.decision(behind)));
    }
    match numbers.next() {
        None => Ok(decisions),
        Some(_) => Err(nonsense()),
    }
}

/// Takes of the same cost, one behind the other, that are answered alike: all denied, or each charged once more
/// than the one before.
struct Row<'a> {
    take: &'a Take,
    now: u64,
    ruling: Ruling,
    answers: u64,
    /// Of the last of them.
    serial: u64,
    /// After the last of them.
    states: Vec<RowState>,
}

struct RowState {
    remaining: u64,
    reset_after: u64,
    /// What is in the bucket, where several were poured in.
    units: Option<u64>,
}

impl<'a> Row<'a> {
    fn read(numbers: &mut impl Iterator<Item = u64>, take: &'a Take) -> Option<Self> {
        let (now, verdict, retry_or_serial) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let answers = verdict % MARK / 4;
        let ruling = match verdict % 4 {
            0 => Ruling::Denied {
                retry_after: retry_or_serial,
            },
            1 => Ruling::Allowed,
            2 => Ruling::Never,
            _ => return None,
        };
        let charged = ruling == Ruling::Allowed && take.units() > 0;
        let is_gcra = take.rule().counting().algorithm() == Algorithm::Gcra;
        let has_units = is_gcra && charged && answers > 1;
        let states = take.quotas().iter().map(|_| {
            Some(RowState {
                remaining: numbers.next()?,
                reset_after: numbers.next()?,
                units: match has_units {
                    true => Some(numbers.next()?),
                    false => None,
                },
            })
        });
        Some(Self {
            take,
            now,
            ruling,
            answers,
            serial: retry_or_serial,
            states: states.collect::<Option<_>>()?,
        })
    }

    /// The decision on the take that has so many of the row behind it.
    fn decision(&self, behind: u64) -> Decision {
        let charged = self.ruling == Ruling::Allowed && self.take.units() > 0;
        let later = match charged {
            true => behind.saturating_mul(self.take.units()),
            false => 0,
        };
        let states = self.states.iter().zip(self.take.quotas());
        let algorithm = self.take.rule().counting().algorithm();
        let states =
            states.map(|(state, quota)| state.before(quota, algorithm.limit(quota), later));
        let serial = self.serial.wrapping_sub(later) & MODULUS_MASK;
        let token = charged.then(|| Token::new(self.now, serial, self.take.units()));
        Decision::of_many(self.ruling, Source::Redis, states, token)
    }
}

impl RowState {
    /// How it was when so many units less were charged. There is never more left than the quota has, whatever
    /// stands in the reply.
    fn before(&self, quota: &Quota, limit: u64, later: u64) -> QuotaState {
        let drains = self.units.map_or(0, |units| {
            let pace = Pace::of(quota);
            pace.time_for(units)
                .saturating_sub(pace.time_for(units.saturating_sub(later)))
        });
        let reset_after = self.reset_after.saturating_sub(drains);
        let remaining = self.remaining.saturating_add(later).min(limit);
        QuotaState::from_micros(remaining, reset_after)
    }
}

fn nonsense() -> StoreError {
    StoreError::new(
        StoreErrorKind::Protocol,
        "redis gave an answer that is not a decision",
    )
}
