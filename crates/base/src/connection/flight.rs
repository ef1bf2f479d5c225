use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Arg, Cmd, RedisError, RedisResult, Value};
use smallvec::SmallVec;
// Its first poll has to write, whatever else the task has done.
#[allow(
    deprecated,
    reason = "newer versions have it in a module that older ones lack"
)]
use tokio::task::unconstrained;

use super::call_id::{CallId, NumberedReply};
use super::errors::{is_about_a_key, is_broken, is_unknown_script, store_error, takes_no_writes};
use super::link::{Commands, Link, Replies, RoundTrip};
use super::node::Endpoint;
use super::question::{CallQuestion, Label, Question, SendOptions};
use super::queue::Questions;
use super::server_clock::ServerClock;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// Makes a flight out of the questions that wait, of which at least one is its own.
///
/// It puts its questions into calls that they share, and keeps the order among them. The others
/// each get an [`UnsharedCall`]. All questions with a flight maker that travel over a connection
/// have the same one.
pub(super) type FlightMaker = fn(Questions, Carrier) -> BoxFuture<'static, ()>;

/// The flight of questions without a flight maker.
pub(super) fn of_calls(questions: Questions, carrier: Carrier) -> BoxFuture<'static, ()> {
    let calls = questions.into_iter();
    let calls = calls.map(|question| UnsharedCall::new(question, Question::content));
    carrier.carry(calls.collect())
}

impl Endpoint {
    /// Sends these questions in a flight. `counted` is dropped when it has ended, or without one.
    pub(super) fn fly<T: Send + 'static>(&self, questions: Questions, link: Link, counted: T) {
        let maker = questions.iter().find_map(|question| question.flight_maker);
        if !questions.is_empty() {
            let endpoint = self.clone();
            fly(
                maker.unwrap_or(of_calls)(questions, Carrier { link, endpoint }),
                counted,
            );
        }
    }
}

/// Lets a flight go on until it has ended; then `in_progress` is dropped.
fn fly<T: Send + 'static>(flight: BoxFuture<'static, ()>, in_progress: T) {
    let flight = Mutex::new(Some((flight, in_progress)));
    let wakes = AtomicUsize::new(0);
    Arc::new(UnderWay { flight, wakes }).wake();
}

/// A flight that was sent, or cannot be sent yet.
///
/// It is its own waker: the task that wakes it polls it at once. So redis-rs's task, which has read
/// the reply, hands out the answers itself. No other task stands between, and no caller: one that
/// leaves or stops polling delays nobody. A connection that closes wakes its flights, and they end.
struct UnderWay<T> {
    /// With what is in progress until it has ended. Only one wake-up at a time locks it.
    flight: Mutex<Option<(BoxFuture<'static, ()>, T)>>,
    /// Wake-ups since it was last seen asleep.
    wakes: AtomicUsize,
}

impl<T: Send + 'static> Wake for UnderWay<T> {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            // The thread that polls it now, perhaps this one, sees the number and polls it again.
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        let mut seen = 1;
        loop {
            self.poll(&mut Context::from_waker(&waker));
            let ordering = (Ordering::AcqRel, Ordering::Acquire);
            let asleep = self.wakes.compare_exchange(seen, 0, ordering.0, ordering.1);
            let Err(wakes) = asleep else { return };
            seen = wakes;
        }
    }
}

impl<T> UnderWay<T> {
    fn poll(&self, cx: &mut Context<'_>) {
        let mut state = lock(&self.flight);
        let Some((flight, _)) = &mut *state else {
            return;
        };
        // A panic is nobody else's. Its callers get an error, since their questions are dropped.
        let poll = AssertUnwindSafe(|| unconstrained(flight).poll_unpin(cx));
        if !matches!(catch_unwind(poll), Ok(Poll::Pending)) {
            *state = None;
        }
    }
}

