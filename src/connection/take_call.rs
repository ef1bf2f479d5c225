use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use smallvec::{SmallVec, smallvec};

use super::call_id::CallId;
use super::errors::{needs_another_connection, store_error};
use super::link::Link;
use super::node::Endpoint;
use super::question::{CountKey, Question, QuestionBody, SendOptions};
use super::scripts::algorithm_script;
use super::server_clock::ServerClock;
use super::take_script::{Answer, id_in, read_answers, write_questions};
use crate::algorithm::Algorithm;
use crate::rule::Rule;

/// The most keys and takes in one script call. Such a call occupies the server for at most about
/// 200 microseconds.
///
/// The server serves nobody else while a script runs, and a script cannot measure how long it has
/// run. So the bound is a number of keys.
const MAX_KEYS: usize = 64;
const MAX_TAKES: usize = 512;
/// In microseconds. Takes of one key and cost share a row if their deadlines are at most this far
/// apart. The row has the earliest of their deadlines.
///
/// Without this spread, each take would need a row of its own, because no two callers ask in the
/// same microsecond. The price is that a take may be refused some milliseconds before its deadline;
/// it is sent again if more than twice this time is left.
const DEADLINE_SPREAD: u64 = 5_000;
/// Later than every time that a script can read: its numbers are doubles.
const NO_DEADLINE: u64 = 1 << 53;

/// Takes of many callers in one script call, for up to 64 keys.
///
/// The script answers the takes of each key as if they had come one after the other. Takes of the
/// same cost that follow one another share a row of the question, so that thousands of takes of one
/// key need few bytes.
///
/// A flight makes it, fills it, writes its command, and consumes it when the reply has come.
///
/// ```text
/// arrived     a a c a b c         the third take of a has cost 5
/// keys        a: row(cost 1, 2 takes), row(cost 5, 1 take)
///             c: row(cost 1, 2 takes)
///             b: row(cost 1, 1 take)
/// reply       clock, call id, answers of a, of c, of b
/// ```
///
/// The answers have no names in them. They belong to the takes by their position alone, so the
/// order of the keys and of their takes must not change between the command and the reply.
pub(super) struct TakeCall {
    id: CallId,
    kind: CallKind,
    keys: SmallVec<[KeyTakes; 1]>,
    /// Whether a key is in it more than once, under several rules.
    repeats_keys: bool,
    number_of_takes: usize,
}

/// Takes, or refunds, share a call only if they agree in all of this.
///
/// In a cluster that includes the slot: a node refuses a call with keys of two slots, even if it
/// serves both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CallKind {
    is_refund: bool,
    pub(super) algorithm: Algorithm,
    /// A test's clock in place of the server's.
    pub(super) now: Option<u64>,
    pub(super) options: SendOptions,
    slot: u16,
}

/// Added to the number of a call with a key that is in it more than once: above all call ids.
const REPEATS_KEYS: u64 = 1 << 32;

/// The takes of one key under one rule, in order of arrival. There is at least one.
pub(super) struct KeyTakes {
    questions: SmallVec<[Question; 1]>,
    pub(super) rows: SmallVec<[Row; 1]>,
}

/// Successive takes of the same cost.
///
/// The script does not decide the takes of a row one by one: the first ones that fit are charged
/// together, and all others are denied together.
pub(super) struct Row {
    pub(super) cost: u64,
    pub(super) takes: u16,
    /// In microseconds of the server's clock.
    pub(super) deadline: u64,
}

impl CallKind {
    /// The kind of call that this take or refund needs.
    pub(super) fn of(question: &Question) -> Self {
        let (is_refund, count, now) = match &question.body {
            QuestionBody::Refund(refund, _) => (true, &refund.count, refund.now),
            _ => (false, &question.take().count, question.take().now),
        };
        Self {
            is_refund,
            algorithm: count.name.rule.algorithm().algorithm(),
            now,
            options: question.options,
            slot: question.slot,
        }
    }
}

impl KeyTakes {
    /// The rule of all its takes.
    pub(super) fn rule(&self) -> &Arc<Rule> {
        &self.count().name.rule
    }

    /// The count that they are about.
    fn count(&self) -> &CountKey {
        &self.questions[0].take().count
    }

    /// Adds a take with this deadline by the server's clock. It joins the last row only if its cost
    /// is the same, since the script answers the takes of a row as one.
    fn push(&mut self, question: Question, deadline: u64) {
        let cost = question.take().cost;
        match self.rows.last_mut() {
            Some(row) if row.cost == cost && row.deadline.abs_diff(deadline) <= DEADLINE_SPREAD => {
                row.takes += 1;
                row.deadline = row.deadline.min(deadline);
            }
            _ => self.rows.push(Row {
                cost,
                takes: 1,
                deadline,
            }),
        }
        self.questions.push(question);
    }
}

impl TakeCall {
    /// A call without takes.
    pub(super) fn new(kind: CallKind) -> Self {
        Self {
            id: CallId::next(),
            kind,
            keys: SmallVec::new(),
            repeats_keys: false,
            number_of_takes: 0,
        }
    }

