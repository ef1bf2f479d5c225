use std::collections::HashMap;

use futures_util::future::BoxFuture;
use hashbrown::HashTable;
use redis::{Cmd, Value};
use smallvec::{SmallVec, smallvec};

use super::lone_take::LoneTake;
use super::question::{CountKey, CountOperation, CountQuestion};
use super::refund_call::RefundCall;
use super::take_call::{CallKind, TakeCall};
use crate::connection::{
    CallQuestion, Carrier, FlightCall, Question, Questions, RoundTrip, SendOptions, ServerClock,
    UnsharedCall,
};

/// What a call does, of whichever kind it is.
macro_rules! of_each_kind {
    ($calls:expr, $call:ident => $does:expr) => {
        match $calls {
            CountCall::Takes($call) => $does,
            CountCall::Refunds($call) => $does,
            CountCall::Own($call) => $does,
        }
    };
}

/// The flight of questions about counts, and of calls that travel with them: the flight maker of
/// all stores.
pub(super) fn flight(mut questions: Questions, carrier: Carrier) -> BoxFuture<'static, ()> {
    if let [lone] = &questions[..]
        && CountQuestion::is_lone(lone)
        && let Some(lone) = questions.pop()
    {
        return carrier.carry_one(LoneTake::new(lone));
    }
    shared_flight(questions, carrier)
}

#[cold]
fn shared_flight(questions: Questions, carrier: Carrier) -> BoxFuture<'static, ()> {
    let mut calls = calls_of(questions, carrier.clock());
    match calls.len() {
        1 => of_each_kind!(calls.remove(0), call => carrier.carry(smallvec![call])),
        _ => carrier.carry(calls),
    }
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
    for question in questions {
        match CountQuestion::in_question(&question) {
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
    /// Adds a question to those of its counts that came before, if they are of its kind. Otherwise
    /// it joins a call that is sent behind them, or gets one of its own.
    fn add(&mut self, question: Question) {
        let asked = CountQuestion::in_call(&question);
        let calls = &self.calls;
        let known = asked.counts.iter().map(|count| {
            let is_it = |place: &CallPlace| place.is_of(calls, count);
            let place = self.counts.find(count.name.hash(), is_it);
            place.map(|place| (place.call, place.key))
        });
        let known: SmallVec<[_; 8]> = known.collect();
        let last = known.iter().flatten().max().copied();
        let (call, key) = match &asked.what {
            CountOperation::Own(_) => {
                self.calls.push(CountCall::own(question));
                (self.calls.len() - 1, 0)
            }
            _ => {
                // The takes before it are over the same counts, and nothing came in between.
                let is_same = known.iter().all(|place| *place == last);
                let place = self.place_of(&question, last, is_same);
                self.calls[place.0].push(place.1, question, self.clock);
                place
            }
        };
        let calls = &self.calls;
        for (count, it) in calls[call].counts(key).iter().enumerate() {
            let hash = it.name.hash();
            let is_it = |place: &CallPlace| place.is_of(calls, it);
            let known = self.counts.entry(hash, is_it, |place| place.hash);
            known.insert(CallPlace {
                call,
                key,
                count,
                hash,
            });
        }
    }

    /// The call and the key for a question, whose counts were asked about before at `last`: all of
    /// them there, if it `is_same`.
    fn place_of(
        &mut self,
        question: &Question,
        last: Option<(usize, usize)>,
        is_same: bool,
    ) -> (usize, usize) {
        let (asked, kind) = (CountQuestion::in_call(question), CallKind::new(question));
        let (counts, is_alone) = (asked.counts.len(), question.options.is_alone);
        if !is_alone {
            let in_call = last.filter(|(call, _)| self.calls[*call].is_of(kind));
            if let Some((call, key)) = in_call {
                let known = &mut self.calls[call];
                if is_same && known.joins(key, question, self.clock) {
                    return (call, key);
                }
                if let Some(key) = known.named_again(counts) {
                    return (call, key);
                }
            }
            let behind = last.map_or(0, |(call, _)| call + 1);
            let open = self.open.get(&kind).copied();
            if let Some(call) = open.filter(|at| *at >= behind)
                && let Some(key) = self.calls[call].new_key(counts)
            {
                return (call, key);
            }
            self.open.insert(kind, self.calls.len());
        }
        self.calls.push(CountCall::new(kind));
        (self.calls.len() - 1, 0)
    }
}

impl CallPlace {
    /// Whether a question about this count stands here.
    fn is_of(&self, calls: &[CountCall], count: &CountKey) -> bool {
        let counts = calls[self.call].counts(self.key);
        counts.get(self.count).is_some_and(|it| it.is(count))
    }
}

/// A call with questions about counts, or of one question that is about none.
///
/// A flight treats its calls alike. Only here is there a difference between many takes or refunds
/// that share a call and one question that has a call of its own.
enum CountCall {
    Takes(TakeCall),
    Refunds(RefundCall),
    Own(UnsharedCall),
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
            match &CountQuestion::in_question(question)?.what {
                CountOperation::Own(call) => Some(call),
                _ => None,
            }
        }
        Self::Own(UnsharedCall::new(question, |question| {
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
                CountQuestion::in_question(call.question()).map_or(&[], |asked| &asked.counts)
            }
        }
    }

    /// Whether a question about the counts of this key can join those there.
    fn joins(&self, key: usize, question: &Question, clock: &ServerClock) -> bool {
        match self {
            Self::Takes(call) => call.joins(key, question, clock),
            Self::Refunds(call) => call.has_room(),
            Self::Own(_) => false,
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
        of_each_kind!(self, call => call.command(clock))
    }

    fn shape(&self) -> (SendOptions, usize) {
        of_each_kind!(self, call => call.shape())
    }

    fn is_numbered(&self) -> bool {
        of_each_kind!(self, call => call.is_numbered())
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        of_each_kind!(self, call => call.is_answered_by(reply))
    }

    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier) {
        of_each_kind!(self, call => call.hand_out(reply, trip, carrier))
    }

    fn into_questions(self) -> Vec<Question> {
        of_each_kind!(self, call => call.into_questions())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flight of one call has it in its future.
    #[test]
    fn a_call_is_small() {
        let size = size_of::<CountCall>();
        assert!(size <= 240, "{size} bytes");
    }
}
