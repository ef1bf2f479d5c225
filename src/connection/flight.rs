//! One pipeline with the questions of many callers, and its answers.

use std::sync::Arc;
use std::time::Instant;

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::clock::ServerClock;
#[cfg(feature = "cluster")]
use super::cluster::Redirects;
use super::errors::store_error;
use super::link::{Link, micros};
use super::question::{Body, CallQuestion, Question, Way};
use super::queue::Queue;
use super::take_call::{TakeCall, take_calls};
use crate::error::{StoreError, StoreErrorKind};

/// What flights to a server have in common.
#[derive(Clone)]
pub(super) struct Home {
    /// For people.
    pub(super) address: Arc<str>,
    pub(super) queue: Arc<Queue>,
    /// Where questions go that another node of the cluster has to answer.
    #[cfg(feature = "cluster")]
    pub(super) redirects: Option<Redirects>,
}

/// The questions of one pipeline.
pub(super) struct Flight {
    /// Takes come first.
    calls: Vec<Call>,
    link: Link,
    home: Home,
}

/// A script call or command, with the questions that it answers.
enum Call {
    Takes(TakeCall),
    One(Question),
}

/// A question is asked again so often, if the server says that it is late and this process's clock
/// says that it is not.
const MAX_LATE: u8 = 3;

impl Flight {
    /// Groups the questions into calls; none if there is no question.
    pub(super) fn new(questions: Vec<Question>, link: Link, home: Home) -> Option<Self> {
        let is_take = |question: &Question| matches!(question.body, Body::Take(..));
        let (takes, others): (Vec<_>, Vec<_>) = questions.into_iter().partition(is_take);
        let takes = take_calls(takes, &link.shared.clock).into_iter();
        let calls: Vec<_> = takes
            .map(Call::Takes)
            .chain(others.into_iter().map(Call::One))
            .collect();
        (!calls.is_empty()).then_some(Self { calls, link, home })
    }

    /// Sends all and hands out the answers. It takes as long as the connection lets it: callers
    /// look at the time themselves.
    pub(super) async fn run(self) {
        let mut pipeline = redis::Pipeline::with_capacity(self.calls.len());
        for call in &self.calls {
            if call.way().is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(call.command(&self.link.shared.clock));
        }
        if !self.has_takes() {
            pipeline.cmd("TIME");
        }
        let asked = Instant::now();
        match self.link.ask(&pipeline).await {
            Ok(replies) => self.hand_out(replies, asked),
            // Nothing is sent again, because it may have been done.
            Err(error) => self.fail(&error),
        }
    }

    /// When one reply is not the one to its command, the others are not either. The replies to takes
    /// tell; those to other calls do not, so the server's time is asked behind them.
    fn has_takes(&self) -> bool {
        matches!(self.calls.first(), Some(Call::Takes(_)))
    }

