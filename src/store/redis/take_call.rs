use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use smallvec::{SmallVec, smallvec};

use super::lone_take::{deadline, decided};
use super::question::{CountKey, CountOperation, CountQuestion, hold_key};
use super::scripts::{
    REFUND_FIXED_WINDOW, REFUND_GCRA, REFUND_SLIDING_LOG, REFUND_SLIDING_WINDOW, RENEW_PERMITS,
    TAKE_FIXED_WINDOW, TAKE_GCRA, TAKE_SLIDING_LOG, TAKE_SLIDING_WINDOW, refund_of,
};
use super::take_script::{TakeReply, id_in, read_replies, write_questions};
use crate::algorithm::Algorithm;
use crate::algorithm::core::StateKind;
use crate::algorithm::spec::{Spec, Windows};
use crate::connection::{
    CallId, Carrier, FlightCall, Question, RoundTrip, Script, SendOptions, ServerClock,
    publish_command,
};

/// The most keys and takes in one script call. Such a call occupies the server for at most about
/// 200 microseconds.
///
/// The server serves nobody else while a script runs, and a script cannot measure how long it has
/// run. So the bound is a number of keys.
const MAX_KEYS: usize = 64;
const MAX_TAKES: usize = 512;
/// In microseconds. Takes of one key and cost share a row if their deadlines are at most this far
/// apart. The row has the earliest of their deadlines.
///
/// Without this spread, each take would need a row of its own, because no two callers ask in the
/// same microsecond. The price is that a take may be refused some milliseconds before its deadline;
/// it is sent again if more than twice this time is left.
const DEADLINE_SPREAD: u64 = 5_000;
/// Why a take of a calendar quota has no decision.
const OUTSIDE_TWICE: &str = "its clock was set while it was asked about a calendar quota";
/// Later than every time that a script can read: its numbers are doubles.
pub(super) const NO_DEADLINE: u64 = 1 << 53;

/// Takes of many callers in one script call, for up to 64 keys.
///
/// The script answers the takes of each key as if they had come one after the other. Takes of the
/// same cost that follow one another share a row of the question, so that thousands of takes of one
/// key need few bytes.
///
/// A flight makes it, fills it, writes its command, and consumes it when the reply has come.
///
/// ```text
/// arrived     a a c a b c         the third take of a has cost 5
/// keys        a: row(cost 1, 2 takes), row(cost 5, 1 take)
///             c: row(cost 1, 2 takes)
///             b: row(cost 1, 1 take)
/// reply       clock, call id, answers of a, of c, of b
/// ```
///
/// The answers have no names in them. They belong to the takes by their position alone, so the
/// order of the keys and of their takes must not change between the command and the reply.
pub(super) struct TakeCall {
    pub(super) id: CallId,
    pub(super) kind: CallKind,
    keys: SmallVec<[KeyTakes; 1]>,
    /// How many counts these are about.
    number_of_counts: usize,
    /// Whether a key is in it more than once, under several rules.
    names_twice: bool,
    number_of_takes: usize,
}

/// Takes, or refunds, share a call only if they agree in all of this.
///
/// In a cluster that includes the slot: a node refuses a call with keys of two slots, even if it
/// serves both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CallKind {
    /// The kind of count that it gives units back to; `None` if it takes.
    gives_back: Option<StateKind>,
    /// It keeps permits, in place of giving them back.
    renews: bool,
    /// Takes over several counts, or of one that is not of windows, have calls of their own: what
    /// they cost is not added to the calls of others.
    needs_core: bool,
    /// Whether their keys may be held: then each has another key that says until when.
    holds: bool,
    algorithm: Algorithm,
    /// A test's clock in place of the server's.
    pub(super) now: Option<u64>,
    pub(super) options: SendOptions,
    slot: Option<u16>,
}

/// The takes of one key that counts alike, in order of arrival. There is at least one.
///
/// Takes over several counts are over the same ones, at the same costs, and have one row.
#[derive(Default)]
pub(super) struct KeyTakes {
    questions: SmallVec<[Question; 1]>,
    pub(super) rows: SmallVec<[Row; 1]>,
}

/// Successive takes of the same cost.
///
/// The script does not decide the takes of a row one by one: the first ones that fit are charged
/// together, and all others are denied together.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// In the only count, or the first one.
    pub(super) cost: u64,
    pub(super) takes: u16,
    /// In microseconds of the server's clock.
    pub(super) deadline: u64,
}

/// The script of takes by this algorithm.
pub(super) fn script_of(algorithm: Algorithm) -> &'static Script {
    match algorithm {
        Algorithm::SlidingLog => &TAKE_SLIDING_LOG,
        Algorithm::SlidingWindow => &TAKE_SLIDING_WINDOW,
        Algorithm::Gcra => &TAKE_GCRA,
        Algorithm::FixedWindow => &TAKE_FIXED_WINDOW,
    }
}

