use std::any::Any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::direct::Alone;
use super::flight::FlightMaker;
use super::scripts::Script;
use crate::deadline::{Deadline, DeadlineTimer, Lag};
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// One question to one server.
///
/// A question is in exactly one place at a time: a queue, a flight, or the pause before a
/// redirected question is sent again. A place that drops a question without a reply still ends the
/// caller's wait.
///
/// A question that is sent again is the same value: it keeps its deadline, so sending again never
/// makes a reply later than the timeout, and `resends` bounds how often it can happen.
pub struct Question {
    /// What is asked, and the place for the reply.
    exchange: Arc<dyn AnyExchange>,
    /// Puts it into one call with others. Without a flight maker it has a call of its own.
    pub(super) flight_maker: Option<FlightMaker>,
    /// The slot of its keys, in a cluster.
    pub slot: Option<u16>,
    /// From this instant on it is sent even if all regular flights are in progress.
    ///
    /// A quarter of the timeout after it was asked, or [`MAX_PATIENCE`]. Where a round trip is
    /// long, the regular flights would otherwise make a question wait for two of them.
    pub(super) overdue_at: Instant,
    /// Until when its caller waits.
    pub deadline: Deadline,
    /// How often it was sent again.
    ///
    /// Both late replies and redirections count here, each against a maximum of its own.
    pub(super) resends: u8,
    has_departed: bool,
    /// How it has to be sent.
    pub options: SendOptions,
}

/// A question that may take long, because no caller waits for it, is not sent later than others.
const MAX_PATIENCE: Duration = Duration::from_millis(50);

/// How errors name a server, and whether this process was late with its answers.
#[derive(Debug, Default)]
pub(super) struct Label {
    pub(super) text: Box<str>,
    /// In a cluster, one for all nodes.
    pub(super) lag: Arc<Lag>,
    /// Whether a question with a flight maker was answered while its caller waited. One for all
    /// nodes, too.
    pub(super) is_proven: Arc<AtomicBool>,
}

impl Label {
    /// The error for a reply of another form than its question's.
    pub(super) fn protocol_error(&self, reply: &Value) -> StoreError {
        /// Characters of the reply that are shown.
        const MAX_SHOWN: usize = 200;
        let reply: String = format!("{reply:?}").chars().take(MAX_SHOWN).collect();
        let message = format!("{} gave an answer that makes no sense: {reply}", self.text);
        StoreError::new(StoreErrorKind::Protocol, message)
    }
}

/// A script call or command that no other question shares.
///
/// Limiters and locks batch their own questions before they come here, so a flight does not look
/// into these calls. It only keeps their order.
pub struct CallQuestion {
    /// `EVALSHA` if there is a script, otherwise any command.
    pub(super) command: Cmd,
    pub(super) script: Option<&'static Script>,
}

impl CallQuestion {
    /// A call of a script on these keys, of one slot.
    pub fn new(script: &'static Script, keys: &[&str], arguments: impl FnOnce(&mut Cmd)) -> Self {
        let mut command = script.command(false, keys.len(), 0);
        command.arg(keys);
        arguments(&mut command);
        let script = Some(script);
        Self { command, script }
    }
}

/// How a question is sent. By default it shares a call with others, which names the script by its
/// hash.
///
/// When the same node has to be asked again, options are only ever added, and a call to which none
/// can be added fails: no question goes round in circles. Redirections also take `is_asking` back,
/// and are bounded by `resends`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendOptions {
    /// In a call of its own, because a call shared with others was refused as a whole.
    pub is_alone: bool,
    /// Behind `ASKING`, because the slot is being moved to the node.
    pub is_asking: bool,
    /// With the script's text, because the server does not know its hash.
    pub has_text: bool,
}

impl Question {
    /// A question for keys of this slot, and the future of its reply. Errors name the server by
    /// `label`.
    pub(super) fn new<T: Send + 'static, Q: Send + Sync + 'static>(
        content: Q,
        flight_maker: Option<FlightMaker>,
        slot: Option<u16>,
        deadline: Deadline,
        label: &Arc<Label>,
    ) -> (Self, ReplyFuture<T>) {
        let exchange = Arc::new(Exchange {
            reply: ReplySlot(Mutex::new(SlotState::Empty(None))),
            is_claimed: AtomicBool::new(false),
            content,
        });
        let question = Self {
            exchange: Arc::clone(&exchange) as Arc<dyn AnyExchange>,
            flight_maker,
            slot,
            overdue_at: deadline.at - deadline.timeout + (deadline.timeout / 4).min(MAX_PATIENCE),
            deadline,
            resends: 0,
            has_departed: false,
            options: SendOptions::default(),
        };
        let reply = ReplyFuture {
            exchange,
            timer: DeadlineTimer::new(deadline),
            label: Arc::clone(label),
            alone: None,
        };
        (question, reply)
    }

