use std::time::Instant;

use redis::{Pipeline, RedisError, Value};

use super::endpoint::Endpoint;
use super::errors::{is_about_a_key, is_unknown_script, needs_another_connection, store_error};
use super::flight_call::{FlightCall, flight_calls};
use super::link::Link;
use super::question::{Question, QuestionBody};
use super::reply::micros;

/// One pipeline with the questions of many callers. It hands out their answers.
///
/// No caller's future drives a flight: the dispatcher does. A caller that leaves changes nothing
/// for the others, and what was sent for it is executed.
///
/// ```text
/// questions in order of arrival
///    -> calls, in rounds (sort_key.rs)
///    -> [ASKING] call, [ASKING] call, ... [TIME]     one pipeline
///    <- reply, reply, ...
///    -> each call: answered | refused | late | the reply of another call
///                  |          |         |      |
///                  send       again in  again  error, and the link is closed
///                             another   with a
///                             way       corrected clock
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
        let mut pipeline = Pipeline::with_capacity(self.calls.len());
        for call in &self.calls {
            if call.options().is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(call.command(&self.link.inner.clock));
        }
        if !self.begins_with_takes() {
            pipeline.cmd("TIME");
        }
        let asked = Instant::now();
        match self.link.ask(&pipeline).await {
            Ok(replies) => self.hand_out(replies, asked),
            // Nothing is sent again: it may have been executed.
            Err(error) => self.fail(&error),
        }
    }

    /// Whether the first reply itself shows that it belongs to its call: replies to takes repeat a
    /// mark. Replies to other calls do not, so `TIME` is sent behind a flight that begins with one:
    /// if its reply is not a time, the replies before it belong to other calls.
    fn begins_with_takes(&self) -> bool {
        matches!(self.calls.first(), Some(FlightCall::Takes(_)))
    }

    /// Answers each question by its reply. After a reply that belongs to another call, the
    /// remaining calls are not answered by their replies either: they fail, and the connection is
    /// closed.
    ///
    /// A proxy that loses one reply, or a client that counts wrong, shifts all replies that follow.
    /// A decision of another caller would then be taken for one's own, so one mismatch condemns the
    /// rest of the flight and the link.
    fn hand_out(self, mut replies: Vec<Value>, asked: Instant) {
        let begins_with_takes = self.begins_with_takes();
        let Self {
            calls,
            link,
            endpoint,
        } = self;
        let mut is_in_step = true;
        if !begins_with_takes {
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
/// by the replies to takes in the same flight, or by the `TIME` at its end.
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