/// The algorithm of a count; that of the script which decides about others.
pub(super) fn algorithm_of(spec: &Spec) -> Algorithm {
    let windows = spec.windows();
    windows.map_or_else(Algorithm::default, Windows::algorithm)
}

impl CallKind {
    /// The kind of call that this take or refund needs.
    pub(super) fn new(question: &Question) -> Self {
        let asked = CountQuestion::in_call(question);
        let CountQuestion { now, what, .. } = asked;
        let count = asked.first();
        let renews = matches!(what, CountOperation::Renew { .. });
        let is_take = !renews && !matches!(what, CountOperation::Refund { .. });
        Self {
            gives_back: (!is_take).then(|| StateKind::from_spec(&count.spec)),
            renews,
            needs_core: is_take && asked.needs_core(),
            holds: is_take && asked.counts.iter().any(|it| it.spec.may_be_held()),
            algorithm: algorithm_of(&count.spec),
            now: *now,
            options: question.options,
            slot: question.slot,
        }
    }

    /// The script that such a call runs.
    fn script(self) -> &'static Script {
        let refund = match self.algorithm {
            Algorithm::SlidingLog => &REFUND_SLIDING_LOG,
            Algorithm::SlidingWindow => &REFUND_SLIDING_WINDOW,
            Algorithm::Gcra => &REFUND_GCRA,
            Algorithm::FixedWindow => &REFUND_FIXED_WINDOW,
        };
        match self.gives_back {
            None => script_of(self.algorithm),
            Some(_) if self.renews => &RENEW_PERMITS,
            Some(kind) => refund_of(kind).unwrap_or(refund),
        }
    }

    pub(super) fn is_take(self) -> bool {
        self.gives_back.is_none()
    }

    /// The command that announces permits which are given back.
    pub(super) fn announces_by(self) -> Option<&'static str> {
        let releases = self.is_of_permits() && !self.renews;
        releases.then(|| publish_command(self.slot.is_some()))
    }

    /// Whether it is about permits of requests in progress, which have one key for each count.
    pub(super) fn is_of_permits(self) -> bool {
        self.gives_back == Some(StateKind::Permits)
    }

    /// The beginning of such a call with this number of keys. It has room for `bytes` of keys and
    /// arguments.
    pub(super) fn command(self, keys: usize, bytes: usize) -> Cmd {
        self.script().command(self.options.has_text, keys, bytes)
    }
}

impl KeyTakes {
    /// What is asked first.
    pub(super) fn first(&self) -> &CountQuestion {
        CountQuestion::in_call(&self.questions[0])
    }

    /// What they are decided over.
    pub(super) fn counts(&self) -> &[CountKey] {
        &self.first().counts
    }

    /// Adds a take with this deadline by the server's clock. It joins the last row only if its cost
    /// is the same, since the script answers the takes of a row as one.
    fn push(&mut self, question: Question, deadline: u64) {
        let cost = CountQuestion::in_call(&question).first().cost;
        match self.rows.last_mut() {
            Some(row) if row.has_room_for(cost, deadline) => {
                row.takes += 1;
                row.deadline = row.deadline.min(deadline);
            }
            _ => self.rows.push(Row {
                cost,
                takes: 1,
                deadline,
            }),
        }
        self.questions.push(question);
    }
}

impl Row {
    /// Whether a take of this cost, with this deadline, is answered like the takes before it.
    fn has_room_for(&self, cost: u64, deadline: u64) -> bool {
        self.cost == cost && self.deadline.abs_diff(deadline) <= DEADLINE_SPREAD
    }
}

impl TakeCall {
    /// A call with one key, without takes yet.
    pub(super) fn new(kind: CallKind) -> Self {
        Self {
            id: CallId::next(),
            kind,
            keys: smallvec![KeyTakes::default()],
            number_of_counts: 0,
            names_twice: false,
            number_of_takes: 0,
        }
    }

    /// Whether a question about the counts of the key with this index can join the takes there. If
    /// not, as under another rule and beside units owed, the key is in the call once more.
    pub(super) fn joins(&self, key: usize, question: &Question, clock: &ServerClock) -> bool {
        let (takes, asked) = (&self.keys[key], CountQuestion::in_call(question));
        if self.number_of_takes >= MAX_TAKES || takes.first().owes() || asked.owes() {
            return false;
        }
        let (known, counts) = (takes.counts(), &asked.counts);
        if !asked.needs_core() {
            return Arc::ptr_eq(&known[0].spec, &counts[0].spec);
        }
        let mut alike = known.iter().zip(counts);
        // Each holder of a permit is told apart.
        takes.first().holder().is_none()
            && known.len() == counts.len()
            && alike.all(|(known, it)| known.asks_like(it))
            && takes.rows[0].has_room_for(counts[0].cost, deadline(question, clock))
    }

