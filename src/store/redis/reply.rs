//! What the algorithms' scripts answer: see `lua/include/reply.lua`.

use redis::Value;

use super::question::{Batch, LARGEST_NUMBER, Row};
use crate::algorithm::{Algorithm, MODULUS_MASK, Pace};
use crate::connection::store_error;
use crate::decision::{Decision, QuotaState, Ruling, Source, Token};
use crate::error::{StoreError, StoreErrorKind};
use crate::quota::{MAX_QUOTAS, Quota};
use crate::rule::Rule;

/// The answer to one take.
#[derive(Debug)]
pub(crate) enum Answer {
    Decided(Decision),
    /// Its deadline had passed: nothing was charged.
    Late,
    /// Something is wrong with its key.
    Failed(StoreError),
}

const DENIED: u8 = 0;
const ALLOWED: u8 = 1;
const NEVER: u8 = 2;
const LATE: u8 = 3;
const ERROR: u8 = 4;

/// Whether this is the reply to the call with this mark.
///
/// A reply that was lost on the way, which only something between us and the server can do, gives everybody
/// behind it somebody else's. Then the connection is of no use any more.
pub(crate) fn has_mark(reply: &[u8], mark: u64) -> bool {
    let mut reader = Reader { bytes: reply };
    reader.number::<8>().is_some() && reader.number::<8>() == Some(mark)
}

/// Calls `answer` with the batch's index and the answer once for each take, in the order of batches, rows
/// and takes. Returns what the server's clock showed, in microseconds. The address is for people.
///
/// # Errors
///
/// If the reply makes no sense, or has another mark. Some takes may have been answered by then.
pub(crate) fn read_answers(
    address: &str,
    reply: &[u8],
    mark: u64,
    batches: &[Batch<'_>],
    answer: impl FnMut(usize, Answer),
) -> Result<u64, StoreError> {
    if !has_mark(reply, mark) {
        let message = format!("{address} gave the answer to another question");
        return Err(StoreError::new(StoreErrorKind::Protocol, message));
    }
    read(address, reply, batches, answer).ok_or_else(|| nonsense(address))
}

fn read(
    address: &str,
    reply: &[u8],
    batches: &[Batch<'_>],
    mut answer: impl FnMut(usize, Answer),
) -> Option<u64> {
    let mut reader = Reader { bytes: reply };
    let now = reader.number::<8>().filter(|now| *now < LARGEST_NUMBER)?;
    reader.number::<8>()?;
    for (index, batch) in batches.iter().enumerate() {
        if reader.bytes.first() == Some(&ERROR) {
            let error = reader.error(address)?;
            let takes = batch.rows.iter().map(|row| u64::from(row.takes)).sum();
            (0..takes).for_each(|_: u64| answer(index, Answer::Failed(error.clone())));
            continue;
        }
        for row in batch.rows {
            let mut left = row.takes;
            while left > 0 {
                let group = Group::read(&mut reader, now, batch.rule, row)?;
                left = left.checked_sub(group.takes)?;
                (0..group.takes)
                    .rev()
                    .for_each(|behind| answer(index, group.answer(behind)));
            }
        }
    }
    reader.bytes.is_empty().then_some(now)
}

/// The units that were given back, at most this many.
pub(super) fn read_refund(address: &str, reply: &Value, most: u64) -> Result<u64, StoreError> {
    match reply {
        Value::Int(units @ 0..) if units.unsigned_abs() <= most => Ok(units.unsigned_abs()),
        _ => Err(nonsense(address)),
    }
}

pub(super) fn nonsense(address: &str) -> StoreError {
    let message = format!("{address} gave an answer that is not a decision");
    StoreError::new(StoreErrorKind::Protocol, message)
}

/// What is left of a reply.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    /// A little-endian number of so many bytes.
    fn number<const BYTES: usize>(&mut self) -> Option<u64> {
        let (number, rest) = self.bytes.split_first_chunk::<BYTES>()?;
        let mut bytes = [0; 8];
        bytes[..BYTES].copy_from_slice(number);
        self.bytes = rest;
        Some(u64::from_le_bytes(bytes))
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    fn short(&mut self) -> Option<u16> {
        let (number, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(u16::from_le_bytes(*number))
    }

    fn error(&mut self, address: &str) -> Option<StoreError> {
        self.byte()?;
        let length = self.short()?;
        let (text, rest) = self.bytes.split_at_checked(length.into())?;
        self.bytes = rest;
        // As a server's error line, so that it means what it means anywhere else.
        let text = String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
        let text = text.trim_start_matches('-');
        let line = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
        let error = line.and_then(Value::extract_error).err()?;
        Some(store_error(address, error))
    }
}

/// Takes that are answered alike: all denied, or each charged once more than the one before.
struct Group<'a> {
    rule: &'a Rule,
    cost: u64,
    takes: u16,
    now: u64,
    /// None of late takes.
    ruling: Option<Ruling>,
    /// Of the last of them.
    serial: u64,
    /// After the last of them, one for each quota.
    states: [GroupState; MAX_QUOTAS],
}

#[derive(Clone, Copy, Default)]
struct GroupState {
    remaining: u64,
    reset_after: u64,
    /// What is in the bucket, where several were poured in.
    units: Option<u64>,
}

impl<'a> Group<'a> {
    fn read(reader: &mut Reader<'_>, now: u64, rule: &'a Rule, row: &Row) -> Option<Self> {
        let (verdict, takes) = (reader.byte()?, reader.short()?);
        let mut group = Self {
            rule,
            cost: row.cost,
            takes,
            now,
            ruling: None,
            serial: 0,
            states: [GroupState::default(); MAX_QUOTAS],
        };
        if takes == 0 || verdict > LATE {
            return None;
        }
        if verdict == LATE {
            return Some(group);
        }
        let wait_or_serial = reader.number::<7>()?;
        let ruling = match verdict {
            DENIED => Ruling::Denied {
                retry_after: wait_or_serial,
            },
            ALLOWED => Ruling::Allowed,
            NEVER => Ruling::Never,
            _ => return None,
        };
        (group.ruling, group.serial) = (Some(ruling), wait_or_serial);
        let states = group.states.iter_mut().take(rule.quotas().len());
        for state in states {
            (state.remaining, state.reset_after) = (reader.number::<7>()?, reader.number::<7>()?);
        }
        let pours = rule.counting().algorithm() == Algorithm::Gcra;
        if pours && group.is_charged() && takes > 1 {
            let states = group.states.iter_mut().take(rule.quotas().len());
            for state in states {
                state.units = Some(reader.number::<7>()?);
            }
        }
        Some(group)
    }

    fn is_charged(&self) -> bool {
        self.ruling == Some(Ruling::Allowed) && self.cost > 0
    }

    /// The answer to the take that has so many of the group behind it.
    fn answer(&self, behind: u16) -> Answer {
        let Some(ruling) = self.ruling else {
            return Answer::Late;
        };
        let later = match self.is_charged() {
            true => u64::from(behind).saturating_mul(self.cost),
            false => 0,
        };
        let algorithm = self.rule.counting().algorithm();
        let states = self.states.iter().zip(self.rule.quotas());
        // Of two iterators the shorter one counts, and that is the rule's.
        let states = states
            .take(self.rule.quotas().len())
            .map(|(state, quota)| state.before(quota, algorithm.limit(quota), later));
        let serial = self.serial.wrapping_sub(later) & MODULUS_MASK;
        let token = self
            .is_charged()
            .then(|| Token::new(self.now, serial, self.cost));
        Answer::Decided(Decision::of_many(ruling, Source::Redis, states, token))
    }
}

impl GroupState {
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
