//! What the scripts of the algorithms are asked and what they answer, in bytes. The formats stand
//! in `lua/include/read_question.lua` and `lua/include/reply_format.lua`.
//!
//! The names of the keys travel in KEYS. All questions of a call are one argument, and all answers
//! one string: Lua builds no array, and none is parsed here. Both sides must change together: a
//! field that is added here is added there. No version is needed, since a script is called by its
//! hash: two releases of this crate use two scripts.
//!
//! Every reply is checked: a reply that is too short, too long or of another call is no answer,
//! and the link is closed. What is written is bounded by the types and by
//! [`TakeCall`](super::take_call::TakeCall).

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};
use smallvec::SmallVec;

use super::take_call::{KeyTakes, Row};
use crate::algorithm::{Algorithm, MODULUS_MASK};
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::quota::Quota;
use crate::rule::Rule;

/// The shortest of the slices of time in each of which the scripts set an expiry once, in
/// microseconds, rounded up.
const MIN_SLICE: u64 = 1_049_000;
/// Added to the number of quotas where the rule has a lease, and where some of them only count.
const WITH_LEASE: usize = 128;
const WITH_COUNTING: usize = 64;
/// Added to the number of quotas that limit, where another one counts for all.
const WITH_BOUND: usize = 128;
/// The scripts' numbers are doubles.
const MAX_NUMBER: u64 = 1 << 53;

/// The questions about these keys.
///
/// Calls about many keys are mostly about one rule. Its part of the question is encoded once for
/// each rule, and sent once for a run of keys.
pub(super) fn write_questions(keys: &[KeyTakes], into: &mut Vec<u8>) {
    let mut known: Option<&Rule> = None;
    for key in keys {
        let Some((first, others)) = key.rows.split_first() else {
            continue;
        };
        // The quotas are left out if they are those of the key before.
        let rule: &Rule = key.rule();
        let is_known = known.is_some_and(|known| std::ptr::eq(known, rule));
        let quotas = if is_known { 0 } else { number_of_quotas(rule) };
        into.push(quotas);
        let rows = u16::try_from(key.rows.len()).expect("a call has at most 512 takes");
        into.extend_from_slice(&rows.to_le_bytes());
        write_row(first, into);
        if !is_known {
            into.extend_from_slice(rule.question(encode));
        }
        known = Some(rule);
        others.iter().for_each(|row| write_row(row, into));
    }
}

/// The number of a rule's quotas, with what else stands behind them.
fn number_of_quotas(rule: &Rule) -> u8 {
    let mut number = rule.charged_quotas().len();
    if rule.quotas().len() < number {
        number += WITH_COUNTING;
    }
    if rule.algorithm().lease_micros() > 0 {
        number += WITH_LEASE;
    }
    u8::try_from(number).expect("a rule has at most 16 quotas")
}

/// What a question says of a rule: its quotas, and how long a key lives.
fn encode(rule: &Rule) -> Box<[u8]> {
    let counting = rule.algorithm();
    let mut bytes = Vec::new();
    let into = &mut bytes;
    for quota in rule.charged_quotas() {
        let algorithm = counting.algorithm();
        write(&[quota.max(), quota.window_micros()], into);
        write(
            &algorithm.script_numbers(quota, counting.number_of_sub_windows()),
            into,
        );
    }
    let mut limiting = rule.quotas().len();
    if limiting < rule.charged_quotas().len() {
        if rule.charged_quotas().iter().any(Quota::bounds) {
            limiting += WITH_BOUND;
        }
        into.push(u8::try_from(limiting).expect("a rule has at most 16 quotas"));
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

/// Writes numbers in 7 bytes, which hold every quota's numbers. A cost above [`MAX_NUMBER`] never
/// fits, as that number does not.
fn write(numbers: &[u64], into: &mut Vec<u8>) {
    for number in numbers {
        into.extend_from_slice(&(*number).min(MAX_NUMBER).to_le_bytes()[..7]);
    }
}

/// The answer to one take.
pub(super) enum Answer {
    Decided(Decision),
    /// The deadline had passed, so nothing was charged.
    Late,
    /// The script failed for this key.
    Failed(RedisError),
}

/// Calls `answer` for each take, in the order of keys, rows and takes.
///
/// Returns the server's clock in microseconds, or `None` if this is not the reply to these
/// questions.
///
/// If it returns `None`, some answers may have been handed out before the mistake was found. The
/// caller has to drop them all.
pub(super) fn read_answers(
    reply: &[u8],
    id: u64,
    keys: &[KeyTakes],
    mut answer: impl FnMut(Answer),
) -> Option<u64> {
    let mut fields = Fields(reply);
    let now = fields.integer::<8>().filter(|now| *now < 1 << 53)?;
    if fields.integer::<8>()? != id {
        return None;
    }
    for key in keys {
        read_key(&mut fields, now, key, &mut answer)?;
    }
    fields.0.is_empty().then_some(now)
}

/// The call id that a reply repeats.
pub(super) fn id_in(reply: &[u8]) -> Option<u64> {
    let id = reply.get(8..16)?.try_into().ok()?;
    Some(u64::from_le_bytes(id))
}

fn read_key(
    fields: &mut Fields<'_>,
    now: u64,
    key: &KeyTakes,
    answer: &mut impl FnMut(Answer),
) -> Option<()> {
    let mut rows = key.rows.iter();
    while let Some(row) = rows.next() {
        let mut left = u64::from(row.takes);
        while left > 0 {
            let (verdict, number) = (fields.integer::<1>()?, fields.integer::<2>()?);
            if verdict == ERROR {
                let text = fields.take(usize::try_from(number).ok()?)?;
                let others = rows.map(|row| u64::from(row.takes)).sum::<u64>();
                let error = server_error(text);
                (0..left + others).for_each(|_| answer(Answer::Failed(error.clone())));
                return Some(());
            }
            left = left.checked_sub(number).filter(|_| number > 0)?;
            if verdict == LATE {
                (0..number).for_each(|_| answer(Answer::Late));
                continue;
            }
            let group = AnswerGroup::read(fields, now, key.rule(), row, verdict, number)?;
            let decisions = (0..number).rev().map(|behind| group.decision(behind));
            decisions.for_each(|decision| answer(Answer::Decided(decision)));
        }
    }
    Some(())
}

// The verdicts, as `lua/include/reply_format.lua` has them.
const DENIED: u64 = 0;
const ALLOWED: u64 = 1;
const NEVER: u64 = 2;
const LATE: u64 = 3;
const ERROR: u64 = 4;

fn server_error(text: &[u8]) -> RedisError {
    let line: String = String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
    let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
    match reply.and_then(Value::extract_error) {
        Err(error) => error,
        Ok(_) => RedisError::from((ErrorKind::Parse, "an error without a text")),
    }
}

/// What is left of a reply: little-endian fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn integer<const LENGTH: usize>(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..LENGTH].copy_from_slice(self.take(LENGTH)?);
        Some(u64::from_le_bytes(bytes))
    }

    fn number(&mut self) -> Option<u64> {
        self.integer::<7>()
    }
}

