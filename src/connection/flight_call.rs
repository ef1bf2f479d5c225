use std::collections::HashMap;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use redis::{Arg, Cmd};

use super::question::{CallQuestion, CountKey, Question, QuestionBody, SendOptions};
use super::server_clock::ServerClock;
use super::take_call::{CallKind, TakeCall};

/// A script call or command, with the questions that it answers.
///
/// A flight knows pipelines and replies, and treats its calls alike: each has options, a number of
/// keys, and questions to answer. Only here, and where answers are read, is there a difference
/// between many takes that share a call and one question that has a call of its own.
pub(super) enum FlightCall {
    Takes(TakeCall),
    One(Question),
}

/// Groups questions into calls, in the order in which the calls are sent.
///
/// ```text
/// arrived   take a, take b, refund a, take a, take b, take c, reset b
/// calls     EVALSHA(take a, take b, take b), refund a, EVALSHA(take a, take c), reset b
/// ```
///
/// The questions about one count are sent in the order in which they arrived. The order of
/// different counts changes, which nobody can observe: an answer depends on its own count alone.
pub(super) fn flight_calls(questions: Vec<Question>, clock: &ServerClock) -> Vec<FlightCall> {
    let mut grouping = Grouping {
        calls: Vec::new(),
        open: HashMap::new(),
        counts: HashTable::new(),
        clock,
    };
    let is_lone = questions.len() == 1;
    for question in questions {
        match &question.body {
            _ if is_lone => grouping.push(question),
            QuestionBody::Take(..) => grouping.add_take(question),
            QuestionBody::Call(..) => grouping.add_call(question),
        }
    }
    grouping.calls
}

/// The calls of a flight while it is filled.
struct Grouping<'a> {
    calls: Vec<FlightCall>,
    /// The last call of each kind: takes of further keys join it.
    open: HashMap<CallKind, usize>,
    /// Where the last question about each count stands.
    counts: HashTable<Place>,
    clock: &'a ServerClock,
}

/// Where a question stands: the index of its call, and for takes the index of their key in it.
#[derive(Clone, Copy)]
struct Place {
    call: usize,
    key: usize,
    hash: u64,
}

impl Grouping<'_> {
    /// Adds a take to the takes of its key that came before, if they are the last questions about
    /// their count. Otherwise it joins a call that is sent behind those questions.
    fn add_take(&mut self, question: Question) {
        let kind = CallKind::of(&question);
        let hash = question.take().count.name.hash();
        let calls = &self.calls;
        let count = &question.take().count;
        let has_count = |place: &Place| calls[place.call].count(place.key) == Some(count);
        let known = self.counts.entry(hash, has_count, |place| place.hash);
        let before = match &known {
            Entry::Occupied(place) => Some(*place.get()),
            Entry::Vacant(_) => None,
        };
        let is_alone = question.options.is_alone;
        if let Some(place) = before
            && !is_alone
            && let FlightCall::Takes(call) = &mut self.calls[place.call]
            && call.takes_more_of(place.key, &question)
        {
            return call.push(place.key, question, self.clock);
        }
        let behind = before.map_or(0, |place| place.call + 1);
        let open = self.open.get(&kind).copied();
        let open = open.filter(|at| *at >= behind && !is_alone);
        let (call, key) = match open.map(|at| (at, &mut self.calls[at])) {
            Some((at, FlightCall::Takes(call))) if call.has_room_for_a_key() => {
                (at, call.push_key(question, self.clock))
            }
            _ => {
                if !is_alone {
                    self.open.insert(kind, self.calls.len());
                }
                let mut call = TakeCall::new(kind);
                let key = call.push_key(question, self.clock);
                self.calls.push(FlightCall::Takes(call));
                (self.calls.len() - 1, key)
            }
        };
        known.insert(Place { call, key, hash });
    }

    /// Adds a question that shares its call with no other. Takes of the count that it changes do
    /// not join those before it any more.
    fn add_call(&mut self, question: Question) {
        if let QuestionBody::Call(call, _) = &question.body
            && let Some(count) = &call.count
        {
            let (hash, calls) = (count.name.hash(), &self.calls);
            let has_count = |place: &Place| calls[place.call].count(place.key) == Some(count);
            let known = self.counts.entry(hash, has_count, |place| place.hash);
            known.insert(Place {
                call: calls.len(),
                key: 0,
                hash,
            });
        }
        self.calls.push(FlightCall::One(question));
    }

    /// Adds the only question of a flight.
    fn push(&mut self, question: Question) {
        self.calls.push(match &question.body {
            QuestionBody::Take(..) => {
                let mut call = TakeCall::new(CallKind::of(&question));
                call.push_key(question, self.clock);
                FlightCall::Takes(call)
            }
            QuestionBody::Call(..) => FlightCall::One(question),
        });
    }
}

impl FlightCall {
    /// The count that the key with this index is about.
    fn count(&self, key: usize) -> Option<&CountKey> {
        match self {
            Self::Takes(call) => Some(call.count(key)),
            Self::One(question) => question.changed_count(),
        }
    }

    /// The command of the call, with the deadline by the server's clock where the script takes one.
    pub(super) fn command(&self, clock: &ServerClock) -> Cmd {
        let question = match self {
            Self::Takes(call) => return call.command(),
            Self::One(question) => question,
        };
        let QuestionBody::Call(call, _) = &question.body else {
            return Cmd::new();
        };
        let is_rare = call.script.is_some_and(|script| script.is_rare);
        let mut command = match question.options.has_text || is_rare {
            true => with_text(call),
            false => call.command.clone(),
        };
        if call.script.is_some_and(|script| script.has_deadline) {
            command.arg(clock.at(question.deadline.into_std()));
        }
        command
    }

    /// How the call is sent. All its questions have the same options.
    pub(super) fn options(&self) -> SendOptions {
        match self {
            Self::Takes(call) => call.options(),
            Self::One(question) => question.options,
        }
    }

    /// How many keys the call has. A command counts as one key.
    ///
    /// Only a call with several keys can be refused because of somebody else's key.
    pub(super) fn number_of_keys(&self) -> usize {
        match self {
            Self::Takes(call) => call.number_of_keys(),
            Self::One(_) => 1,
        }
    }

    /// The questions that the call answers.
    pub(super) fn into_questions(self) -> Vec<Question> {
        match self {
            Self::Takes(call) => call.into_questions(),
            Self::One(question) => vec![question],
        }
    }
}

/// The same call with the script's text in place of its hash.
///
/// The hash is the second argument of the command, so everything behind it stays as it is. Later
/// calls find the script in the server's cache: `EVAL` puts it there.
fn with_text(call: &CallQuestion) -> Cmd {
    let Some(script) = call.script else {
        return call.command.clone();
    };
    let mut command = redis::cmd("EVAL");
    command.arg(script.source());
    for argument in call.command.args_iter().skip(2) {
        if let Arg::Simple(argument) = argument {
            command.arg(argument);
        }
    }
    command
}
