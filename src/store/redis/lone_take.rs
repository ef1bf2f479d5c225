use redis::{Cmd, Value};

use super::question::{CountOperation, CountQuestion};
use super::take_call::{CallKind, TakeCall, algorithm_of, deadline, decided, script_of};
use super::take_script::{id_in, read_lone, write_lone};
use crate::connection::{
    CallId, Carrier, FlightCall, Question, RoundTrip, SendOptions, ServerClock,
};

/// A take of one count of windows, whose key nothing holds, in a call of its own: what most requests
/// ask while few are in progress.
///
/// It is a [`TakeCall`] of one take, without its lists: it sends the same bytes, and reads the reply
/// if that is a decision about one quota. Every other reply is that call's.
pub(super) struct LoneTake {
    id: CallId,
    question: Question,
}

impl LoneTake {
    /// Whether a question is such a take.
    pub(super) fn is_one(question: &Question) -> bool {
        CountQuestion::in_question(question).is_some_and(|asked| {
            let spec = &asked.first().spec;
            matches!(
                asked.what,
                CountOperation::Take {
                    whole: None,
                    holder: None
                }
            ) && spec.windows().is_some()
                && !(spec.may_be_held() || question.options.is_asking)
        })
    }

    pub(super) fn new(question: Question) -> Self {
        let id = CallId::next();
        Self { id, question }
    }

    #[cold]
    fn into_call(self, clock: &ServerClock) -> TakeCall {
        let mut call = TakeCall::with_id(self.id, CallKind::new(&self.question));
        call.push(0, self.question, clock);
        call
    }
}

impl FlightCall for LoneTake {
    fn command(&self, clock: &ServerClock) -> Cmd {
        let asked = CountQuestion::in_call(&self.question);
        let count = asked.first();
        let script = script_of(algorithm_of(&count.spec));
        let mut command = script.command(self.question.options.has_text, 1, 256);
        let questions = write_lone(count, deadline(&self.question, clock));
        command.arg(count).arg(&questions[..]).arg(self.id.number());
        if let Some(now) = asked.now {
            command.arg(now);
        }
        command
    }

    fn shape(&self) -> (SendOptions, usize) {
        (self.question.options, 1)
    }

    fn is_answered_by(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(bytes) if id_in(bytes) == Some(self.id.number()))
    }

    fn hand_out(self, reply: Value, trip: RoundTrip, carrier: &Carrier) {
        let asked = CountQuestion::in_call(&self.question);
        let read = match &reply {
            Value::BulkString(bytes) => read_lone(bytes, self.id.number(), asked.first()),
            _ => None,
        };
        let Some((now, decision)) = read else {
            let call = self.into_call(carrier.clock());
            return call.hand_out(reply, trip, carrier);
        };
        if asked.now.is_none() {
            carrier.clock().learn(now, trip.asked, trip.answered);
        }
        decided(self.question, decision, trip, carrier);
    }

    fn into_questions(self) -> Vec<Question> {
        vec![self.question]
    }
}
