use std::collections::HashMap;
use std::time::Instant;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use redis::{Arg, Cmd, RedisError, RedisResult, Value};
use smallvec::SmallVec;

use super::call_id::{CallId, NumberedReply};
use super::errors::{is_about_a_key, is_unknown_script, needs_another_connection, store_error};
use super::link::{Commands, Link, Replies};
use super::node::Endpoint;
use super::question::{CallQuestion, CountKey, Question, QuestionBody, SendOptions};
use super::queue::Questions;
use super::refund_call::RefundCall;
use super::server_clock::ServerClock;
use super::take_call::{CallKind, TakeCall};

/// One pipeline with the questions of many callers. It hands out their answers.
///
/// No caller's future drives a flight: the dispatcher does. A caller that leaves changes nothing
/// for the others, and what was sent for it is executed.
///
/// ```text
/// questions in order of arrival
///    -> calls, in the order of arrival for each count
///    -> [ASKING] call, [ASKING] call, ... [check]    one pipeline
///    <- reply, reply, ...
///    -> is the last reply that of the last call?     if not: errors, and the link is closed
///    -> each call: answered | refused | late
///                  |          |         |
///                  send       again in  again with a
///                             another   corrected clock
///                             way
/// ```
///
/// The dispatcher owns it until its last reply has come, and drops it when the node is dropped; its
/// callers then get an error at once. Every question in it is answered or goes back into a queue
/// exactly once: the calls are consumed by value.
pub(super) struct Flight {
    /// In the order in which they are sent.
    calls: SmallVec<[FlightCall; 1]>,
    link: Link,
    endpoint: Endpoint,
}

/// The error code with which a script answers after its deadline.
const LATE: &str = "LATE";

impl Flight {
    /// Groups the questions into calls. `None` if there is no question.
    pub(super) fn new(questions: Questions, link: Link, endpoint: Endpoint) -> Option<Self> {
        let calls = flight_calls(questions, &link.inner.clock);
        (!calls.is_empty()).then_some(Self {
            calls,
            link,
            endpoint,
        })
    }

    /// Sends all calls and hands out the answers. It has no time limit of its own: each answer's
    /// future has one.
    pub(super) async fn run(self) {
        let mut commands = Commands::with_capacity(self.calls.len());
        for call in &self.calls {
            if call.options().is_asking {
                commands.push(redis::cmd("ASKING"));
            }
            commands.push(call.command(&self.link.inner.clock));
        }
        let check = self.needs_check().then(CallId::next);
        if let Some(id) = check {
            commands.push(id.check());
        }
        let asked = Instant::now();
        match self.link.send(commands).await {
            Ok(replies) => self.hand_out(replies, check, asked),
            // Nothing is sent again: it may have been executed.
            Err(error) => self.fail(&error),
        }
    }

