//! What the scripts of the algorithms are asked and what they answer, in bytes. The formats stand
//! in `lua/formats.md`.
//!
//! The names of the keys travel in KEYS. All questions of a call are one argument, and all answers
//! one string: Lua builds no array, and none is parsed here. Both sides must change together: a
//! field that is added here is added there. No version is needed, since a script is called by its
//! hash: two releases of this crate use two scripts.
//!
//! Every reply is checked: a reply that is too short, too long or of another call is no answer,
//! and the link is closed. What is written is bounded by the types and by
//! [`TakeCall`](super::take_call::TakeCall).

mod calendar;
mod holds;
mod permits;
mod windows;

use std::sync::Arc;

use redis::{ErrorKind, RedisError, Value};
use smallvec::SmallVec;

pub(super) use self::windows::Told;
use super::lone_take::write_lone;
use super::question::{CountKey, CountOperation, CountQuestion};
use super::take_call::{KeyTakes, Row};
use crate::algorithm::constants::{
    ANSWERS, DENIED_STATE, ERROR, GENERAL, HOLDS, JOINT, LATE, LONE, NAMES_TWICE, OUTSIDE, OWED,
    RECORD_SIZE, USUAL,
};
use crate::algorithm::spec::{Kind, Spec};
use crate::decision::{Decision, Receipt, Verdict};

/// The scripts' numbers are doubles.
pub(super) const MAX_NUMBER: u64 = 1 << 53;
/// A spec is not sent again if it is one of the last so many of a call.
const MAX_KNOWN_SPECS: usize = 8;
/// The bytes of the head of the questions: the kind of the call, where the records begin, and the
/// call's id.
pub(super) const HEAD_SIZE: usize = 11;

/// The questions about these keys.
///
/// Calls about many keys are mostly about one rule. What they say of a spec is encoded once, and
/// sent once for a run of keys.
///
/// `id` is the call's. `now` is what the server's clock shows, or a little less.
pub(super) fn write_questions(
    id: u64,
    keys: &[KeyTakes],
    names_twice: bool,
    now: &dyn Fn() -> u64,
    into: &mut Vec<u8>,
) {
    let mut counts = keys.iter().flat_map(|key| key.counts());
    let may_be_held = counts.any(|it| it.spec.may_be_held());
    let holds = if may_be_held { HOLDS } else { 0 };
    if let Some(count) = lone_count(keys) {
        into.extend_from_slice(&write_lone(id, count, keys[0].rows[0].deadline));
        into[0] += holds;
        return;
    }
    let kind = match names_twice {
        true => NAMES_TWICE,
        false if keys.iter().any(is_usual) => USUAL,
        false => GENERAL,
    };
    into.extend_from_slice(&[kind + holds, 0, 0]);
    into.extend_from_slice(&id.to_be_bytes());
    let mut specs = Specs::default();
    for key in keys {
        match key.first().what {
            CountOperation::Owe { stamp } => {
                let spec = &key.counts()[0].spec;
                specs.begin(into, |into| write_owing(spec, stamp, into));
            }
            _ => key
                .counts()
                .iter()
                .for_each(|it| specs.add(&it.spec, now, into)),
        }
    }
    end_head(into);
    into.reserve(specs.positions.len() * RECORD_SIZE);
    let mut positions = specs.positions.iter();
    for key in keys {
        let number = |number: usize| u16::try_from(number).expect("a call has at most 512 takes");
        let asked = key.first();
        // Of several counts the first one says how many there are.
        let (flag, mut rows) = match asked.needs_core() {
            true => (JOINT, number(asked.counts.len())),
            false if asked.owes() => (OWED, number(key.rows.len())),
            false => (0, number(key.rows.len())),
        };
        for (at, count) in asked.counts.iter().enumerate() {
            let position = positions.next().copied().unwrap_or_default();
            into.extend_from_slice(&position.to_be_bytes());
            into.extend_from_slice(&(flag + std::mem::take(&mut rows)).to_be_bytes());
            let mut row = key.rows[0];
            if at > 0 {
                row.cost = count.cost;
            }
            if count.spec.is_permits() {
                row.cost = permits::in_place_of_cost(asked.holder(), row.cost);
            }
            write_row(&row, into);
        }
    }
    for row in keys.iter().flat_map(|key| key.rows.iter().skip(1)) {
        write_row(row, into);
    }
}