    /// Whether this take may be added to the takes of the key with this index.
    pub(super) fn takes_more_of(&self, key: usize, question: &Question) -> bool {
        self.kind == CallKind::of(question)
            && self.number_of_takes < MAX_TAKES
            && Arc::ptr_eq(self.keys[key].rule(), &question.take().count.name.rule)
    }

    /// Whether this take may stand behind earlier ones of its key, under another rule than these.
    pub(super) fn takes_key_again(&self, question: &Question) -> bool {
        self.kind == CallKind::of(question) && self.has_room_for_a_key()
    }

    /// Whether a take of another key may be added.
    pub(super) fn has_room_for_a_key(&self) -> bool {
        self.keys.len() < MAX_KEYS && self.number_of_takes < MAX_TAKES
    }

    /// Adds a take to those of the key with this index.
    pub(super) fn push(&mut self, key: usize, question: Question, clock: &ServerClock) {
        let deadline = match self.kind.now {
            Some(_) => NO_DEADLINE,
            None => clock.at(question.deadline.into_std()).min(NO_DEADLINE),
        };
        self.number_of_takes += 1;
        self.keys[key].push(question, deadline);
    }

    /// Adds the first take of a key, and returns the key's index.
    pub(super) fn push_key(&mut self, question: Question, clock: &ServerClock) -> usize {
        self.keys.push(KeyTakes {
            questions: smallvec![],
            rows: smallvec![],
        });
        let key = self.keys.len() - 1;
        self.push(key, question, clock);
        key
    }

    /// Adds a take of a key whose last takes in this call are under another rule.
    pub(super) fn push_key_again(&mut self, question: Question, clock: &ServerClock) -> usize {
        self.repeats_keys = true;
        self.push_key(question, clock)
    }

    /// The number that the reply repeats. It tells the script whether it reads all keys at once.
    fn number(&self) -> u64 {
        self.id.number() + if self.repeats_keys { REPEATS_KEYS } else { 0 }
    }

    /// The count of the key with this index.
    pub(super) fn count(&self, key: usize) -> &CountKey {
        self.keys[key].count()
    }

    /// The script call: keys, questions, call id, and a test's clock if there is one.
    pub(super) fn command(&self) -> Cmd {
        let script = algorithm_script(self.kind.algorithm);
        let (arguments, bytes) = (self.keys.len() + 6, 192 * self.keys.len() + 64);
        let mut command = Cmd::with_capacity(arguments, bytes);
        match self.kind.options.has_text {
            true => command.arg("EVAL").arg(script.source()),
            false => command.arg("EVALSHA").arg(script.sha()),
        };
        command.arg(self.keys.len());
        for key in &self.keys {
            command.arg(&key.count().joined()[..]);
        }
        let mut questions = Vec::with_capacity(64 * self.keys.len());
        write_questions(&self.keys, &mut questions);
        command.arg(questions).arg(self.number());
        if let Some(now) = self.kind.now {
            command.arg(now);
        }
        command
    }

    /// Whether this reply is the one to this call.
    pub(super) fn is_answered_by(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(bytes) if id_in(bytes) == Some(self.number()))
    }

    /// Hands out the answers. A take that is late by the server's clock and not by this process's
    /// is sent again. An error about one key is the answer for the takes of that key only.
    ///
    /// If the reply is not that of this call or cannot be read, all takes get an error, and the
    /// connection is closed.
    pub(super) fn hand_out(self, reply: &Value, asked: Instant, link: &Link, endpoint: &Endpoint) {
        let mut answers = SmallVec::<[_; 1]>::with_capacity(self.number_of_takes);
        let read = match reply {
            Value::BulkString(bytes) => read_answers(bytes, self.number(), &self.keys, |answer| {
                answers.push(answer)
            }),
            _ => None,
        };
        let answered = Instant::now();
        let Some(now) = read else {
            link.close();
            for question in self.into_questions() {
                question.fail(endpoint.mismatched_reply());
            }
            return;
        };
        if self.kind.now.is_none() {
            link.inner.clock.learn(now, asked, answered);
        }
        let retry_until = answered + 2 * Duration::from_micros(DEADLINE_SPREAD);
        let questions = self.keys.into_iter().flat_map(|key| key.questions);
        for (question, answer) in questions.zip(answers) {
            match answer {
                Answer::Decided(decision) => {
                    if let QuestionBody::Take(_, sender) = question.body {
                        sender.send(Ok(decision));
                    }
                }
                Answer::Late if question.deadline.into_std() > retry_until => {
                    endpoint.send_again(question);
                }
                Answer::Late => question.fail(endpoint.deadline_over()),
                Answer::Failed(error) => {
                    if needs_another_connection(&error) {
                        link.close();
                    }
                    question.fail(store_error(&endpoint.label, error));
                }
            }
        }
    }

    /// How the call is sent.
    pub(super) const fn options(&self) -> SendOptions {
        self.kind.options
    }

    /// How many keys the call has.
    pub(super) fn number_of_keys(&self) -> usize {
        self.keys.len()
    }

    /// The takes of all keys.
    pub(super) fn into_questions(self) -> Vec<Question> {
        let keys = self.keys.into_iter();
        keys.flat_map(|key| key.questions).collect()
    }
}
