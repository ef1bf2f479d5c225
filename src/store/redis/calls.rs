use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use redis::{Cmd, Value};

use super::question::{Change, CountKey, CountQuestion};
use super::refund_call::RefundCall;
use super::take_call::{CallKind, TakeCall};
use crate::connection::{
    CallQuestion, Carrier, Flight, FlightCall, FlightCalls, OwnCall, Question, Questions,
    SendOptions, ServerClock,
};
use crate::rule::Rule;

/// The flight of questions about counts, and of calls that travel with them. It is the source of
/// the questions of all stores.
pub(super) fn flight(questions: Questions, carrier: Carrier) -> BoxFuture<'static, ()> {
    let calls = calls_of(questions, carrier.clock());
    Flight::boxed(calls, carrier)
}

/// Groups questions into calls, in the order in which the calls are sent.
///
/// ```text
/// arrived   take a, take b, refund a, take a, take b, take c, refund b, reset b
/// calls     EVALSHA(take a, take b, take b), EVALSHA(refund a, refund b), EVALSHA(take a, take c),
///           reset b
/// ```
///
/// Takes of one key under several rules, as those of its plans, put the key into their call
/// more than once.
///
/// The questions about one count are sent in the order in which they arrived. The order of
/// different counts changes, which nobody can observe: an answer depends on its own count alone.
fn calls_of(questions: Questions, clock: &ServerClock) -> FlightCalls<CountCall> {
    let mut grouping = Grouping {
        calls: FlightCalls::new(),
        open: HashMap::new(),
        counts: HashTable::new(),
        clock,
    };
    let is_lone = questions.len() == 1;
    for question in questions {
        match CountQuestion::of(&question).map(|asked| &asked.what) {
            Some(Change::Take { .. } | Change::Refund { .. }) if is_lone => {
                let mut call = CountCall::new(CallKind::of(&question));
                call.push(0, question, clock);
                grouping.calls.push(call);
            }
            Some(_) => grouping.add(question),
            None => grouping.calls.push(CountCall::own(question)),
        }
    }
    grouping.calls
}

/// The calls of a flight while it is filled.
struct Grouping<'a> {
    calls: FlightCalls<CountCall>,
    /// The last call of each kind: takes, or refunds, of further keys join it.
    open: HashMap<CallKind, usize>,
    /// Where the last question about each count stands.
    counts: HashTable<Place>,
    clock: &'a ServerClock,
}

/// Where a question stands: the index of its call, and of its key in a call that it shares.
#[derive(Clone, Copy)]
struct Place {
    call: usize,
    key: usize,
    hash: u64,
}

impl Grouping<'_> {
    /// Adds a question to those of its count that came before, if it is of their kind. Otherwise it
    /// joins a call that is sent behind them, or gets one of its own.
    fn add(&mut self, question: Question) {
        let asked = CountQuestion::in_call(&question);
        let (kind, hash) = (CallKind::of(&question), asked.count.name.hash());
        let calls = &self.calls;
        let has_count = |place: &Place| calls[place.call].count(place.key) == Some(&asked.count);
        let known = self.counts.entry(hash, has_count, |place| place.hash);
        let before = match &known {
            Entry::Occupied(place) => Some(*place.get()),
            Entry::Vacant(_) => None,
        };
        if let Change::Reset(_) = asked.what {
            let call = self.calls.len();
            known.insert(Place { call, key: 0, hash });
            return self.calls.push(CountCall::own(question));
        }
        let is_alone = question.options.is_alone;
        let same = before.filter(|place| !is_alone && self.calls[place.call].is_of(kind));
        let behind = before.map_or(0, |place| place.call + 1);
        let rule = &asked.count.name.rule;
        let joined = same.and_then(|place| {
            let key = self.calls[place.call].behind(place.key, rule)?;
            Some((place.call, key))
        });
        let joined = joined.or_else(|| {
            let open = self.open.get(&kind).copied();
            let open = open.filter(|at| *at >= behind && !is_alone)?;
            Some((open, self.calls[open].new_key()?))
        });
        let (call, key) = joined.unwrap_or_else(|| {
            if !is_alone {
                self.open.insert(kind, self.calls.len());
            }
            self.calls.push(CountCall::new(kind));
            (self.calls.len() - 1, 0)
        });
        known.insert(Place { call, key, hash });
        self.calls[call].push(key, question, self.clock);
    }
}