/// Whether the scripts may answer the takes of a key in their usual case.
fn is_usual(key: &KeyTakes) -> bool {
    let is_known = match key.counts() {
        [one] => one.spec.is_usual() || one.spec.calendar().is_some(),
        [one, other] => one.spec.is_usual() && other.spec.calendar().is_some(),
        _ => false,
    };
    is_known && !key.first().owes()
}

/// The count of a call that asks for one take of one count of windows.
fn lone_count(keys: &[KeyTakes]) -> Option<&CountKey> {
    let [key] = keys else { return None };
    match (key.counts(), &key.rows[..]) {
        ([count], [Row { takes: 1, .. }]) if !key.first().owes() => {
            count.spec.windows().is_some().then_some(count)
        }
        _ => None,
    }
}

/// The questions about one take of a count of windows, but for the call's id and the take's cost and
/// deadline.
pub(super) fn one_take(spec: &Spec) -> Box<[u8]> {
    let windows = spec.windows().expect("others change with the time");
    let kind = match spec.is_usual() {
        true if windows.is_lone() => LONE,
        true => USUAL,
        false => GENERAL,
    };
    let mut bytes = vec![0; HEAD_SIZE];
    bytes[0] = kind;
    windows::write_spec(windows, &mut bytes);
    end_head(&mut bytes);
    // The spec stands behind the head, and the key has one row of one take.
    let mut record = [0; RECORD_SIZE];
    (record[1], record[3]) = (HEAD_SIZE as u8 + 1, 1);
    bytes.extend_from_slice(&record);
    if kind == LONE {
        let expiry = Fields(&bytes[HEAD_SIZE + 1..]).number();
        let text = expiry.map(|it| it.to_string().into_bytes());
        bytes.extend(text.unwrap_or_default());
    }
    bytes.into()
}

/// Where the records begin.
pub(super) fn records_in(questions: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([questions[1], questions[2]])) - 1
}

/// Says in the head that the records begin here.
fn end_head(bytes: &mut [u8]) {
    let records = u16::try_from(bytes.len() + 1).expect("64 specs have less than 64 KiB");
    bytes[1..3].copy_from_slice(&records.to_be_bytes());
}

