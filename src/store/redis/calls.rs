use std::collections::HashMap;
use std::time::Instant;

use futures_util::future::BoxFuture;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::question::{Change, CountKey, CountQuestion};
use super::refund_call::RefundCall;
use super::take_call::{CallKind, TakeCall};
use crate::connection::{
    CallQuestion, Carrier, FlightCall, OwnCall, Question, Questions, SendOptions, ServerClock,
};

/// The flight of questions about counts, and of calls that travel with them. It is the source of
/// the questions of all stores.
pub(super) fn flight(questions: Questions, carrier: Carrier) -> BoxFuture<'static, ()> {
    let calls = calls_of(questions, carrier.clock());
    carrier.carry(calls)
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
/// more than once. So do takes over several counts that have one of them in common, as a take of
/// alice and everyone, and one of bob and everyone.
///
/// The questions about one count are sent in the order in which they arrived; a take over several
/// counts comes behind the last question about any of them. The order of
/// different counts changes, which nobody can observe: an answer depends on its own count alone.
fn calls_of(questions: Questions, clock: &ServerClock) -> SmallVec<[CountCall; 1]> {
    let mut grouping = Grouping {
        calls: SmallVec::new(),
        open: HashMap::new(),
        counts: HashTable::new(),
        clock,
    };
    let is_lone = questions.len() == 1;
    for question in questions {
        match CountQuestion::of(&question).map(|asked| &asked.what) {
            Some(what) if is_lone && !matches!(what, Change::Own(_)) => {
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
    calls: SmallVec<[CountCall; 1]>,
    /// The last call of each kind: takes, or refunds, of further keys join it.
    open: HashMap<CallKind, usize>,
    /// Where the last question about each count stands.
    counts: HashTable<CallPlace>,
    clock: &'a ServerClock,
}

/// Where a question stands: the index of its call, and of its key in a call that it shares; and
/// which of the counts of that key is meant.
#[derive(Clone, Copy)]
struct CallPlace {
    call: usize,
    key: usize,
    count: usize,
    hash: u64,
}

impl Grouping<'_> {
    /// Adds a question to those of its count that came before, if it is of their kind. Otherwise it
    /// joins a call that is sent behind them, or gets one of its own.
    fn add(&mut self, question: Question) {
        let asked = CountQuestion::in_call(&question);
        if asked.is_joint() {
            return self.add_joint(question);
        }
        let (kind, hash) = (CallKind::of(&question), asked.count.name.hash());
        let calls = &self.calls;
        let has_count = |place: &CallPlace| place.is_of(calls, &asked.count);
        let known = self.counts.entry(hash, has_count, |place| place.hash);
        let before = match &known {
            Entry::Occupied(place) => Some(*place.get()),
            Entry::Vacant(_) => None,
        };
        if let Change::Own(_) = asked.what {
            let call = self.calls.len();
            known.insert(CallPlace::new(call, 0, 0, hash));
            return self.calls.push(CountCall::own(question));
        }
        let is_alone = question.options.is_alone;
        let same = before.filter(|place| !is_alone && self.calls[place.call].is_of(kind));
        let behind = before.map_or(0, |place| place.call + 1);
        let joined = same.and_then(|place| {
            let key = self.calls[place.call].behind(place.key, asked)?;
            Some((place.call, key))
        });
        let joined = joined.or_else(|| {
            let open = self.open.get(&kind).copied();
            let open = open.filter(|at| *at >= behind && !is_alone)?;
            Some((open, self.calls[open].new_key(1)?))
        });
        let (call, key) = joined.unwrap_or_else(|| {
            if !is_alone {
                self.open.insert(kind, self.calls.len());
            }
            self.calls.push(CountCall::new(kind));
            (self.calls.len() - 1, 0)
        });
        known.insert(CallPlace::new(call, key, 0, hash));
        self.calls[call].push(key, question, self.clock);
    }

    /// Adds a question about a take over several counts.
    fn add_joint(&mut self, question: Question) {
        let asked = CountQuestion::in_call(&question);
        let (kind, counts) = (CallKind::of(&question), asked.counts());
        let hash = |count: &CountKey| count.name.hash();
        let calls = &self.calls;
        let known = counts.iter().map(|count| {
            let place = self.counts.find(hash(count), |it| it.is_of(calls, count));
            place.map(|place| (place.call, place.key))
        });
        let known: SmallVec<[_; 8]> = known.collect();
        let last = known.iter().flatten().max().copied();
        let is_alone = question.options.is_alone;
        let in_call = last.filter(|(call, _)| !is_alone && self.calls[*call].is_of(kind));
        let joined = in_call.and_then(|(call, key)| {
            // The takes before it are over the same counts, and nothing came in between.
            let is_same = known.iter().all(|place| *place == last);
            let same = is_same.then(|| self.calls[call].same(key, asked, &question, self.clock));
            let names_twice = || self.calls[call].named_again(counts.len());
            Some((call, same.flatten().or_else(names_twice)?))
        });
        let behind = last.map_or(0, |(call, _)| call + 1);
        let joined = joined.or_else(|| {
            let open = self.open.get(&kind).copied();
            let open = open.filter(|at| *at >= behind && !is_alone)?;
            Some((open, self.calls[open].new_key(counts.len())?))
        });
        let (call, key) = joined.unwrap_or_else(|| {
            if !is_alone {
                self.open.insert(kind, self.calls.len());
            }
            self.calls.push(CountCall::new(kind));
            (self.calls.len() - 1, 0)
        });
        self.calls[call].push(key, question, self.clock);
        let calls = &self.calls;
        for (at, count) in calls[call].counts(key).iter().enumerate() {
            let is_of = |place: &CallPlace| place.is_of(calls, count);
            let place = CallPlace::new(call, key, at, hash(count));
            let known = self.counts.entry(place.hash, is_of, |place| place.hash);
            known.insert(place);
        }
    }
}

impl CallPlace {
    const fn new(call: usize, key: usize, count: usize, hash: u64) -> Self {
        Self {
            call,
            key,
            count,
            hash,
        }
    }

    /// Whether a question about this count stands here.
    fn is_of(&self, calls: &[CountCall], count: &CountKey) -> bool {
        let counts = calls[self.call].counts(self.key);
        counts.get(self.count) == Some(count)
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
        match kind.is_take() {
            true => Self::Takes(TakeCall::new(kind)),
            false => Self::Refunds(RefundCall::new(kind)),
        }
    }

    /// The call of a question that shares it with no other.
    fn own(question: Question) -> Self {
        fn call(question: &Question) -> Option<&CallQuestion> {
            match &CountQuestion::of(question)?.what {
                Change::Own(call) => Some(call),
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

    /// The counts that the key with this index is about.
    fn counts(&self, key: usize) -> &[CountKey] {
        match self {
            Self::Takes(call) => call.counts(key),
            Self::Refunds(call) => std::slice::from_ref(call.count(key)),
            Self::Own(call) => {
                CountQuestion::of(call.question()).map_or(&[], CountQuestion::counts)
            }
        }
    }

    /// The index of the key for this further question about the count of a key, if there is room.
    fn behind(&mut self, key: usize, asked: &CountQuestion) -> Option<usize> {
        match self {
            Self::Takes(call) => call.behind(key, asked),
            Self::Refunds(call) => call.has_room().then_some(key),
            Self::Own(_) => None,
        }
    }

    /// This key, if a take over all of its counts can join the takes there.
    fn same(
        &self,
        key: usize,
        asked: &CountQuestion,
        question: &Question,
        clock: &ServerClock,
    ) -> Option<usize> {
        match self {
            Self::Takes(call) => call.joins(key, asked, question, clock).then_some(key),
            Self::Refunds(_) | Self::Own(_) => None,
        }
    }

    /// The index of a further key over so many counts, of which some are in the call already.
    fn named_again(&mut self, counts: usize) -> Option<usize> {
        match self {
            Self::Takes(call) => call.named_again(counts),
            Self::Refunds(_) | Self::Own(_) => None,
        }
    }

    /// The index of a further key over so many counts, if there is room.
    fn new_key(&mut self, counts: usize) -> Option<usize> {
        match self {
            Self::Takes(call) => call.new_key(counts),
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
            Self::Refunds(call) => call.command(clock),
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
