use redis::{Cmd, Value};
use smallvec::{SmallVec, smallvec};

use super::call_id::CallId;
use super::errors::{needs_another_connection, store_error};
use super::link::Link;
use super::node::Endpoint;
use super::question::{CountKey, Question, QuestionBody, SendOptions};
use super::scripts::{of_given_back, refund_script};
use super::take_call::CallKind;
use crate::error::{StoreError, StoreErrorKind};

/// The most refunds in one script call. Such a call of a log occupies the server for about 0.2 ms,
/// or 0.3 ms where they come in any order; of the other algorithms for less.
const MAX_REFUNDS: usize = 20;

/// Refunds of many callers in one script call.
///
/// As in a [`TakeCall`](super::take_call::TakeCall), the refunds of each count are executed in the
/// order in which they came, and an error about one count is the answer to its refunds alone. The
/// script reads and writes each count once.
pub(super) struct RefundCall {
    id: CallId,
    kind: CallKind,
    counts: SmallVec<[CountRefunds; 1]>,
    number_of_refunds: usize,
}

/// The refunds of one count, in order of arrival. There is at least one.
type CountRefunds = SmallVec<[Question; 1]>;

impl RefundCall {
    /// A call without refunds.
    pub(super) fn new(kind: CallKind) -> Self {
        Self {
            id: CallId::next(),
            kind,
            counts: SmallVec::new(),
            number_of_refunds: 0,
        }
    }

    /// Whether this refund may be added.
    pub(super) fn has_room_for(&self, question: &Question) -> bool {
        self.number_of_refunds < MAX_REFUNDS && self.kind == CallKind::of(question)
    }

    /// Adds a refund to those of the count with this index.
    pub(super) fn push(&mut self, count: usize, question: Question) {
        self.number_of_refunds += 1;
        self.counts[count].push(question);
    }

    /// Adds the first refund of a count, and returns the count's index.
    pub(super) fn push_count(&mut self, question: Question) -> usize {
        self.counts.push(smallvec![]);
        let count = self.counts.len() - 1;
        self.push(count, question);
        count
    }

    /// The count with this index.
    pub(super) fn count(&self, count: usize) -> &CountKey {
        &self.counts[count][0].refund().count
    }

    /// The script call: two keys and the receipts of each count, a test's clock if there is one,
    /// and the call id. See `lua/include/refund_begin.lua`.
    pub(super) fn command(&self) -> Cmd {
        let script = refund_script(self.kind.algorithm);
        let mut command = Cmd::with_capacity(
            2 * self.counts.len() + 6,
            192 * self.counts.len() + 28 * self.number_of_refunds + 64,
        );
        match self.kind.options.has_text {
            true => command.arg("EVAL").arg(script.source()),
            false => command.arg("EVALSHA").arg(script.sha()),
        };
        command.arg(2 * self.counts.len());
        let mut receipts = Vec::with_capacity(2 * self.counts.len() + 28 * self.number_of_refunds);
        for (at, refunds) in self.counts.iter().enumerate() {
            let name = self.count(at).text();
            command.arg(&name).arg(of_given_back(&name));
            let number = u16::try_from(refunds.len()).expect("a call has at most 20 refunds");
            receipts.extend_from_slice(&number.to_be_bytes());
            for question in refunds {
                let refund = question.refund();
                let receipt = &refund.receipt;
                for number in [
                    receipt.stamp(),
                    receipt.serial(),
                    receipt.units(),
                    refund.max,
                ] {
                    receipts.extend_from_slice(&number.to_be_bytes()[1..]);
                }
            }
        }
        command.arg(receipts);
        if let Some(now) = self.kind.now {
            command.arg(now);
        }
        command.arg(self.id.number());
        command
    }

    /// Whether this reply is the one to this call.
    pub(super) fn is_answered_by(&self, reply: &Value) -> bool {
        self.id.is_in(reply)
    }

    /// Hands out the answers. If the reply is not that of this call or cannot be read, all refunds
    /// get an error, and the connection is closed.
    pub(super) fn hand_out(self, reply: Value, link: &Link, endpoint: &Endpoint) {
        let answers = match self.id.read(reply).map(|numbered| numbered.reply) {
            Some(Value::Array(answers)) if answers.len() == self.number_of_refunds => answers,
            _ => {
                link.close();
                for question in self.into_questions() {
                    question.fail(endpoint.mismatched_reply());
                }
                return;
            }
        };
        for (question, answer) in self.into_questions().into_iter().zip(answers) {
            let max = question.refund().max;
            let units = match answer {
                // Nobody gets back more than was charged.
                Value::Int(units @ 0..) if units.unsigned_abs() <= max => Ok(units.unsigned_abs()),
                answer => Err(match answer.extract_error() {
                    Err(error) => {
                        if needs_another_connection(&error) {
                            link.close();
                        }
                        store_error(&endpoint.label, error)
                    }
                    Ok(_) => {
                        let message =
                            format!("{} gave an answer that is no refund", endpoint.label);
                        StoreError::new(StoreErrorKind::Protocol, message)
                    }
                }),
            };
            if let QuestionBody::Refund(_, sender) = question.body {
                sender.send(units);
            }
        }
    }

    /// How the call is sent.
    pub(super) const fn options(&self) -> SendOptions {
        self.kind.options
    }

    /// How many counts the call is about.
    pub(super) fn number_of_counts(&self) -> usize {
        self.counts.len()
    }

    /// The refunds of all counts.
    pub(super) fn into_questions(self) -> Vec<Question> {
        self.counts.into_iter().flatten().collect()
    }
}