/// Where what the questions say of the spec of each count begins.
#[derive(Default)]
struct Specs<'a> {
    positions: SmallVec<[u16; 8]>,
    known: SmallVec<[(&'a Arc<Spec>, u16); 1]>,
}

impl<'a> Specs<'a> {
    fn add(&mut self, spec: &'a Arc<Spec>, now: &dyn Fn() -> u64, into: &mut Vec<u8>) {
        let mut known = self.known.iter().rev().take(MAX_KNOWN_SPECS);
        if let Some((_, position)) = known.find(|(known, _)| Arc::ptr_eq(known, spec)) {
            self.positions.push(*position);
        } else {
            let position = self.begin(into, |into| write_spec(spec, now, into));
            self.known.push((spec, position));
        }
    }

    fn begin(&mut self, into: &mut Vec<u8>, spec: impl FnOnce(&mut Vec<u8>)) -> u16 {
        // Positions in Lua begin with 1.
        let position = u16::try_from(into.len() + 1).expect("64 specs have less than 64 KiB");
        spec(into);
        self.positions.push(position);
        position
    }
}

/// What a question says of a count of this kind.
fn write_spec(spec: &Spec, now: &dyn Fn() -> u64, into: &mut Vec<u8>) {
    match &spec.kind {
        Kind::Windows(_) => {
            let questions = spec.question(one_take);
            into.extend_from_slice(&questions[HEAD_SIZE..records_in(questions)]);
        }
        Kind::Calendar(of) => calendar::write(of, of.period.at(now()), into),
        Kind::Permits(of) => permits::write_spec(of, into),
    }
}

/// The same, and how many units may be used under each quota together with those owed. `stamp` is
/// that of the receipt for what was reserved.
fn write_owing(spec: &Spec, stamp: u64, into: &mut Vec<u8>) {
    match spec.calendar() {
        Some(of) => calendar::write_owing(of, stamp, into),
        None => {
            write_spec(spec, &|| stamp, into);
            spec.limits_with_debt()
                .for_each(|limit| write(&[limit], into));
        }
    }
}

fn write_row(row: &Row, into: &mut Vec<u8>) {
    into.extend_from_slice(&row.takes.to_be_bytes());
    write(&[row.cost, row.deadline], into);
}

/// Writes numbers in 7 bytes, which hold every quota's numbers. A cost above [`MAX_NUMBER`] never
/// fits, as that number does not.
pub(super) fn write(numbers: &[u64], into: &mut Vec<u8>) {
    for number in numbers {
        into.extend_from_slice(&(*number).min(MAX_NUMBER).to_be_bytes()[1..]);
    }
}

/// The reply to one take.
pub(super) enum TakeReply {
    /// About each of its counts.
    Decided(SmallVec<[Decision; 1]>),
    /// So many units owed were charged.
    Owed(u64),
    /// The deadline had passed, so nothing was charged.
    Late,
    /// The server's clock shows another period than the question said, so nothing was charged.
    Outside,
    /// The script failed for this key.
    Failed(RedisError),
}

/// Adds a reply to each take, in the order of keys, rows and takes.
///
/// Returns the server's clock in microseconds, or `None` if this is not the reply to these
/// questions: then the caller has to drop the replies that it added before it found the mistake.
pub(super) fn read_replies(
    reply: &[u8],
    id: u64,
    keys: &[KeyTakes],
    replies: &mut SmallVec<[TakeReply; 1]>,
) -> Option<u64> {
    let mut fields = Fields(reply);
    let now = fields.head(id)?;
    for key in keys {
        let (asked, first) = (key.first(), replies.len());
        for at in 0..asked.counts.len() {
            let mut nth = first;
            read_count(&mut fields, now, asked, at, &key.rows, &mut |reply| {
                match (replies.get_mut(nth), reply) {
                    (None, reply) => replies.push(reply),
                    (Some(TakeReply::Decided(all)), TakeReply::Decided(of_count)) => {
                        all.extend(of_count);
                    }
                    (Some(known @ TakeReply::Decided(_)), other) => *known = other,
                    (Some(_), _) => {}
                }
                nth += 1;
            })?;
        }
    }
    fields.0.is_empty().then_some(now)
}

/// The call id that a reply repeats.
pub(super) fn id_in(reply: &[u8]) -> Option<u64> {
    let id = reply.get(..8)?.try_into().ok()?;
    Some(u64::from_be_bytes(id))
}

/// Reads what is answered to each take about its count at this place.
fn read_count(
    fields: &mut Fields<'_>,
    now: u64,
    asked: &CountQuestion,
    at: usize,
    rows: &[Row],
    answer: &mut impl FnMut(TakeReply),
) -> Option<()> {
    let count = &asked.counts[at];
    let mut rows = rows.iter();
    while let Some(row) = rows.next() {
        let mut left = u64::from(row.takes);
        while left > 0 {
            let verdict = fields.integer::<1>()?;
            let cost = if at == 0 { row.cost } else { count.cost };
            if verdict >= DENIED_STATE {
                let windows = count.spec.windows()?;
                let told = Told::by_state(windows, verdict, now, cost, fields)?;
                let decision = told.decision(windows, now, cost)?;
                answer(TakeReply::Decided(SmallVec::from_buf([decision])));
                left -= 1;
                continue;
            }
            let number = fields.integer::<2>()?;
            if verdict == ERROR {
                let text = fields.take(usize::try_from(number).ok()?)?;
                let others = rows.map(|row| u64::from(row.takes)).sum::<u64>();
                let error = server_error(text);
                (0..left + others).for_each(|_| answer(TakeReply::Failed(error.clone())));
                return Some(());
            }
            left = left.checked_sub(number).filter(|_| number > 0)?;
            if verdict == LATE || verdict == OUTSIDE {
                let refused = || match verdict {
                    LATE => TakeReply::Late,
                    _ => TakeReply::Outside,
                };
                (0..number).for_each(|_| answer(refused()));
                continue;
            }
            let group = ReplyGroup::read(fields, now, &count.spec, cost, verdict, number)?;
            for behind in (0..number).rev() {
                answer(match asked.owes() {
                    // In place of a serial number stands how many were charged.
                    true => TakeReply::Owed(group.serial().min(cost)),
                    false => {
                        let decision = group.decision(&count.spec, asked.holder(), behind);
                        TakeReply::Decided(SmallVec::from_buf([decision]))
                    }
                });
            }
        }
    }
    Some(())
}

fn server_error(text: &[u8]) -> RedisError {
    let line = crate::unseen::blanked(&String::from_utf8_lossy(text));
    let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
    match reply.and_then(Value::extract_error) {
        Err(error) => error,
        Ok(_) => RedisError::from((ErrorKind::Parse, "an error without a text")),
    }
}

/// What is left of a reply: big-endian fields.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// The server's clock, if the call has this number. Where a state is the reply, the clock stands
    /// in the state, which is left.
    pub(super) fn head(&mut self, id: u64) -> Option<u64> {
        let is_own = self.integer::<8>()? == id;
        let mut ahead = Fields(self.0);
        let (mark, now) = (ahead.integer::<8>()?, ahead.number()?);
        let is_state = mark >> 56 >= DENIED_STATE;
        if !is_state {
            *self = ahead;
        }
        (is_own && (is_state || mark == ANSWERS) && now < MAX_NUMBER).then_some(now)
    }

    fn integer<const LENGTH: usize>(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[8 - LENGTH..].copy_from_slice(self.take(LENGTH)?);
        Some(u64::from_be_bytes(bytes))
    }

    fn number(&mut self) -> Option<u64> {
        self.integer::<7>()
    }
}