/// A script call or command, with the questions that its reply is for.
pub trait FlightCall: Send + Sized + 'static {
    /// The command, with deadlines by the server's clock.
    fn command(&self, clock: &ServerClock) -> Cmd;

    /// How it is sent: all its questions have the same options. And how many keys it has; a command
    /// counts as one key.
    ///
    /// Only a call with several keys can be refused because of somebody else's key.
    fn shape(&self) -> (SendOptions, usize);

    /// Whether its reply repeats its number. That of a command does not.
    fn is_numbered(&self) -> bool {
        true
    }

    /// Whether this reply is the one to this call.
    fn is_answered_by(&self, reply: &Value) -> bool;

    /// Hands out the replies to its questions. A reply that is not that of this call
    /// [condemns](Carrier::condemn) the link.
    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier);

    /// Its questions.
    fn into_questions(self) -> Vec<Question>;
}

/// One pipeline with the questions of many callers. It hands out their answers.
///
/// A caller that leaves changes nothing for the others, and what was sent for it is executed.
///
/// ```text
/// questions in order of arrival
///    -> calls, as their flight maker groups them
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
/// Every question in it gets a reply or goes back into a queue exactly once: the calls are consumed
/// by value.
struct Flight<C> {
    /// In the order in which they are sent. A lone one needs no allocation.
    calls: SmallVec<[C; 1]>,
    carrier: Carrier,
}

impl<C: FlightCall> Flight<C> {
    /// Sends all calls and hands out the replies. It has no time limit of its own: each reply's
    /// future has one.
    #[allow(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` has room for `self` twice"
    )]
    fn run(mut self) -> impl Future<Output = ()> {
        async move {
            let (commands, check) = self.commands();
            match self.carrier.link.send(commands).await {
                Ok((replies, trip)) => self.hand_out(replies, check, trip),
                // Nothing is sent again: it may have been executed.
                Err(error) => self.fail(error),
            }
        }
    }

    /// The commands of all calls, and the number of the check behind them, if they need one.
    fn commands(&self) -> (Commands, Option<CallId>) {
        let mut commands = Commands::with_capacity(self.calls.len());
        for call in &self.calls {
            if call.shape().0.is_asking {
                commands.push(redis::cmd("ASKING"));
            }
            commands.push(call.command(self.carrier.clock()));
        }
        // Without a command whose reply does not repeat a number, the last call is the check.
        let needs_check = !self.calls.iter().all(C::is_numbered);
        let check = needs_check.then(CallId::next);
        if let Some(id) = check {
            commands.push(id.check());
        }
        (commands, check)
    }

    /// Hands out each reply, if the last reply proves that the replies are those of this flight.
    /// Otherwise all its questions fail, and the connection is closed: the replies of
    /// later flights are not their own either.
    ///
    /// If the last reply is an error of the server, it proves nothing, and condemns nothing: the
    /// server may refuse one call, or all while it loads its data. Then errors are handed out, and
    /// the replies that repeat the number of their own call; commands get the error of the check.
    fn hand_out(self, mut replies: Replies, check: Option<CallId>, trip: RoundTrip) {
        let is_in_step = self.is_in_step(&mut replies, check);
        let Self { calls, carrier } = self;
        if matches!(is_in_step, Ok(false)) {
            return carrier.condemn(calls.into_iter().flat_map(C::into_questions));
        }
        let mut replies = replies.into_iter();
        for call in calls {
            let mut next = || replies.next().unwrap_or(Value::Nil);
            // `ASKING` has a reply of its own. Where it is forbidden, the call is refused, too.
            let asking = call.shape().0.is_asking.then(|| next().extract_error());
            let reply = match next() {
                Value::ServerError(error) => Err(error.into()),
                reply => Ok(reply),
            };
            match (asking.transpose().and(reply), &is_in_step) {
                (Err(error), _) => carrier.handle_refusal(call, error),
                (Ok(_), Err(error)) if !call.is_numbered() => {
                    let error = store_error(&carrier.label().text, error.clone());
                    fail(call.into_questions(), &error);
                }
                (Ok(reply), _) => call.hand_out(reply, trip, &carrier),
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
            (Some(call), Some(reply)) => call.is_answered_by(reply),
            _ => false,
        })
    }

    /// Replies to all questions with an error of the connection.
    ///
    /// A broken connection does not tell which calls the server has executed. Sending them again
    /// could charge twice, so the callers get the error and decide for themselves.
    fn fail(self, error: RedisError) {
        let error = self.carrier.error(error);
        fail(self.calls.into_iter().flat_map(C::into_questions), &error);
    }
}