    /// A question for a test, which nothing sends.
    #[cfg(feature = "test-util")]
    pub fn unsent<Q: Send + Sync + 'static>(content: Q, deadline: Deadline) -> Self {
        Self::new::<(), Q>(content, None, None, deadline, &Arc::default()).0
    }

    /// What is asked, if it is of this type.
    pub fn content<Q: 'static>(&self) -> Option<&Q> {
        self.exchange.content().downcast_ref()
    }

    /// Whether its caller still waits for the reply.
    ///
    /// It may leave right after this was asked; then what was sent is executed, and the reply is
    /// dropped.
    pub(super) fn is_wanted(&self) -> bool {
        // The other one is that of the `ReplyFuture`. A full queue asks this of all its questions,
        // so it takes no lock.
        Arc::strong_count(&self.exchange) > 1
    }

    /// Whether it may be sent: its caller has not [withdrawn](Withdrawal) it. From then on
    /// the caller cannot.
    pub(super) fn departs(&mut self) -> bool {
        let is_claimed = self.exchange.is_claimed();
        self.has_departed = self.has_departed || !is_claimed.swap(true, Ordering::Relaxed);
        self.has_departed
    }

    /// Whether a reply to it would come in time. If this process was too slow to send it, or to
    /// read that it was refused, a question with a flight maker gets that time back, as its caller
    /// does. A call does not: what its caller asks afterwards, to give a lock or permits back,
    /// relies on its deadline.
    pub(super) fn has_time(&mut self, now: Instant, lag: &Lag) -> bool {
        self.deadline.at > now || self.flight_maker.is_some() && self.deadline.extend(lag)
    }

    /// Hands out the reply, of the type that its caller waits for.
    pub fn reply<T: 'static>(self, reply: Result<T, StoreError>) {
        if let Some(slot) = self.exchange.reply().downcast_ref::<ReplySlot<T>>() {
            slot.fill(Some(reply));
        }
    }

    /// Replies with an error.
    pub fn fail(self, error: StoreError) {
        self.exchange.end(Some(error));
    }
}

/// A question that is lost in any way, even by a panic, ends the wait of its caller.
impl Drop for Question {
    fn drop(&mut self) {
        self.exchange.end(None);
    }
}

/// What is asked, and the place for the reply: one allocation, which a question shares with the
/// future of its reply.
struct Exchange<T, Q: ?Sized> {
    reply: ReplySlot<T>,
    /// Whether the question was sent, or its caller has withdrawn it: whichever came first.
    is_claimed: AtomicBool,
    content: Q,
}

/// An exchange as a question has it: a node knows neither what is asked nor the reply.
trait AnyExchange: Send + Sync {
    fn content(&self) -> &dyn Any;

    /// A [`ReplySlot`].
    fn reply(&self) -> &dyn Any;

    /// Whether the question was sent, or withdrawn.
    fn is_claimed(&self) -> &AtomicBool;

    /// No other reply will come: it is this error, or without one the question was lost.
    fn end(&self, error: Option<StoreError>);
}

impl<T: Send + 'static, Q: Send + Sync + 'static> AnyExchange for Exchange<T, Q> {
    fn content(&self) -> &dyn Any {
        &self.content
    }

    fn reply(&self) -> &dyn Any {
        &self.reply
    }

    fn is_claimed(&self) -> &AtomicBool {
        &self.is_claimed
    }

    fn end(&self, error: Option<StoreError>) {
        self.reply.fill(error.map(Err));
    }
}

/// The place for one reply.
struct ReplySlot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    /// The waker of the caller, once it waits.
    Empty(Option<Waker>),
    /// `None` if the question was lost, and after the reply was taken out.
    Filled(Option<Result<T, StoreError>>),
    /// The caller has left.
    Abandoned,
}