    /// Whether there is a command whose reply does not repeat a number. A check is then sent behind
    /// all calls. Without such a command, the last call is the check.
    fn needs_check(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| matches!(call, FlightCall::One(question, _) if !question.is_script()))
    }

    /// Answers each question by its reply, if the last reply proves that the replies are those of
    /// this flight. Otherwise all its questions fail, and the connection is closed: the replies of
    /// later flights are not their own either.
    ///
    /// If the last reply is an error of the server, it proves nothing, and condemns nothing: the
    /// server may refuse one call, or all while it loads its data. Then errors are handed out, and
    /// the replies that repeat the number of their own call; commands get the error of the check.
    fn hand_out(self, mut replies: Replies, check: Option<CallId>, asked: Instant) {
        let is_in_step = self.is_in_step(&mut replies, check);
        if matches!(is_in_step, Ok(false)) {
            return self.condemn();
        }
        let Self {
            calls,
            link,
            endpoint,
        } = self;
        let mut replies = replies.into_iter();
        for call in calls {
            let mut next = || replies.next().unwrap_or(Value::Nil);
            // `ASKING` has a reply of its own. Where it is forbidden, the call is refused, too.
            let asking = call.options().is_asking.then(|| next().extract_error());
            let reply = match next() {
                Value::ServerError(error) => Err(error.into()),
                reply => Ok(reply),
            };
            match (asking.transpose().and(reply), call) {
                (Err(error), call) => handle_refusal(call, &error, &link, &endpoint),
                (Ok(reply), FlightCall::Takes(call)) => {
                    call.hand_out(&reply, asked, &link, &endpoint);
                }
                (Ok(reply), FlightCall::Refunds(call)) => call.hand_out(reply, &link, &endpoint),
                (Ok(reply), FlightCall::One(question, id)) if question.is_script() => {
                    hand_out_numbered(question, id, reply, asked, &link, &endpoint);
                }
                (Ok(reply), FlightCall::One(question, _)) => {
                    let error = |error: &RedisError| store_error(&endpoint.label, error.clone());
                    question.answer(is_in_step.as_ref().map(|_| reply).map_err(error));
                }
            }
        }
    }

    /// Whether the last reply is that of the last command. An error if the check was refused.
    fn is_in_step(&self, replies: &mut Replies, check: Option<CallId>) -> RedisResult<bool> {
        if let Some(id) = check {
            let reply = replies.pop().unwrap_or(Value::Nil).extract_error()?;
            return Ok(id.is_in(&reply));
        }
        Ok(match (self.calls.last(), replies.last()) {
            (_, Some(Value::ServerError(_))) => true,
            (Some(FlightCall::Takes(call)), Some(reply)) => call.is_answered_by(reply),
            (Some(FlightCall::Refunds(call)), Some(reply)) => call.is_answered_by(reply),
            (Some(FlightCall::One(_, id)), Some(reply)) => id.is_in(reply),
            _ => false,
        })
    }

    /// Answers all questions with the error that the replies belong to another flight, and closes
    /// the connection.
    fn condemn(self) {
        self.link.close();
        let questions = self.calls.into_iter().flat_map(FlightCall::into_questions);
        questions.for_each(|question| question.fail(self.endpoint.mismatched_reply()));
    }

    /// Answers all questions with an error of the connection.
    ///
    /// A broken connection does not tell which calls the server has executed. Sending them again
    /// could charge twice, so the callers get the error and decide for themselves.
    fn fail(self, error: &RedisError) {
        if needs_another_connection(error) {
            self.link.close();
        }
        let error = store_error(&self.endpoint.label, error.clone());
        let questions = self.calls.into_iter().flat_map(FlightCall::into_questions);
        questions.for_each(|question| question.fail(error.clone()));
    }
}

/// Answers the question by the reply of the script that was called with this number.
///
/// If the script was called after the deadline by the server's clock, but not by this process's,
/// the question is sent again, with the clock that came with the reply. If the reply belongs to
/// another call, the question fails, and the connection is closed.
fn hand_out_numbered(
    question: Question,
    id: CallId,
    reply: Value,
    asked: Instant,
    link: &Link,
    endpoint: &Endpoint,
) {
    let Some(NumberedReply { reply, now }) = id.read(reply) else {
        link.close();
        return question.fail(endpoint.mismatched_reply());
    };
    if let Some(now) = now {
        link.inner.clock.learn(now, asked, Instant::now());
    }
    match reply.extract_error() {
        Err(error) if error.code() == Some(LATE) => {
            match question.deadline.into_std() > Instant::now() {
                true => endpoint.send_again(question),
                false => question.fail(endpoint.deadline_over()),
            }
        }
        reply => question.answer(reply.map_err(|error| store_error(&endpoint.label, error))),
    }
}

