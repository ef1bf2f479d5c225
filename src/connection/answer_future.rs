use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{StoreError, StoreErrorKind};

/// Sends the answer to one question.
///
/// It travels with its question. A question that is lost in any way, even by a panic, drops it, and
/// so the caller never waits in vain.
#[derive(Debug)]
pub(super) struct AnswerSender<T>(oneshot::Sender<Result<T, StoreError>>);

impl<T> AnswerSender<T> {
    /// Sends the answer. Does nothing if its [`AnswerFuture`] was dropped.
    pub(super) fn send(self, answer: Result<T, StoreError>) {
        let _ = self.0.send(answer);
    }

    /// Whether the [`AnswerFuture`] was dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

pin_project! {
    /// The answer to one question, or a timeout error after the question's deadline.
    ///
    /// A question whose future is dropped before it was sent is never sent.
    ///
    /// ```text
    /// the answer is sent in time    -> the answer
    /// the deadline passes first     -> Timeout, and a later answer is dropped
    /// the sender is dropped         -> Unavailable, or Timeout if the deadline has passed
    /// this future is dropped        -> a question that waits is never sent; a sent one is executed
    /// ```
    ///
    /// An answer that is there when the deadline has passed still counts: the channel is polled
    /// first.
    #[derive(Debug)]
    pub(crate) struct AnswerFuture<T> {
        answer: oneshot::Receiver<Result<T, StoreError>>,
        #[pin]
        deadline: Sleep,
        timeout: Duration,
        label: Arc<str>,
    }
}

impl<T> AnswerFuture<T> {
    /// The future of an answer, and the sender for it. Its errors begin with `label`.
    pub(super) fn new(
        deadline: Instant,
        timeout: Duration,
        label: &Arc<str>,
    ) -> (AnswerSender<T>, Self) {
        let (sender, answer) = oneshot::channel();
        let future = Self {
            answer,
            deadline: sleep_until(deadline),
            timeout,
            label: Arc::clone(label),
        };
        (AnswerSender(sender), future)
    }
}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = Pin::new(this.answer).poll(cx) {
            let is_over = this.deadline.deadline() <= Instant::now();
            return Poll::Ready(answer.unwrap_or_else(|_| match is_over {
                // The queue may have dropped the question before this future was polled.
                true => Err(no_answer_within(this.label, *this.timeout)),
                false => Err(runtime_ended(this.label)),
            }));
        }
        ready!(this.deadline.poll(cx));
        Poll::Ready(Err(no_answer_within(this.label, *this.timeout)))
    }
}

/// The error of a question that was not answered within its timeout.
fn no_answer_within(label: &str, timeout: Duration) -> StoreError {
    let message = format!("{label} did not answer within {timeout:?}");
    StoreError::new(StoreErrorKind::Timeout, message)
}

/// The error of a question that nothing sends, because the background tasks have ended.
pub(super) fn runtime_ended(label: &str) -> StoreError {
    let message =
        format!("{label} is not available: the runtime that kept the connection has ended");
    StoreError::new(StoreErrorKind::Unavailable, message)
}