/// Takes that are answered together: either all are denied, or all are charged, one after the
/// other.
struct AnswerGroup<'a> {
    rule: &'a Rule,
    cost: u64,
    verdict: Verdict,
    /// The last take's, if it was charged.
    receipt: Option<Receipt>,
    /// How each quota stands after the last take.
    states: SmallVec<[QuotaReply; 1]>,
}

/// What the reply says about a quota.
struct QuotaReply {
    remaining: u64,
    reset_after: u64,
    /// The units that the quota's state holds, if the answer tells that.
    held: Option<u64>,
}

impl<'a> AnswerGroup<'a> {
    fn read(
        fields: &mut Fields<'_>,
        now: u64,
        rule: &'a Rule,
        row: &Row,
        code: u64,
        takes: u64,
    ) -> Option<Self> {
        let number = fields.number()?;
        let verdict = match code {
            DENIED => Verdict::Denied {
                retry_after: Duration::from_micros(number),
            },
            ALLOWED => Verdict::Allowed,
            NEVER => Verdict::Never,
            _ => return None,
        };
        let is_charged = verdict == Verdict::Allowed && row.cost > 0;
        let quotas = rule.quotas().iter();
        let states = quotas.map(|_| {
            Some(QuotaReply {
                remaining: fields.number()?,
                reset_after: fields.number()?,
                held: None,
            })
        });
        let mut states = states.collect::<Option<SmallVec<[QuotaReply; 1]>>>()?;
        if is_charged && takes > 1 && rule.algorithm().algorithm().tells_held() {
            for state in &mut states {
                state.held = Some(fields.number()?);
            }
        }
        Some(Self {
            rule,
            cost: row.cost,
            verdict,
            receipt: is_charged.then(|| Receipt::new(now, number, row.cost)),
            states,
        })
    }

    /// The decision on the take that has `behind` others of the group behind it.
    fn decision(&self, behind: u64) -> Decision {
        let later = match self.receipt {
            Some(_) => behind.saturating_mul(self.cost),
            None => 0,
        };
        let algorithm = self.rule.algorithm().algorithm();
        let states = self.states.iter().zip(self.rule.quotas());
        let states = states.map(|(state, quota)| state.before(algorithm, quota, later));
        let receipt = self.receipt.map(|last| {
            let serial = last.serial().wrapping_sub(later) & MODULUS_MASK;
            Receipt::new(last.stamp(), serial, self.cost)
        });
        Decision::from_states(self.verdict, Source::Redis, self.cost, states, receipt)
    }
}

impl QuotaReply {
    /// How the quota stood before the last `later` units were charged. It never has more left than
    /// its limit, whatever the reply says.
    fn before(&self, algorithm: Algorithm, quota: &Quota, later: u64) -> QuotaState {
        let delay = self.held.map(|held| algorithm.delay(quota, held, later));
        let reset_after = self.reset_after.saturating_sub(delay.unwrap_or(0));
        let remaining = self.remaining.saturating_add(later);
        QuotaState::from_micros(remaining.min(algorithm.limit(quota)), reset_after)
    }
}
