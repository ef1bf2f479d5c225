use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redis::{Cmd, Value};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::direct::Way;
use super::scripts::Script;
use crate::deadline::Deadline;
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::rule::CountName;

/// One question to one server.
///
/// A question is in exactly one place at a time: a queue, a flight, or the pause before a
/// redirected question is sent again. A place that drops a question without an answer still ends
/// the caller's wait, because the sender in its body is dropped with it.
///
/// A question that is sent again is the same value: it keeps its deadline, so sending again never
/// makes an answer later than the timeout, and `resends` bounds how often it can happen.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) body: QuestionBody,
    /// The slot of its keys. Only a cluster uses it.
    pub(super) slot: u16,
    pub(super) timeout: Duration,
    /// From this instant on it is sent even if all regular flights are in progress.
    ///
    /// A quarter of the timeout after it was asked. Where a round trip is long, the regular flights
    /// would otherwise make a question wait for two of them.
    pub(super) overdue_at: Instant,
    pub(super) deadline: Instant,
    /// How often it was sent again.
    ///
    /// Both late answers and redirections count here, each against a maximum of its own.
    pub(super) resends: u8,
    pub(super) options: SendOptions,
}

/// The content of a question, and the receiver of its answer.
#[derive(Debug)]
pub(super) enum QuestionBody {
    Take(TakeQuestion, AnswerSender<Decision>),
    Refund(RefundQuestion, AnswerSender<u64>),
    Call(CallQuestion, AnswerSender<Value>),
}

/// May this key spend this cost? One script call answers the takes of many callers.
#[derive(Debug)]
pub(crate) struct TakeQuestion {
    pub(crate) count: CountKey,
    pub(crate) cost: u64,
    /// A test's clock, in microseconds, in place of the server's.
    ///
    /// Takes with different clocks are never in one call, since a call has one clock.
    pub(crate) now: Option<u64>,
}

/// Gives back up to `max` units of what was charged with this receipt. One script call answers the
/// refunds of many callers.
#[derive(Debug)]
pub(crate) struct RefundQuestion {
    pub(crate) count: CountKey,
    pub(crate) receipt: Receipt,
    pub(crate) max: u64,
    /// As of a take.
    pub(crate) now: Option<u64>,
}

/// The key of a count of takes. Its name is joined where it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountKey {
    pub(crate) name: CountName,
    pub(crate) prefix: Arc<KeyPrefix>,
}

/// What the names of a store's keys begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPrefix {
    /// The service's own, in front of every name; may be empty.
    pub(crate) service: Box<str>,
    /// Stands behind it for rules without a prefix of their own.
    pub(crate) default: Box<str>,
}

impl CountKey {
    /// The name of the key in Redis.
    pub(super) fn text(&self) -> String {
        let pieces = self.name.pieces(&self.prefix.default);
        [&*self.prefix.service, &pieces.concat()].concat()
    }

    /// The same. Most names need no allocation.
    pub(super) fn joined(&self) -> SmallVec<[u8; 128]> {
        let mut joined = SmallVec::new();
        joined.extend_from_slice(self.prefix.service.as_bytes());
        for piece in self.name.pieces(&self.prefix.default) {
            joined.extend_from_slice(piece.as_bytes());
        }
        joined
    }
}

/// A script call or command that no other question shares.
///
/// Limiters and locks batch their own questions before they come here, so a flight does not look
/// into these calls. It only keeps their order.
#[derive(Debug)]
pub(super) struct CallQuestion {
    /// `EVALSHA` if there is a script, otherwise any command.
    pub(super) command: Cmd,
    pub(super) script: Option<&'static Script>,
    /// The count that the call changes, if it is a count of takes: the call keeps its place in the
    /// order of arrival among the takes of that count.
    pub(super) count: Option<CountKey>,
}

