use std::time::Instant;

use redis::{Arg, Cmd, Pipeline, RedisError, Value};

use super::endpoint::Endpoint;
use super::errors::{is_about_a_key, is_unknown_script, needs_another_connection, store_error};
use super::link::Link;
use super::question::{CallQuestion, Question, QuestionBody, SendOptions};
use super::reply::micros;
use super::server_clock::ServerClock;
use super::take_call::{TakeCall, take_calls};

/// One pipeline with the questions of many callers. It hands out their answers.
///
/// No caller's future drives a flight: the dispatcher does. A caller that leaves changes nothing
/// for the others, and what was sent for it is executed.
pub(super) struct Flight {
    /// Takes come first.
    calls: Vec<FlightCall>,
    link: Link,
    endpoint: Endpoint,
}

/// A script call or command, with the questions that it answers.
enum FlightCall {
    Takes(TakeCall),
    One(Question),
}

/// The error code with which a script answers after its deadline.
const LATE: &str = "LATE";

impl Flight {
    /// Groups the questions into calls. `None` if there is no question.
    pub(super) fn new(questions: Vec<Question>, link: Link, endpoint: Endpoint) -> Option<Self> {
        let is_take = |question: &Question| matches!(question.body, QuestionBody::Take(..));
        let (takes, others): (Vec<_>, Vec<_>) = questions.into_iter().partition(is_take);
        let takes = take_calls(takes, &link.inner.clock).into_iter();
        let calls: Vec<_> = takes
            .map(FlightCall::Takes)
            .chain(others.into_iter().map(FlightCall::One))
            .collect();
        (!calls.is_empty()).then_some(Self {
            calls,
            link,
            endpoint,
        })
    }

    /// Sends all calls and hands out the answers. It has no time limit of its own: each answer's
    /// future has one.
    pub(super) async fn run(self) {
        let mut pipeline = Pipeline::with_capacity(self.calls.len());
        for call in &self.calls {
            if call.options().is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(call.command(&self.link.inner.clock));
        }
        if !self.has_takes() {
            pipeline.cmd("TIME");
        }
        let asked = Instant::now();
        match self.link.ask(&pipeline).await {
            Ok(replies) => self.hand_out(replies, asked),
            // Nothing is sent again: it may have been executed.
            Err(error) => self.fail(&error),
        }
    }

    /// Whether the replies themselves show that they belong to these calls: replies to takes repeat
    /// a mark. Replies to other calls do not, so `TIME` is sent behind those: if its reply is not a
    /// time, the other replies belong to other calls.
    fn has_takes(&self) -> bool {
        matches!(self.calls.first(), Some(FlightCall::Takes(_)))
    }

    /// Answers each question by its reply. After a reply that belongs to another call, the
    /// remaining calls are not answered by their replies either: they fail, and the connection is
    /// closed.
    fn hand_out(self, mut replies: Vec<Value>, asked: Instant) {
        let has_takes = self.has_takes();
        let Self {
            calls,
            link,
            endpoint,
        } = self;
        let mut is_in_step = true;
        if !has_takes {
            let time = replies.pop().unwrap_or(Value::Nil);
            match micros(&time) {
                Some(now) => link.inner.clock.learn(now, asked, Instant::now()),
                None if matches!(time, Value::ServerError(_)) => {}
                None => {
                    is_in_step = false;
                    link.close();
                }
            }
        }
        let mut replies = replies.into_iter();
        for call in calls {
            let mut next = || replies.next().unwrap_or(Value::Nil).extract_error();
            // `ASKING` has a reply of its own. Where it is forbidden, the call is refused, too.
            let asking = call.options().is_asking.then(&mut next);
            let reply = next();
            match (asking.transpose().and(reply), call) {
                (Ok(_) | Err(_), FlightCall::One(question)) if !is_in_step => {
                    question.fail(endpoint.mismatched_reply());
                }
                (Err(error), FlightCall::One(question)) if error.code() == Some(LATE) => {
                    retry_if_time_is_left(question, &endpoint);
                }
                (Err(error), call) => handle_refusal(call, &error, &link, &endpoint),
                (Ok(reply), FlightCall::Takes(call)) => {
                    is_in_step &= call.hand_out(&reply, asked, &link, &endpoint);
                }
                (Ok(reply), FlightCall::One(question)) => {
                    if let QuestionBody::Call(_, sender) = question.body {
                        sender.send(Ok(reply));
                    }
                }
            }
        }
    }

    /// Answers all questions with an error of the connection.
    fn fail(self, error: &RedisError) {
        if needs_another_connection(error) {
            self.link.close();
        }
        let error = store_error(&self.endpoint.label, error.clone());
        let questions = self.calls.into_iter().flat_map(FlightCall::into_questions);
        questions.for_each(|question| question.fail(error.clone()));
    }
}

/// Sends a question again whose deadline is over by the server's clock, unless it is also over by
/// this process's.
fn retry_if_time_is_left(question: Question, endpoint: &Endpoint) {
    match question.deadline.into_std() > Instant::now() {
        true => endpoint.send_again(question),
        false => question.fail(endpoint.deadline_over()),
    }
}

/// Sends the questions of a call again that was refused as a whole, in another way or to another
/// node, or fails them if there is none. Nothing of a refused call was executed.
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

impl FlightCall {
    /// The command of the call, with the deadline by the server's clock where the script takes one.
    fn command(&self, clock: &ServerClock) -> Cmd {
        let question = match self {
            Self::Takes(call) => return call.command(),
            Self::One(question) => question,
        };
        let QuestionBody::Call(call, _) = &question.body else {
            return Cmd::new();
        };
        let mut command = match question.options.has_text {
            true => with_text(call),
            false => call.command.clone(),
        };
        if call.script.is_some_and(|script| script.has_deadline) {
            command.arg(clock.at(question.deadline.into_std()));
        }
        command
    }

    /// How the call is sent. All its questions have the same options.
    fn options(&self) -> SendOptions {
        match self {
            Self::Takes(call) => call.options(),
            Self::One(question) => question.options,
        }
    }

    /// How many keys the call has. A command counts as one key.
    fn number_of_keys(&self) -> usize {
        match self {
            Self::Takes(call) => call.number_of_keys(),
            Self::One(_) => 1,
        }
    }

    /// The questions that the call answers.
    fn into_questions(self) -> Vec<Question> {
        match self {
            Self::Takes(call) => call.questions,
            Self::One(question) => vec![question],
        }
    }
}

/// The same call with the script's text in place of its hash.
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