/// A call with questions about counts, or of one question that is about none.
///
/// A flight treats its calls alike. Only here is there a difference between many takes or refunds
/// that share a call and one question that has a call of its own.
enum CountCall {
    Takes(TakeCall),
    Refunds(RefundCall),
    Own(OwnCall),
}

impl CountCall {
    /// A call for takes or refunds of this kind. It has one key, without a question yet.
    fn new(kind: CallKind) -> Self {
        match kind.is_refund {
            true => Self::Refunds(RefundCall::new(kind)),
            false => Self::Takes(TakeCall::new(kind)),
        }
    }

    /// The call of a question that shares it with no other.
    fn own(question: Question) -> Self {
        fn call(question: &Question) -> Option<&CallQuestion> {
            match &CountQuestion::of(question)?.what {
                Change::Reset(call) => Some(call),
                _ => None,
            }
        }
        Self::Own(OwnCall::new(question, |question| {
            question.content().or_else(|| call(question))
        }))
    }

    /// Whether its questions are of this kind.
    fn is_of(&self, kind: CallKind) -> bool {
        match self {
            Self::Takes(call) => call.kind == kind,
            Self::Refunds(call) => call.kind == kind,
            Self::Own(_) => false,
        }
    }

    /// The count that the key with this index is about.
    fn count(&self, key: usize) -> Option<&CountKey> {
        match self {
            Self::Takes(call) => Some(call.count(key)),
            Self::Refunds(call) => Some(call.count(key)),
            Self::Own(call) => CountQuestion::of(call.question()).map(|asked| &asked.count),
        }
    }

    /// The index of the key for a further question about this key under this rule, if there is
    /// room.
    fn behind(&mut self, key: usize, rule: &Arc<Rule>) -> Option<usize> {
        match self {
            Self::Takes(call) => call.behind(key, rule),
            Self::Refunds(call) => call.has_room().then_some(key),
            Self::Own(_) => None,
        }
    }

    /// The index of a further key, if there is room.
    fn new_key(&mut self) -> Option<usize> {
        match self {
            Self::Takes(call) => call.new_key(),
            Self::Refunds(call) => call.new_key(),
            Self::Own(_) => None,
        }
    }

    /// Adds a question to those of the key with this index.
    fn push(&mut self, key: usize, question: Question, clock: &ServerClock) {
        match self {
            Self::Takes(call) => call.push(key, question, clock),
            Self::Refunds(call) => call.push(key, question),
            Self::Own(_) => unreachable!("it has room for no other question"),
        }
    }
}

impl FlightCall for CountCall {
    fn command(&self, clock: &ServerClock) -> Cmd {
        match self {
            Self::Takes(call) => call.command(),
            Self::Refunds(call) => call.command(),
            Self::Own(call) => call.command(clock),
        }
    }

    fn shape(&self) -> (SendOptions, usize) {
        match self {
            Self::Takes(call) => call.shape(),
            Self::Refunds(call) => call.shape(),
            Self::Own(call) => call.shape(),
        }
    }

    fn is_numbered(&self) -> bool {
        !matches!(self, Self::Own(call) if !call.is_numbered())
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        match self {
            Self::Takes(call) => call.is_answered_by(reply),
            Self::Refunds(call) => call.is_answered_by(reply),
            Self::Own(call) => call.is_answered_by(reply),
        }
    }

    fn hand_out(self, reply: Value, asked: Instant, carrier: &Carrier) {
        match self {
            Self::Takes(call) => call.hand_out(&reply, asked, carrier),
            Self::Refunds(call) => call.hand_out(reply, carrier),
            Self::Own(call) => call.hand_out(reply, asked, carrier),
        }
    }

    fn into_questions(self) -> Vec<Question> {
        match self {
            Self::Takes(call) => call.into_questions(),
            Self::Refunds(call) => call.into_questions(),
            Self::Own(call) => call.into_questions(),
        }
    }
}