/// How a question is sent. By default it shares a call with others, which names the script by its
/// hash.
///
/// When the same node has to be asked again, options are only ever added, and a call to which none
/// can be added fails: no question goes round in circles. Redirections also take `is_asking` back,
/// and are bounded by `resends`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SendOptions {
    /// In a call of its own, because a call shared with others was refused as a whole.
    pub(super) is_alone: bool,
    /// Behind `ASKING`, because the slot is being moved to the node.
    pub(super) is_asking: bool,
    /// With the script's text, because the server does not know its hash.
    pub(super) has_text: bool,
}

impl Question {
    /// A question for keys of this slot, and the future of its answer. `body` makes the question's
    /// body of the sender of the answer. Errors name the server by `label`.
    pub(super) fn new<T>(
        body: impl FnOnce(AnswerSender<T>) -> QuestionBody,
        slot: u16,
        Deadline { at, timeout }: Deadline,
        label: &Arc<str>,
    ) -> (Self, AnswerFuture<T>) {
        let (sender, answer) = AnswerFuture::new(at, timeout, label);
        let question = Self {
            body: body(sender),
            slot,
            timeout,
            overdue_at: at - 3 * (timeout / 4),
            deadline: at,
            resends: 0,
            options: SendOptions::default(),
        };
        (question, answer)
    }

    /// The take that is asked.
    pub(super) fn take(&self) -> &TakeQuestion {
        match &self.body {
            QuestionBody::Take(take, _) => take,
            _ => unreachable!("a call of takes holds no other question"),
        }
    }

    /// The refund that is asked.
    pub(super) fn refund(&self) -> &RefundQuestion {
        match &self.body {
            QuestionBody::Refund(refund, _) => refund,
            _ => unreachable!("a call of refunds holds no other question"),
        }
    }

    /// The count that it is about, if it is one of takes.
    pub(super) const fn count(&self) -> Option<&CountKey> {
        match &self.body {
            QuestionBody::Take(take, _) => Some(&take.count),
            QuestionBody::Refund(refund, _) => Some(&refund.count),
            QuestionBody::Call(call, _) => call.count.as_ref(),
        }
    }

    /// Whether it is a call of a script that repeats its call's number.
    pub(super) const fn is_script(&self) -> bool {
        matches!(&self.body, QuestionBody::Call(call, _) if call.script.is_some())
    }

    /// Whether its caller still waits for the answer.
    ///
    /// It may leave right after this was asked; then what was sent is executed, and the answer is
    /// dropped.
    pub(super) fn is_wanted(&self) -> bool {
        match &self.body {
            QuestionBody::Take(_, sender) => !sender.is_closed(),
            QuestionBody::Refund(_, sender) => !sender.is_closed(),
            QuestionBody::Call(_, sender) => !sender.is_closed(),
        }
    }

    /// Answers it, if it is a call, by the reply to it.
    pub(super) fn answer(self, reply: Result<Value, StoreError>) {
        if let QuestionBody::Call(_, sender) = self.body {
            sender.send(reply);
        }
    }

    /// Answers it with an error.
    pub(super) fn fail(self, error: StoreError) {
        match self.body {
            QuestionBody::Take(_, sender) => sender.send(Err(error)),
            QuestionBody::Refund(_, sender) => sender.send(Err(error)),
            QuestionBody::Call(_, sender) => sender.send(Err(error)),
        }
    }
}

/// Sends the answer to one question.
///
/// It travels with its question. A question that is lost in any way, even by a panic, drops it, and
/// so the caller never waits for an answer that cannot come.
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
        way: Way,
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
            way: Way::Queued,
        };
        (AnswerSender(sender), future)
    }

    /// The same future, whose question goes on this way.
    pub(super) fn on(mut self, way: Way) -> Self {
        self.way = way;
        self
    }
}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.way.poll(cx).is_pending() {
            ready!(this.deadline.poll(cx));
            return Poll::Ready(Err(no_answer_within(this.label, *this.timeout)));
        }
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
