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

/// One question to one server, and where its answer goes.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) body: Body,
    /// Of its keys. Only a cluster uses it.
    pub(super) slot: u16,
    /// Once it has waited until then, it departs even if many flights are in progress.
    pub(super) overdue: Instant,
    pub(super) deadline: Instant,
    pub(super) route: Route,
}

#[derive(Debug)]
pub(super) enum Body {
    Take(TakeQuestion),
    Call(CallQuestion),
}

/// May this key spend this cost? Takes of many callers travel in one script call.
#[derive(Debug)]
pub(crate) struct TakeQuestion {
    pub(super) rule: Arc<Rule>,
    /// Of the key in Redis.
    pub(super) name: Box<str>,
    pub(super) cost: u64,
    /// A caller that was denied asks again.
    pub(super) is_repeat: bool,
    /// A test's clock, in microseconds, in place of the server's.
    pub(super) now: Option<u64>,
    pub(super) answer: Option<oneshot::Sender<Result<Decision, StoreError>>>,
}

/// A script call or command of its own.
#[derive(Debug)]
pub(super) struct CallQuestion {
    /// `EVALSHA` of the script, or any command if there is none.
    pub(super) command: Cmd,
    pub(super) script: Option<&'static Script>,
    pub(super) answer: Option<oneshot::Sender<Result<Value, StoreError>>>,
}

/// What has become of a question so far that was not answered the first time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Route {
    /// Its keys must not share a call with others: such a call was refused as a whole.
    pub(super) is_alone: bool,
    /// The node serves its slot only to those who say `ASKING`.
    #[cfg(feature = "cluster")]
    pub(super) is_asking: bool,
    /// How often it was asked again.
    pub(super) hops: u8,
}

impl Question {
    pub(super) fn new(body: Body, slot: u16, timeout: Duration) -> Self {
        let now = Instant::now();
        let timeout = timeout.min(MAX_TIMEOUT);
        Self {
            body,
            slot,
            overdue: now + timeout / 4,
            deadline: now + timeout,
            route: Route::default(),
        }
    }

    /// Whether its caller still waits.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.body {
            Body::Take(take) => take
                .answer
                .as_ref()
                .is_some_and(|answer| !answer.is_closed()),
            Body::Call(call) => call
                .answer
                .as_ref()
                .is_some_and(|answer| !answer.is_closed()),
        }
    }

    pub(super) fn fail(self, error: StoreError) {
        match self.body {
            Body::Take(take) => take.answer(Err(error)),
            Body::Call(call) => call.answer(Err(error)),
        }
    }
}

impl TakeQuestion {
    pub(crate) fn new(rule: Arc<Rule>, name: Box<str>, cost: u64) -> Self {
        Self {
            rule,
            name,
            cost,
            is_repeat: false,
            now: None,
            answer: None,
        }
    }

    pub(crate) fn repeated(mut self, is_repeat: bool) -> Self {
        self.is_repeat = is_repeat;
        self
    }

    pub(crate) fn at(mut self, now: Option<u64>) -> Self {
        self.now = now;
        self
    }

    /// A caller that has left hears nothing.
    pub(super) fn answer(self, answer: Result<Decision, StoreError>) {
        if let Some(caller) = self.answer {
            let _ = caller.send(answer);
        }
    }
}

impl CallQuestion {
    pub(super) fn answer(self, answer: Result<Value, StoreError>) {
        if let Some(caller) = self.answer {
            let _ = caller.send(answer);
        }
    }
}

/// A longer timeout counts as this one: no instant of the clock is farther away.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
    pub(super) fn new(
        answer: oneshot::Receiver<Result<T, StoreError>>,
        question: &Question,
        timeout: Duration,
        address: &Arc<str>,
    ) -> Self {
        Self {
            answer,
            deadline: sleep_until(question.deadline),
            timeout,
            address: Arc::clone(address),
        }
    }
}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = Pin::new(this.answer).poll(cx) {
            return Poll::Ready(answer.unwrap_or_else(|_| Err(runtime_ended(this.address))));
        }
        ready!(this.deadline.poll(cx));
        Poll::Ready(Err(late(this.address, *this.timeout)))
    }
}

pub(crate) fn late(address: &str, timeout: Duration) -> StoreError {
    let message = format!("{address} did not answer within {timeout:?}");
    StoreError::new(StoreErrorKind::Timeout, message)
}

/// The server reached a question after its deadline, and did nothing.
pub(super) fn late_by_server(address: &str) -> StoreError {
    let message =
        format!("{address} did not answer in time: it reached the question after its deadline");
    StoreError::new(StoreErrorKind::Timeout, message)
}

pub(super) fn runtime_ended(address: &str) -> StoreError {
    let message =
        format!("{address} is not available: the runtime that kept the connection has ended");
    StoreError::new(StoreErrorKind::Unavailable, message)
}