#[cold]
fn fail(questions: impl IntoIterator<Item = Question>, error: &StoreError) {
    let questions = questions.into_iter();
    questions.for_each(|question| question.fail(error.clone()));
}

/// A question is sent again at most this often because the server says that its deadline is over
/// while this process's clock says that it is not.
const MAX_LATE_RESENDS: u8 = 3;

/// What carries a flight: a link, and where its questions go that have to be sent again.
pub struct Carrier {
    link: Link,
    endpoint: Endpoint,
}

impl Carrier {
    /// The flight of these calls.
    pub fn carry<C: FlightCall>(self, calls: SmallVec<[C; 1]>) -> BoxFuture<'static, ()> {
        let carrier = self;
        Box::pin(Flight { calls, carrier }.run())
    }

    /// The flight of this call alone, whose reply repeats its number, and which needs no `ASKING`.
    pub fn carry_one<C: FlightCall>(mut self, call: C) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let command = call.command(self.clock());
            match self.link.send_one(&command).await {
                Ok((Value::ServerError(error), _)) => self.handle_refusal(call, error.into()),
                Ok((reply, trip)) => call.hand_out(reply, trip, &self),
                Err(error) => fail(call.into_questions(), &self.error(error)),
            }
        })
    }

    fn label(&self) -> &Label {
        &self.endpoint.queue.label
    }

    /// What is known of the server's clock.
    pub fn clock(&self) -> &ServerClock {
        &self.link.inner.clock
    }

    /// Notes that the server answers in time, if the caller of this question waits still.
    pub fn prove_by(&self, question: &Question) {
        let is_proven = &self.label().is_proven;
        if !is_proven.load(Ordering::Relaxed) && question.is_wanted() {
            is_proven.store(true, Ordering::Relaxed);
        }
    }

    /// Fails these questions, because the reply belongs to another call, and closes the link: the
    /// replies of later flights are not their own either.
    pub fn condemn(&self, questions: impl IntoIterator<Item = Question>) {
        self.link.close();
        let message = format!("{} replied to a different command", self.label().text);
        let error = StoreError::new(StoreErrorKind::Protocol, message);
        fail(questions, &error);
    }

    /// An error of the client or the server, as callers get it. Closes the link if it is broken, and
    /// has another one made beside it if the server takes no writes.
    #[cold]
    pub fn error(&self, error: RedisError) -> StoreError {
        if is_broken(&error) {
            self.link.close();
        }
        if takes_no_writes(&error) {
            self.link.inner.takes_no_writes.set();
        }
        store_error(&self.label().text, error)
    }

    /// The error for a reply of another form than its question's.
    pub fn protocol_error(&self, reply: &Value) -> StoreError {
        self.label().protocol_error(reply)
    }

    /// Sends a question again that is late by the server's clock and has time beyond `until` by
    /// this process's: the server's clock was set, another server took over, or this process was
    /// slow. The reply has corrected what this process knows of that clock.
    pub fn send_again(&self, mut question: Question, until: Instant) {
        question.resends += 1;
        let (queue, label) = (&self.endpoint.queue, self.label());
        let has_time = question.has_time(until.into(), &label.lag);
        if has_time && question.resends <= MAX_LATE_RESENDS {
            return queue.push(question);
        }
        let message = format!(
            "{} did not answer in time: the deadline passed before the command ran",
            label.text
        );
        question.fail(StoreError::new(StoreErrorKind::Timeout, message));
    }

    /// Sends a question again that was answered by a clock which this process did not know, unless
    /// that is so for the second time.
    pub fn ask_anew(&self, mut question: Question, why: &str) {
        question.resends += 1;
        if question.resends == 1 && question.has_time(Instant::now().into(), &self.label().lag) {
            return self.endpoint.queue.push(question);
        }
        let message = format!("{}: {why}", self.label().text);
        question.fail(StoreError::new(StoreErrorKind::Unavailable, message));
    }

    /// Sends the questions of a call again that was refused as a whole, in another way or to
    /// another node, or fails them if there is none. Nothing of a refused call was executed.
    ///
    /// Three ways lead on: a cluster's redirection, the text of an unknown script, and a call of
    /// its own for each key where one key of several may be the reason. What is left is the
    /// server's answer to this very question, and its error.
    #[cold]
    fn handle_refusal<C: FlightCall>(&self, call: C, error: RedisError) {
        let endpoint = &self.endpoint;
        let (sent, number_of_keys) = call.shape();
        let is_shared = number_of_keys > 1;
        #[cfg(feature = "cluster")]
        if let Some(redirects) = &endpoint.redirects
            && let Some(redirect) = redirects.redirect_in(&error)
        {
            let questions = call.into_questions();
            return redirects.follow(&redirect, questions, is_shared, &endpoint.queue);
        }
        let mut options = sent;
        options.has_text |= is_unknown_script(&error);
        options.is_alone |= is_shared && is_about_a_key(&error);
        let can_be_sent_otherwise = options != sent;
        let error = self.error(error);
        for mut question in call.into_questions() {
            question.options = options;
            if can_be_sent_otherwise {
                endpoint.queue.push(question)
            } else {
                question.fail(error.clone())
            }
        }
    }
}