/// Sends the questions of a call again that was refused as a whole, in another way or to another
/// node, or fails them if there is none. Nothing of a refused call was executed.
///
/// Three ways lead on: a cluster's redirection, the text of an unknown script, and a call of its
/// own for each key where one key of several may be the reason. What is left is the server's answer
/// to this very question, and its error.
fn handle_refusal(call: FlightCall, error: &RedisError, link: &Link, endpoint: &Endpoint) {
    if needs_another_connection(error) {
        link.close();
    }
    let is_shared = call.number_of_keys() > 1;
    #[cfg(feature = "cluster")]
    if let Some(redirects) = &endpoint.redirects
        && let Some(redirect) = redirects.redirect_in(error)
    {
        let questions = call.into_questions();
        return redirects.follow(&redirect, questions, is_shared, &endpoint.queue);
    }
    let mut options = call.options();
    options.has_text |= is_unknown_script(error);
    options.is_alone |= is_shared && is_about_a_key(error);
    let can_be_sent_otherwise = options != call.options();
    let error = store_error(&endpoint.label, error.clone());
    for mut question in call.into_questions() {
        question.options = options;
        match can_be_sent_otherwise {
            true => endpoint.queue.push(question),
            false => question.fail(error.clone()),
        }
    }
}

/// A script call or command, with the questions that it answers.
///
/// A flight knows pipelines and replies, and treats its calls alike: each has options, a number of
/// keys, and questions to answer. Only here, and where answers are read, is there a difference
/// between many takes or refunds that share a call and one question that has a call of its own.
pub(super) enum FlightCall {
    Takes(TakeCall),
    Refunds(RefundCall),
    /// A script repeats the number. A command does not know it.
    One(Question, CallId),
}

/// Groups questions into calls, in the order in which the calls are sent.
///
/// ```text
/// arrived   take a, take b, refund a, take a, take b, take c, refund b, reset b
/// calls     EVALSHA(take a, take b, take b), EVALSHA(refund a, refund b), EVALSHA(take a, take c),
///           reset b
/// ```
///
/// Takes of one key under several rules, as those of its plans, make the key stand in their call
/// more than once.
///
/// The questions about one count are sent in the order in which they arrived. The order of
/// different counts changes, which nobody can observe: an answer depends on its own count alone.
pub(super) fn flight_calls(questions: Questions, clock: &ServerClock) -> SmallVec<[FlightCall; 1]> {
    let mut grouping = Grouping {
        calls: SmallVec::new(),
        open: HashMap::new(),
        counts: HashTable::new(),
        clock,
    };
    let is_lone = questions.len() == 1;
    for question in questions {
        match &question.body {
            _ if is_lone => grouping.push(question),
            QuestionBody::Take(..) | QuestionBody::Refund(..) => grouping.add_shared(question),
            QuestionBody::Call(..) => grouping.add_call(question),
        }
    }
    grouping.calls
}

/// The calls of a flight while it is filled.
struct Grouping<'a> {
    calls: SmallVec<[FlightCall; 1]>,
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
    /// Adds a take, or a refund, to those of its key that came before, if they are the last
    /// questions about their count. Otherwise it joins a call that is sent behind those questions.
    fn add_shared(&mut self, question: Question) {
        let Some(count) = question.count() else {
            return;
        };
        let kind = CallKind::of(&question);
        let hash = count.name.hash();
        let calls = &self.calls;
        let has_count = |place: &Place| calls[place.call].count(place.key) == Some(count);
        let known = self.counts.entry(hash, has_count, |place| place.hash);
        let before = match &known {
            Entry::Occupied(place) => Some(*place.get()),
            Entry::Vacant(_) => None,
        };
        let is_alone = question.options.is_alone;
        if let Some(place) = before
            && !is_alone
            && self.calls[place.call].has_room_for(Some(place.key), &question)
        {
            return self.calls[place.call].push(place.key, question, self.clock);
        }
        if let Some(place) = before
            && !is_alone
            && let FlightCall::Takes(call) = &mut self.calls[place.call]
            && call.takes_key_again(&question)
        {
            let key = call.push_key_again(question, self.clock);
            known.insert(Place { key, ..place });
            return;
        }
        let behind = before.map_or(0, |place| place.call + 1);
        let open = self.open.get(&kind).copied();
        let open = open.filter(|at| *at >= behind && !is_alone);
        let open = open.filter(|at| self.calls[*at].has_room_for(None, &question));
        let call = open.unwrap_or_else(|| {
            if !is_alone {
                self.open.insert(kind, self.calls.len());
            }
            self.calls.push(FlightCall::shared(&question));
            self.calls.len() - 1
        });
        let key = self.calls[call].push_key(question, self.clock);
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
        self.calls.push(FlightCall::One(question, CallId::next()));
    }

    /// Adds the only question of a flight.
    fn push(&mut self, question: Question) {
        self.calls.push(match &question.body {
            QuestionBody::Take(..) | QuestionBody::Refund(..) => {
                let mut call = FlightCall::shared(&question);
                call.push_key(question, self.clock);
                call
            }
            QuestionBody::Call(..) => FlightCall::One(question, CallId::next()),
        });
    }
}