    /// The index of a further key over so many counts, of which some are in the call already.
    pub(super) fn named_again(&mut self, counts: usize) -> Option<usize> {
        let key = self.new_key(counts)?;
        self.names_twice = true;
        Some(key)
    }

    /// The index of a further key over so many counts, if there is room. A take has to be added to
    /// it.
    pub(super) fn new_key(&mut self, counts: usize) -> Option<usize> {
        if self.number_of_counts + counts > MAX_KEYS || self.number_of_takes >= MAX_TAKES {
            return None;
        }
        self.keys.push(KeyTakes::default());
        Some(self.keys.len() - 1)
    }

    /// Adds a take to those of the key with this index.
    pub(super) fn push(&mut self, key: usize, question: Question, clock: &ServerClock) {
        let deadline = deadline(&question, clock);
        self.number_of_takes += 1;
        let takes = &mut self.keys[key];
        let is_new = takes.questions.is_empty();
        takes.push(question, deadline);
        if is_new {
            self.number_of_counts += takes.counts().len();
        }
    }

    /// The server's clock and the reply to each take, if this is the reply to this call.
    pub(super) fn read(&self, reply: &Value) -> Option<(u64, SmallVec<[TakeReply; 1]>)> {
        let mut replies = SmallVec::with_capacity(self.number_of_takes);
        let Value::BulkString(bytes) = reply else {
            return None;
        };
        let now = read_replies(bytes, self.id.number(), &self.keys, &mut replies)?;
        Some((now, replies))
    }

    /// The counts of the key with this index.
    pub(super) fn counts(&self, key: usize) -> &[CountKey] {
        self.keys[key].counts()
    }
}

impl FlightCall for TakeCall {
    /// The script call: keys, questions, and a test's clock if there is one.
    fn command(&self, clock: &ServerClock) -> Cmd {
        let keys = match self.kind.holds {
            true => 2 * self.number_of_counts,
            false => self.number_of_counts,
        };
        let mut command = self.kind.command(keys, 192 * keys + 64);
        let counts = || self.keys.iter().flat_map(KeyTakes::counts);
        for count in counts() {
            command.arg(count);
        }
        if self.kind.holds {
            for count in counts() {
                command.arg(hold_key(&count.text()));
            }
        }
        let mut questions = Vec::with_capacity(96 + 32 * self.number_of_counts);
        let now = || self.kind.now.unwrap_or_else(|| clock.at(Instant::now()));
        let id = self.id.number();
        write_questions(id, &self.keys, self.names_twice, &now, &mut questions);
        command.arg(questions);
        if let Some(now) = self.kind.now {
            command.arg(now);
        }
        command
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(bytes) if id_in(bytes) == Some(self.id.number()))
    }

    /// Hands out the replies. A take that is late by the server's clock and not by this process's
    /// is sent again. An error about one key is the reply to the takes of that key only.
    ///
    /// If the reply is not that of this call or cannot be read, all takes get an error, and the
    /// connection is closed.
    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier) {
        let Some((now, replies)) = self.read(&reply) else {
            return carrier.condemn(self.into_questions());
        };
        if self.kind.now.is_none() {
            carrier.clock().learn(now, trip.asked, trip.answered);
        }
        let retry_until = trip.answered + 2 * Duration::from_micros(DEADLINE_SPREAD);
        let answer = |question: Question, reply| match reply {
            TakeReply::Decided(decisions) => {
                let decision = CountQuestion::in_call(&question).decision(decisions);
                decided(question, decision, trip, carrier);
            }
            TakeReply::Owed(charged) => question.reply(Ok(charged)),
            TakeReply::Outside => carrier.ask_anew(question, OUTSIDE_TWICE),
            TakeReply::Late => carrier.send_again(question, retry_until),
            TakeReply::Failed(error) => question.fail(carrier.error(error)),
        };
        let mut replies = replies.into_iter();
        for key in self.keys {
            let questions = key.questions.into_iter();
            questions
                .zip(&mut replies)
                .for_each(|(question, reply)| answer(question, reply));
        }
    }

    fn shape(&self) -> (SendOptions, usize) {
        (self.kind.options, self.number_of_counts)
    }

    fn into_questions(self) -> Vec<Question> {
        let keys = self.keys.into_iter();
        keys.flat_map(|key| key.questions).collect()
    }
}
