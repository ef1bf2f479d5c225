use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Script;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::rule::Rule;

/// One question to one server.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) body: Body,
    /// Of its keys. Only a cluster uses it.
    pub(super) slot: u16,
    pub(super) timeout: Duration,
    /// Once it has waited until then, it departs even if all flights are in progress.
    pub(super) overdue: Instant,
    pub(super) deadline: Instant,
    /// How often it was asked again.
    pub(super) hops: u8,
    pub(super) way: Way,
}

#[derive(Debug)]
pub(super) enum Body {
    Take(TakeQuestion, Caller<Decision>),
    Call(CallQuestion, Caller<Value>),
}

/// May this key spend this cost? Takes of many callers travel in one script call.
#[derive(Debug)]
pub(crate) struct TakeQuestion {
    pub(crate) rule: Arc<Rule>,
    /// Of the key in Redis.
    pub(crate) name: Box<str>,
    pub(crate) cost: u64,
    /// A test's clock, in microseconds, in place of the server's.
    pub(crate) now: Option<u64>,
}

/// A script call or command of its own.
#[derive(Debug)]
pub(super) struct CallQuestion {
    /// `EVALSHA` of the script, or any command if there is none.
    pub(super) command: Cmd,
    pub(super) script: Option<&'static Script>,
}

/// How a question is sent: at first with others in one call, by the script's hash.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    /// In a call of its own, because a call with others was refused as a whole.
    pub(super) is_alone: bool,
    /// Behind `ASKING`: the node serves its slot to nobody else yet.
    pub(super) is_asking: bool,
    /// With the script's text, which the server does not know.
    pub(super) has_text: bool,
}

impl Question {
    pub(super) fn new(body: Body, slot: u16, timeout: Duration) -> Self {
        /// A longer timeout counts as this one: no instant of the clock is farther away.
        const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        let (now, timeout) = (Instant::now(), timeout.min(MAX_TIMEOUT));
        Self {
            body,
            slot,
            timeout,
            overdue: now + timeout / 4,
            deadline: now + timeout,
            hops: 0,
            way: Way::default(),
        }
    }

    /// Whether its caller still waits.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.body {
            Body::Take(_, caller) => !caller.0.is_closed(),
            Body::Call(_, caller) => !caller.0.is_closed(),
        }
    }

    pub(super) fn fail(self, error: StoreError) {
        match self.body {
            Body::Take(_, caller) => caller.answer(Err(error)),
            Body::Call(_, caller) => caller.answer(Err(error)),
        }
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub(super) struct Caller<T>(oneshot::Sender<Result<T, StoreError>>);

impl<T> Caller<T> {
    /// A caller that has left hears nothing.
    pub(super) fn answer(self, answer: Result<T, StoreError>) {
        let _ = self.0.send(answer);
    }
}

pin_project! {
    /// The answer to one question, or an error once its time is over.
    ///
    /// A question whose future is dropped before it was sent is never sent.
    #[derive(Debug)]
    pub(crate) struct AnswerFuture<T> {
        answer: oneshot::Receiver<Result<T, StoreError>>,
        #[pin]
        deadline: Sleep,
        timeout: Duration,
        address: Arc<str>,
    }
}

impl<T> AnswerFuture<T> {
    /// A question that is made of a caller, and its answer.
    pub(super) fn of(
        ask: impl FnOnce(Caller<T>) -> Question,
        address: &Arc<str>,
    ) -> (Question, Self) {
        let (sender, answer) = oneshot::channel();
        let question = ask(Caller(sender));
        let future = Self {
            answer,
            deadline: sleep_until(question.deadline),
            timeout: question.timeout,
            address: Arc::clone(address),
        };
        (question, future)
    }
}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = Pin::new(this.answer).poll(cx) {
            let is_over = this.deadline.deadline() <= Instant::now();
            return Poll::Ready(answer.unwrap_or_else(|_| match is_over {
                // The queue may notice that before this future is polled.
                true => Err(late(this.address, *this.timeout)),
                false => Err(runtime_ended(this.address)),
            }));
        }
        ready!(this.deadline.poll(cx));
        Poll::Ready(Err(late(this.address, *this.timeout)))
    }
}

pub(crate) fn late(address: &str, timeout: Duration) -> StoreError {
    let message = format!("{address} did not answer within {timeout:?}");
    StoreError::new(StoreErrorKind::Timeout, message)
}

pub(super) fn runtime_ended(address: &str) -> StoreError {
    let message =
        format!("{address} is not available: the runtime that kept the connection has ended");
    StoreError::new(StoreErrorKind::Unavailable, message)
}