impl FlightCall {
    /// An empty call for this take or refund, which shares it with others of its kind.
    fn shared(question: &Question) -> Self {
        let kind = CallKind::of(question);
        match question.body {
            QuestionBody::Refund(..) => Self::Refunds(RefundCall::new(kind)),
            _ => Self::Takes(TakeCall::new(kind)),
        }
    }

    /// Whether this question may be added to those of the key with this index, or without one as
    /// the first of a key.
    fn has_room_for(&self, key: Option<usize>, question: &Question) -> bool {
        match (self, key) {
            (Self::Takes(call), Some(key)) => call.takes_more_of(key, question),
            (Self::Takes(call), None) => call.has_room_for_a_key(),
            (Self::Refunds(call), _) => call.has_room_for(question),
            (Self::One(..), _) => false,
        }
    }

    /// Adds a question to those of the key with this index.
    fn push(&mut self, key: usize, question: Question, clock: &ServerClock) {
        match self {
            Self::Takes(call) => call.push(key, question, clock),
            Self::Refunds(call) => call.push(key, question),
            Self::One(..) => unreachable!("it has room for no other question"),
        }
    }

    /// Adds the first question of a key, and returns the key's index.
    fn push_key(&mut self, question: Question, clock: &ServerClock) -> usize {
        match self {
            Self::Takes(call) => call.push_key(question, clock),
            Self::Refunds(call) => call.push_count(question),
            Self::One(..) => unreachable!("it has room for no other question"),
        }
    }

    /// The count that the key with this index is about.
    fn count(&self, key: usize) -> Option<&CountKey> {
        match self {
            Self::Takes(call) => Some(call.count(key)),
            Self::Refunds(call) => Some(call.count(key)),
            Self::One(question, _) => question.count(),
        }
    }

    /// The command of the call, with the deadline by the server's clock where the script takes one.
    pub(super) fn command(&self, clock: &ServerClock) -> Cmd {
        let (question, id) = match self {
            Self::Takes(call) => return call.command(),
            Self::Refunds(call) => return call.command(),
            Self::One(question, id) => (question, id),
        };
        let QuestionBody::Call(call, _) = &question.body else {
            return Cmd::new();
        };
        let is_rare = call.script.is_some_and(|script| script.is_rare);
        let mut command = match question.options.has_text || is_rare {
            true => with_text(call),
            false => call.command.clone(),
        };
        if let Some(script) = call.script {
            if script.has_deadline {
                command.arg(clock.at(question.deadline.into_std()));
            }
            command.arg(id.number());
        }
        command
    }

    /// How the call is sent. All its questions have the same options.
    pub(super) fn options(&self) -> SendOptions {
        match self {
            Self::Takes(call) => call.options(),
            Self::Refunds(call) => call.options(),
            Self::One(question, _) => question.options,
        }
    }

    /// How many keys the call has. A command counts as one key.
    ///
    /// Only a call with several keys can be refused because of somebody else's key.
    pub(super) fn number_of_keys(&self) -> usize {
        match self {
            Self::Takes(call) => call.number_of_keys(),
            Self::Refunds(call) => call.number_of_counts(),
            Self::One(..) => 1,
        }
    }

    /// The questions that the call answers.
    pub(super) fn into_questions(self) -> Vec<Question> {
        match self {
            Self::Takes(call) => call.into_questions(),
            Self::Refunds(call) => call.into_questions(),
            Self::One(question, _) => vec![question],
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
