//! One pipeline with the questions of many callers, and its answers.

use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

#[cfg(feature = "cluster")]
use super::cluster::Redirects;
use super::errors::store_error;
use super::link::Link;
use super::question::{Body, CallQuestion, Question};
use super::queue::Queue;
use super::take_call::{TakeCall, take_calls};
use crate::error::StoreError;

/// What a flight belongs to.
#[derive(Clone)]
pub(super) struct Home {
    /// For people.
    pub(super) address: Arc<str>,
    pub(super) queue: Arc<Queue>,
    /// Where questions go that another node of the cluster has to answer.
    #[cfg(feature = "cluster")]
    pub(super) redirects: Option<Redirects>,
}

impl Home {
    /// The same error with the server's address.
    pub(super) fn explained(&self, error: &StoreError) -> StoreError {
        StoreError::new(error.kind(), format!("{}: {error}", self.address))
    }
}

/// The questions of one pipeline.
pub(super) struct Flight {
    calls: Vec<Call>,
}

/// A script call or command of the pipeline, with the questions that it answers.
pub(super) enum Call {
    Takes(TakeCall),
    One(Question),
}

/// Whether a script is called by its hash, or by its text because the server does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Hash,
    Text,
}

/// What the server's clock has to have passed for an answer "too late" to be believed.
const MAX_LATE_HOPS: u8 = 3;

impl Flight {
    /// Groups the questions into calls; none if there is no question.
    pub(super) fn plan(questions: Vec<Question>, link: &Link, queue: &Arc<Queue>) -> Option<Self> {
        let is_take = |question: &Question| matches!(question.body, Body::Take(_));
        let (takes, others): (Vec<_>, Vec<_>) = match questions.iter().all(is_take) {
            true => (questions, Vec::new()),
            false => questions.into_iter().partition(is_take),
        };
        let mut calls = take_calls(takes, &link.shared.clock, queue);
        calls.extend(others.into_iter().map(Call::One));
        (!calls.is_empty()).then_some(Self { calls })
    }

    /// Sends all and hands out the answers. It takes as long as the connection lets it: callers look at the time themselves.
    pub(super) async fn run(self, link: Link, home: Home) {
        let mut landing = Landing {
            link,
            home,
            calls: self.calls,
        };
        let mut by = By::Hash;
        while !landing.calls.is_empty() {
            let pipeline = landing.pipeline(by);
            let asked = Instant::now();
            match landing.link.ask(&pipeline).await {
                Ok(replies) => landing.hand_out(replies, asked, by),
                Err(error) => landing.fail(&error),
            }
            // What is left are scripts that the server does not know: with the text, it does.
            by = By::Text;
        }
    }
}

/// A flight that is under way.
struct Landing {
    link: Link,
    home: Home,
    calls: Vec<Call>,
}

impl Landing {
    fn pipeline(&self, by: By) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(self.calls.len());
        for call in &self.calls {
            #[cfg(feature = "cluster")]
            if call.is_asking() {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            pipeline.add_command(call.command(by));
        }
        pipeline
    }

    /// Answers the questions, or sends them on. Keeps the calls of scripts that the server does not know.
    fn hand_out(&mut self, replies: Vec<Value>, asked: Instant, by: By) {
        let mut replies = replies.into_iter();
        let mut unknown = Vec::new();
        for call in std::mem::take(&mut self.calls) {
            #[cfg(feature = "cluster")]
            if call.is_asking() {
                replies.next();
            }
            let reply = replies.next().unwrap_or(Value::Nil);
            match reply.extract_error() {
                Ok(reply) => self.answer(call, reply, asked),
                Err(error) if is_unknown_script(&error) && by == By::Hash => unknown.push(call),
                Err(error) => self.refused(call, &error),
            }
        }
        self.calls = unknown;
    }

    fn answer(&self, call: Call, reply: Value, asked: Instant) {
        match call {
            Call::One(question) => {
                if let Body::Call(call) = question.body {
                    call.answer(Ok(reply));
                }
            }
            Call::Takes(call) => {
                let late = call.answer(&reply, asked, &self.link, &self.home);
                for question in late {
                    self.ask_again(question);
                }
            }
        }
    }

    /// The server says that the deadline is over, and this process's clock does not: the server's clock was set, or is
    /// another server's. It is known by now.
    fn ask_again(&self, mut question: Question) {
        question.route.hops += 1;
        match question.route.hops <= MAX_LATE_HOPS {
            true => self.home.queue.push(question),
            false => question.fail(super::question::late_by_server(&self.home.address)),
        }
    }

    /// A whole call was refused: nothing of it was done.
    fn refused(&self, call: Call, error: &RedisError) {
        if needs_another_connection(error) {
            self.link.close();
        }
        let is_shared = call.number_of_keys() > 1;
        #[cfg(feature = "cluster")]
        if let Some(redirects) = &self.home.redirects
            && let Some(redirect) = redirects.of(error)
        {
            let questions = call.into_questions();
            return redirects.follow(redirect, questions, is_shared, &self.home.queue);
        }
        if is_shared && is_about_a_key(error) {
            for mut question in call.into_questions() {
                question.route.is_alone = true;
                self.home.queue.push(question);
            }
            return;
        }
        let error = store_error(&self.home.address, error.clone());
        for question in call.into_questions() {
            question.fail(error.clone());
        }
    }

    /// The connection broke. Nothing is sent again, because it may have been done.
    fn fail(&mut self, error: &RedisError) {
        if needs_another_connection(error) {
            self.link.close();
        }
        let error = store_error(&self.home.address, error.clone());
        for call in std::mem::take(&mut self.calls) {
            for question in call.into_questions() {
                question.fail(error.clone());
            }
        }
    }
}

impl Call {
    fn command(&self, by: By) -> Cmd {
        match self {
            Self::Takes(call) => call.command(by),
            Self::One(question) => match &question.body {
                Body::Call(call) => call.command(by),
                Body::Take(_) => Cmd::new(),
            },
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
            Self::Takes(call) => call.into_questions(),
            Self::One(question) => vec![question],
        }
    }

    #[cfg(feature = "cluster")]
    fn is_asking(&self) -> bool {
        match self {
            Self::Takes(call) => call.is_asking(),
            Self::One(question) => question.route.is_asking,
        }
    }
}

impl CallQuestion {
    fn command(&self, by: By) -> Cmd {
        match (by, self.script) {
            (By::Text, Some(script)) => script.with_text(&self.command),
            _ => self.command.clone(),
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// One of several keys may be the reason, and the others need not suffer.
fn is_about_a_key(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
        || error
            .to_string()
            .contains("can't access at least one of the keys")
}

/// Not only broken connections: a server that became a replica, or lost its master, may be another one by the time that it
/// is asked again.
pub(super) fn needs_another_connection(error: &RedisError) -> bool {
    let broken = error.is_unrecoverable_error() || error.is_connection_dropped();
    let wrong_server = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    broken || wrong_server
}

/// For errors that came in an answer.
pub(super) fn leads_to_wrong_server(error: &StoreError) -> bool {
    error.kind() == crate::error::StoreErrorKind::ReadOnly
}