    fn hand_out(self, mut replies: Vec<Value>, asked: Instant) {
        let has_takes = self.has_takes();
        let Self { calls, link, home } = self;
        let mut is_in_step = true;
        if !has_takes {
            let time = replies.pop().unwrap_or(Value::Nil);
            match micros(&time) {
                Some(now) => link.shared.clock.learn(now, asked, Instant::now()),
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
            // Both have a reply. Where `ASKING` is forbidden, the node sends its call away, too.
            let asking = call.way().is_asking.then(&mut next);
            let reply = next();
            match (asking.transpose().and(reply), call) {
                (Ok(_) | Err(_), Call::One(question)) if !is_in_step => {
                    question.fail(home.wrong_answer());
                }
                (Err(error), Call::One(question)) if error.code() == Some(LATE) => {
                    late(question, &home);
                }
                (Err(error), call) => refused(call, &error, &link, &home),
                (Ok(reply), Call::Takes(call)) => {
                    is_in_step &= call.answer(&reply, asked, &link, &home);
                }
                (Ok(reply), Call::One(question)) => {
                    if let Body::Call(_, caller) = question.body {
                        caller.answer(Ok(reply));
                    }
                }
            }
        }
    }

    fn fail(self, error: &RedisError) {
        if needs_another_connection(error) {
            self.link.close();
        }
        let error = store_error(&self.home.address, error.clone());
        let questions = self.calls.into_iter().flat_map(Call::into_questions);
        questions.for_each(|question| question.fail(error.clone()));
    }
}

/// What a script answers after its deadline.
const LATE: &str = "LATE";

/// The deadline is over by the server's clock.
fn late(question: Question, home: &Home) {
    match question.deadline.into_std() > Instant::now() {
        true => home.ask_again(question),
        false => question.fail(home.late()),
    }
}

/// A whole call was refused: nothing of it was done.
fn refused(call: Call, error: &RedisError, link: &Link, home: &Home) {
    if needs_another_connection(error) {
        link.close();
    }
    let is_shared = call.number_of_keys() > 1;
    #[cfg(feature = "cluster")]
    if let Some(redirects) = &home.redirects
        && let Some(redirect) = redirects.of(error)
    {
        return redirects.follow(&redirect, call.into_questions(), is_shared, home);
    }
    let mut way = call.way();
    way.has_text |= is_unknown_script(error);
    way.is_alone |= is_shared && is_about_a_key(error);
    let (is_another, error) = (way != call.way(), store_error(&home.address, error.clone()));
    for mut question in call.into_questions() {
        question.way = way;
        match is_another {
            true => home.queue.push(question),
            false => question.fail(error.clone()),
        }
    }
}

impl Home {
    /// The server says that the deadline is over, and this process's clock does not: the server's
    /// clock was set, or is another server's. By now it is known.
    pub(super) fn ask_again(&self, mut question: Question) {
        question.hops += 1;
        match question.hops <= MAX_LATE {
            true => self.queue.push(question),
            false => question.fail(self.late()),
        }
    }

    pub(super) fn wrong_answer(&self) -> StoreError {
        let address = &self.address;
        let message = format!("{address} gave an answer that is not the one to this question");
        StoreError::new(StoreErrorKind::Protocol, message)
    }

    pub(super) fn late(&self) -> StoreError {
        let address = &self.address;
        let message = format!("{address} did not answer in time: the deadline was over before");
        StoreError::new(StoreErrorKind::Timeout, message)
    }
}

impl Call {
    fn command(&self, clock: &ServerClock) -> Cmd {
        let question = match self {
            Self::Takes(call) => return call.command(),
            Self::One(question) => question,
        };
        let Body::Call(call, _) = &question.body else {
            return Cmd::new();
        };
        let mut command = match question.way.has_text {
            true => call.with_text(),
            false => call.command.clone(),
        };
        if call.script.is_some_and(|script| script.has_deadline) {
            command.arg(clock.at(question.deadline.into_std()));
        }
        command
    }

    fn way(&self) -> Way {
        match self {
            Self::Takes(call) => call.way(),
            Self::One(question) => question.way,
        }
    }

    fn number_of_keys(&self) -> usize {
        match self {
            Self::Takes(call) => call.number_of_keys(),
            Self::One(_) => 1,
        }
    }

    fn into_questions(self) -> Vec<Question> {
        match self {
            Self::Takes(call) => call.questions,
            Self::One(question) => vec![question],
        }
    }
}

impl CallQuestion {
    /// The same call with the script's text in place of its hash.
    fn with_text(&self) -> Cmd {
        let Some(script) = self.script else {
            return self.command.clone();
        };
        let mut command = redis::cmd("EVAL");
        command.arg(script.source());
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// One of several keys may be the reason, and the others need not suffer.
fn is_about_a_key(error: &RedisError) -> bool {
    let is_forbidden = error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm);
    is_forbidden
        || error
            .to_string()
            .contains("can't access at least one of the keys")
}

/// Not only broken connections: a server that became a replica, or lost its master, may be another
/// one by the time that it is asked again.
pub(super) fn needs_another_connection(error: &RedisError) -> bool {
    let broken = error.is_unrecoverable_error() || error.is_connection_dropped();
    let wrong_server = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    // Before version 7 the code of an error inside a script stands in the middle of its message.
    broken || wrong_server || error.to_string().contains("READONLY")
}