/// Takes that are answered together: either all are denied, or all are charged, one after the
/// other.
struct ReplyGroup {
    cost: u64,
    /// The verdict as the script has it.
    code: u64,
    verdict: Verdict,
    /// The last take's, if it was allowed.
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

impl ReplyGroup {
    fn read(
        fields: &mut Fields<'_>,
        now: u64,
        spec: &Spec,
        cost: u64,
        code: u64,
        takes: u64,
    ) -> Option<Self> {
        let number = fields.number()?;
        let verdict = holds::verdict(spec, code, number)?;
        let is_allowed = verdict == Verdict::Allowed;
        let states = spec.quotas().iter().map(|_| {
            Some(QuotaReply {
                remaining: fields.number()?,
                reset_after: fields.number()?,
                held: None,
            })
        });
        let mut states = states.collect::<Option<SmallVec<[QuotaReply; 1]>>>()?;
        if is_allowed && cost > 0 && takes > 1 && spec.tells_held() {
            for state in &mut states {
                state.held = Some(fields.number()?);
            }
        }
        Some(Self {
            cost,
            code,
            verdict,
            receipt: is_allowed.then(|| Receipt::new(now, number, cost)),
            states,
        })
    }

    /// The serial number of the last take; 0 if it was denied.
    fn serial(&self) -> u64 {
        self.receipt.as_ref().map_or(0, Receipt::serial)
    }

    /// The decision on the take that has `behind` others of the group behind it.
    fn decision(&self, spec: &Spec, holder: Option<&Receipt>, behind: u64) -> Decision {
        let later = match self.receipt {
            Some(_) => behind.saturating_mul(self.cost),
            None => 0,
        };
        let decision = match &spec.kind {
            Kind::Windows(of) => windows::decision(of, self, later),
            Kind::Calendar(of) => calendar::decision(of, self, later),
            Kind::Permits(of) => permits::decision(of, self, holder),
        };
        holds::mark(decision, spec, self.code)
    }
}
