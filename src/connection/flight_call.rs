use redis::{Arg, Cmd};

use super::question::{CallQuestion, Question, QuestionBody, SendOptions};
use super::server_clock::ServerClock;
use super::sort_key::{SortKey, sort_keys};
use super::take_call::TakeCall;

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
/// round 0   EVALSHA(take a, take b, take b, take c), refund a, reset b
/// round 1   EVALSHA(take a)
/// ```
///
/// Within a round the order of different keys changes, which nobody can observe: a key's answers
/// depend on that key alone. The questions of one key that come here in a row stay in a row.
pub(super) fn flight_calls(questions: Vec<Question>, clock: &ServerClock) -> Vec<FlightCall> {
    let mut sort_keys = sort_keys(&questions);
    sort_keys.sort_unstable();
    let mut questions: Vec<_> = questions.into_iter().map(Some).collect();
    let mut calls = Vec::new();
    let mut before: Option<&SortKey> = None;
    for sort_key in &sort_keys {
        let Some(question) = questions[sort_key.index].take() else {
            continue;
        };
        let is_same_call = before.is_some_and(|before| before.has_call_of(sort_key));
        let is_same_key = before.is_some_and(|before| before.has_key_of(sort_key));
        match calls.last_mut() {
            Some(FlightCall::Takes(call)) if is_same_call && call.has_room(is_same_key) => {
                call.push(question, clock, is_same_key);
            }
            _ => calls.push(FlightCall::new(question, clock)),
        }
        before = Some(sort_key);
    }
    calls
}

impl FlightCall {
    /// The call of one question.
    fn new(question: Question, clock: &ServerClock) -> Self {
        match question.body {
            QuestionBody::Take(..) => {
                let mut call = TakeCall::new();
                call.push(question, clock, false);
                Self::Takes(call)
            }
            QuestionBody::Call(..) => Self::One(question),
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
            Self::Takes(call) => call.questions,
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