impl<T> ReplySlot<T> {
    /// Puts the reply in, unless there is one or the caller has left.
    fn fill(&self, reply: Option<Result<T, StoreError>>) {
        let mut state = lock(&self.0);
        if let SlotState::Empty(waker) = &mut *state {
            let waker = waker.take();
            *state = SlotState::Filled(reply);
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Takes the reply out. `None` if the question was lost.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<T, StoreError>>> {
        match &mut *lock(&self.0) {
            SlotState::Empty(Some(waker)) => waker.clone_from(cx.waker()),
            SlotState::Empty(none) => *none = Some(cx.waker().clone()),
            SlotState::Filled(reply) => return Poll::Ready(reply.take()),
            SlotState::Abandoned => {}
        }
        Poll::Pending
    }
}

pin_project! {
    /// The reply to one question, or a timeout error after the question's deadline.
    ///
    /// A question whose future is dropped before it was sent is never sent.
    ///
    /// ```text
    /// the reply is there in time    -> the reply
    /// the deadline passes first     -> other tasks run, which may bring the reply; then Timeout,
    ///                                  and a later reply is dropped
    /// this process comes to it late -> the deadline is extended by as much, see `Deadline`
    /// the question is lost          -> Unavailable, or Timeout if the deadline has passed
    /// this future is dropped        -> a question that waits is never sent; a sent one is executed
    /// ```
    ///
    /// A reply that is there when the deadline has passed still counts: its place is polled first.
    pub struct ReplyFuture<T> {
        exchange: Arc<Exchange<T, dyn Send + Sync>>,
        #[pin]
        timer: DeadlineTimer,
        label: Arc<Label>,
        alone: Option<Alone>,
    }

    impl<T> PinnedDrop for ReplyFuture<T> {
        fn drop(this: Pin<&mut Self>) {
            let mut state = lock(&this.exchange.reply.0);
            let last = std::mem::replace(&mut *state, SlotState::Abandoned);
            drop((state, last));
        }
    }
}

impl<T> ReplyFuture<T> {
    /// This future, which may send its question itself.
    pub(super) fn sending(mut self, alone: Option<Alone>) -> Self {
        self.alone = alone;
        self
    }

    /// While this reply is awaited. See [`Withdrawal`].
    pub fn withdrawal<'a>(&self, may_be_sent: &'a mut bool) -> Withdrawal<'a, T> {
        Withdrawal(Arc::clone(&self.exchange), may_be_sent)
    }
}

/// When it is dropped, the question cannot be sent any more, or its flag becomes true.
#[must_use = "it withdraws the question when it is dropped"]
pub struct Withdrawal<'a, T>(Arc<Exchange<T, dyn Send + Sync>>, &'a mut bool);

impl<T> Drop for Withdrawal<'_, T> {
    fn drop(&mut self) {
        *self.1 |= self.0.is_claimed.swap(true, Ordering::Relaxed);
    }
}

impl<T> Future for ReplyFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let deadline = this.timer.deadline();
        if let Some(alone) = this.alone.take() {
            alone.send();
        }
        if let Poll::Ready(reply) = this.exchange.reply.poll(cx) {
            return Poll::Ready(match reply {
                Some(reply) => reply,
                // The queue may have dropped the question before this future was polled, or at a
                // deadline that was extended here only.
                None if deadline.at <= Instant::now() || deadline.was_extended() => {
                    Err(deadline.missed(&this.label.text))
                }
                None => Err(runtime_ended(&this.label.text)),
            });
        }
        ready!(this.timer.poll(cx, &this.label.lag));
        Poll::Ready(Err(deadline.missed(&this.label.text)))
    }
}

/// The error of a question that nothing sends, because the background tasks have ended.
pub(super) fn runtime_ended(label: &str) -> StoreError {
    let ended = "the runtime that connected it has ended; each #[tokio::test] has its own";
    let message = format!("{label} is not available: {ended}");
    StoreError::new(StoreErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    /// A question whose caller waits so long.
    fn question(timeout: Duration) -> (Question, ReplyFuture<()>) {
        let (text, lag, is_proven) = ("redis".into(), Arc::default(), Arc::default());
        let label = Arc::new(Label {
            text,
            lag,
            is_proven,
        });
        Question::new::<(), ()>((), None, None, Deadline::after(timeout), &label)
    }

    /// A place that drops a question has no reply for it, and its caller does not wait for one.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_dropped_ends_the_wait_at_once() {
        let (question, reply) = question(Duration::from_secs(3_600));
        let mut reply = Box::pin(reply);
        assert!(futures_util::poll!(&mut reply).is_pending());
        drop(question);
        let Poll::Ready(Err(error)) = futures_util::poll!(&mut reply) else {
            panic!("it waits for a question that is gone");
        };
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }

    /// Whether the place of a reply was free when its caller was woken: an executor may poll or
    /// drop the caller's future within its waker.
    struct Woken(Arc<ReplySlot<()>>, AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.0.try_lock().is_ok(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_caller_is_woken_outside_of_the_lock_of_its_reply() {
        let slot = Arc::new(ReplySlot(Mutex::new(SlotState::Empty(None))));
        let woken = Arc::new(Woken(Arc::clone(&slot), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(slot.poll(&mut Context::from_waker(&waker)).is_pending());
        slot.fill(Some(Ok(())));
        assert!(woken.1.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_dropped_at_its_deadline_is_late_where_the_wait_goes_on() {
        let (question, reply) = question(Duration::from_millis(50));
        let mut reply = Box::pin(reply);
        tokio::time::advance(Duration::from_millis(60)).await;
        assert!(futures_util::poll!(&mut reply).is_pending(), "10 ms more");
        drop(question);
        let error = reply.await.expect_err("nobody answers");
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
    }
}
