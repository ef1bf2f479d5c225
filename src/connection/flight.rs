use std::time::Instant;

use redis::{Pipeline, RedisError, RedisResult, Value};

use super::call_id::CallId;
use super::endpoint::Endpoint;
use super::errors::{is_about_a_key, is_unknown_script, needs_another_connection, store_error};
use super::flight_call::{FlightCall, flight_calls};
use super::link::Link;
use super::question::Question;

/// One pipeline with the questions of many callers. It hands out their answers.
///
/// No caller's future drives a flight: the dispatcher does. A caller that leaves changes nothing
/// for the others, and what was sent for it is executed.
///
/// ```text
/// questions in order of arrival
///    -> calls, in rounds (sort_key.rs)
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
/// The dispatcher owns it until its last reply has come, and drops it when the node is dropped; its
/// callers then get an error at once. Every question in it is answered or goes back into a queue
/// exactly once: the calls are consumed by value.
pub(super) struct Flight {
    /// In the order in which they are sent.
    calls: Vec<FlightCall>,
    link: Link,
    endpoint: Endpoint,
}

/// The error code with which a script answers after its deadline.
const LATE: &str = "LATE";

impl Flight {
    /// Groups the questions into calls. `None` if there is no question.
    pub(super) fn new(questions: Vec<Question>, link: Link, endpoint: Endpoint) -> Option<Self> {
        let calls = flight_calls(questions, &link.inner.clock);
        (!calls.is_empty()).then_some(Self {
            calls,
            link,
            endpoint,
        })
    }

    /// Sends all calls and hands out the answers. It has no time limit of its own: each answer's
    /// future has one.
    pub(super) async fn run(self) {
        let mut pipeline = Pipeline::with_capacity(self.calls.len() + 1);
        for call in &self.calls {
            if call.options().is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(call.command(&self.link.inner.clock));
        }
        let check = self.needs_check().then(CallId::next);
        if let Some(id) = check {
            pipeline.add_command(id.check());
        }
        let asked = Instant::now();
        match self.link.ask(&pipeline).await {
            Ok(replies) => self.hand_out(replies, check, asked),
            // Nothing is sent again: it may have been executed.
            Err(error) => self.fail(&error),
        }
    }

    /// Whether there is a call whose reply does not repeat its id. A check is then sent behind all
    /// calls. Without such a call, the last call is the check.
    fn needs_check(&self) -> bool {
        let is_other = |call| matches!(call, &FlightCall::One(_));
        self.calls.iter().any(is_other)
    }

    /// Answers each question by its reply, if the last reply proves that the replies are those of
    /// this flight. Otherwise all its questions fail, and the connection is closed: the replies of
    /// later flights are not their own either.
    ///
    /// If the last reply is an error of the server, it proves nothing, and condemns nothing: the
    /// server may refuse one call, or all while it loads its data. Then errors are handed out, and
    /// decisions that repeat their call's id; the other calls get the error of the check.
    fn hand_out(self, mut replies: Vec<Value>, check: Option<CallId>, asked: Instant) {
        let is_in_step = self.is_in_step(&mut replies, check, asked);
        if matches!(is_in_step, Ok(false)) {
            return self.condemn();
        }
        let Self {
            calls,
            link,
            endpoint,
        } = self;
        let mut replies = replies.into_iter();
        for call in calls {
            let mut next = || replies.next().unwrap_or(Value::Nil).extract_error();
            // `ASKING` has a reply of its own. Where it is forbidden, the call is refused, too.
            let asking = call.options().is_asking.then(&mut next);
            let reply = next();
            match (asking.transpose().and(reply), call) {
                (Err(error), FlightCall::One(question)) if error.code() == Some(LATE) => {
                    retry_if_time_is_left(question, &endpoint);
                }
                (Err(error), call) => handle_refusal(call, &error, &link, &endpoint),
                (Ok(reply), FlightCall::Takes(call)) => {
                    call.hand_out(&reply, asked, &link, &endpoint);
                }
                (Ok(reply), FlightCall::One(question)) => {
                    let error = |error: &RedisError| store_error(&endpoint.label, error.clone());
                    question.answer(is_in_step.as_ref().map(|_| reply).map_err(error));
                }
            }
        }
    }

    /// Whether the last reply is that of the last command. An error if the check was refused.
    fn is_in_step(
        &self,
        replies: &mut Vec<Value>,
        check: Option<CallId>,
        asked: Instant,
    ) -> RedisResult<bool> {
        if let Some(id) = check {
            let reply = replies.pop().unwrap_or(Value::Nil).extract_error()?;
            let now = id.read_check(&reply);
            if let Some(now) = now {
                self.link.inner.clock.learn(now, asked, Instant::now());
            }
            return Ok(now.is_some());
        }
        Ok(match (self.calls.last(), replies.last()) {
            (_, Some(Value::ServerError(_))) => true,
            (Some(FlightCall::Takes(call)), Some(reply)) => call.is_answered_by(reply),
            _ => false,
        })
    }

    /// Answers all questions with the error that the replies belong to another flight, and closes
    /// the connection.
    fn condemn(self) {
        self.link.close();
        let questions = self.calls.into_iter().flat_map(FlightCall::into_questions);
        questions.for_each(|question| question.fail(self.endpoint.mismatched_reply()));
    }

    /// Answers all questions with an error of the connection.
    ///
    /// A broken connection does not tell which calls the server has executed. Sending them again
    /// could charge twice, so the callers get the error and decide for themselves.
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
///
/// The reply that said `LATE` has no clock in it. The clock's estimate has been corrected by then:
/// by the replies to takes in the same flight, or by the check at its end.
fn retry_if_time_is_left(question: Question, endpoint: &Endpoint) {
    match question.deadline.into_std() > Instant::now() {
        true => endpoint.send_again(question),
        false => question.fail(endpoint.deadline_over()),
    }
}

/// Sends the questions of a call again that was refused as a whole, in another way or to another
/// node, or fails them if there is none. Nothing of a refused call was executed.
///
/// Three ways lead on: a cluster's redirection, the text of an unknown script, and a call of its
/// own for each key where one key of several may be the reason. What is left is the server's answer
/// to this very question, and its error.
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