/// A script call or command that one question has for itself.
pub struct UnsharedCall {
    question: Question,
    /// A script repeats it. A command does not know it.
    id: CallId,
    call: fn(&Question) -> Option<&CallQuestion>,
}

/// The error code with which a script answers after its deadline.
const LATE: &str = "LATE";

impl UnsharedCall {
    /// The call of this question, which `call` finds in it.
    pub fn new(question: Question, call: fn(&Question) -> Option<&CallQuestion>) -> Self {
        let id = CallId::next();
        Self { question, id, call }
    }

    /// The question that it asks.
    pub const fn question(&self) -> &Question {
        &self.question
    }

    fn call(&self) -> &CallQuestion {
        (self.call)(&self.question).expect("it was made of a call")
    }
}

impl FlightCall for UnsharedCall {
    fn command(&self, clock: &ServerClock) -> Cmd {
        let (call, question) = (self.call(), &self.question);
        let mut command = if question.options.has_text {
            with_text(call)
        } else {
            call.command.clone()
        };
        if let Some(script) = call.script {
            if script.has_deadline {
                command.arg(clock.at(question.deadline.at.into_std()));
            }
            command.arg(self.id.number());
        }
        command
    }

    fn shape(&self) -> (SendOptions, usize) {
        (self.question.options, 1)
    }

    fn is_numbered(&self) -> bool {
        self.call().script.is_some()
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        self.id.is_in(reply)
    }

    /// If the script was called after the deadline by the server's clock, but not by this
    /// process's, the question is sent again, with the clock that came with the reply.
    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier) {
        if !self.is_numbered() {
            return self.question.reply(Ok(reply));
        }
        let Some(NumberedReply { reply, now }) = self.id.read(reply) else {
            return carrier.condemn([self.question]);
        };
        if let Some(now) = now {
            carrier.clock().learn(now, trip.asked, trip.answered);
        }
        let label = &carrier.label().text;
        match reply.extract_error() {
            Err(error) if error.code() == Some(LATE) => {
                carrier.send_again(self.question, trip.answered);
            }
            reply => {
                let reply = reply.map_err(|error| store_error(label, error));
                self.question.reply(reply);
            }
        }
    }

    fn into_questions(self) -> Vec<Question> {
        vec![self.question]
    }
}

/// The call with the script's text in place of its hash.
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// How many owners of what is in progress are left once a flight was sent.
    fn owners(flight: impl Future<Output = ()> + Send + 'static) -> usize {
        let in_progress = Arc::new(());
        fly(Box::pin(flight), Arc::clone(&in_progress));
        Arc::strong_count(&in_progress)
    }

    #[test]
    fn a_flight_that_is_woken_while_it_is_polled_goes_on() {
        let mut polls = 0;
        let woken = poll_fn(move |cx| {
            polls += 1;
            if polls == 4 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!(owners(woken), 1);
        assert_eq!(owners(async { panic!("of this test") }), 1);
    }

    /// It is allocated for each flight. Its calls are in it once, and the client's own call, which
    /// has no box of its own.
    #[test]
    fn the_future_of_a_flight_is_small() {
        fn size<F>(_: fn(Flight<UnsharedCall>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(Flight::run);
        assert!(size <= 960, "{size} bytes");
    }
}
