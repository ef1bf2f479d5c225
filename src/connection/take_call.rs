use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::call_id::CallId;
use super::endpoint::Endpoint;
use super::errors::{needs_another_connection, store_error};
use super::link::Link;
use super::question::{Question, QuestionBody, SendOptions};
use super::scripts::algorithm_script;
use super::server_clock::ServerClock;
use super::take_script::{Answer, Batch, Row, id_in, read_answers, write_questions};

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
/// questions   a a a b c c         takes, sorted by key
/// keys        a: row(cost 1, 2 takes), row(cost 5, 1 take)
///             b: row(cost 1, 1 take)
///             c: row(cost 1, 2 takes)
/// reply       clock, call id, answers of a, of b, of c
/// ```
///
/// The answers have no names in them. They belong to the takes by their position alone, so the
/// order of `questions` must not change between the command and the reply.
pub(super) struct TakeCall {
    id: CallId,
    /// The takes of a key stand together, in order of arrival.
    pub(super) questions: Vec<Question>,
    keys: Vec<KeyTakes>,
}

/// The takes of one key under one rule.
struct KeyTakes {
    /// The index of the first of them in the call's questions.
    first: usize,
    rows: SmallVec<[Row; 1]>,
}

impl TakeCall {
    /// A call without questions.
    pub(super) fn new() -> Self {
        Self {
            id: CallId::next(),
            questions: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Whether one more take may be added. `is_same_key`: its key is that of the take added last.
    pub(super) fn has_room(&self, is_same_key: bool) -> bool {
        (is_same_key || self.keys.len() < MAX_KEYS) && self.questions.len() < MAX_TAKES
    }

    /// Adds a take. `is_same_key`: its key is that of the take added last.
    ///
    /// The takes of one key have to be added in a row and in order of arrival. A take joins the
    /// last row only if its cost is the same, since the script answers the takes of a row as one.
    pub(super) fn push(&mut self, question: Question, clock: &ServerClock, is_same_key: bool) {
        let QuestionBody::Take(take, _) = &question.body else {
            return;
        };
        if !is_same_key || self.keys.is_empty() {
            self.keys.push(KeyTakes {
                first: self.questions.len(),
                rows: SmallVec::new(),
            });
        }
        let cost = take.cost;
        let deadline = match take.now {
            Some(_) => NO_DEADLINE,
            None => clock.at(question.deadline.into_std()).min(NO_DEADLINE),
        };
        let rows = self.keys.last_mut().map(|key| &mut key.rows);
        let is_alike =
            |row: &Row| row.cost == cost && row.deadline.abs_diff(deadline) <= DEADLINE_SPREAD;
        if let Some(rows) = rows {
            match rows.last_mut() {
                Some(row) if is_alike(row) => {
                    row.takes += 1;
                    row.deadline = row.deadline.min(deadline);
                }
                _ => rows.push(Row {
                    cost,
                    takes: 1,
                    deadline,
                }),
            }
        }
        self.questions.push(question);
    }

    /// The takes by key, as the script reads them.
    fn batches(&self) -> Vec<Batch<'_>> {
        let batches = self.keys.iter().filter_map(|key| {
            let QuestionBody::Take(take, _) = &self.questions[key.first].body else {
                return None;
            };
            Some(Batch {
                rule: &take.rule,
                name: &take.name,
                rows: &key.rows,
            })
        });
        batches.collect()
    }

    /// The script call: keys, questions, call id, and a test's clock if there is one.
    pub(super) fn command(&self) -> Cmd {
        let batches = self.batches();
        let mut command = Cmd::new();
        let Some(script) = batches
            .first()
            .map(|batch| algorithm_script(batch.rule.algorithm().algorithm()))
        else {
            return command;
        };
        match self.options().has_text {
            true => command.arg("EVAL").arg(script.source()),
            false => command.arg("EVALSHA").arg(script.sha()),
        };
        command.arg(batches.len());
        for batch in &batches {
            command.arg(batch.name);
        }
        let mut questions = Vec::with_capacity(64 * batches.len());
        write_questions(&batches, &mut questions);
        command.arg(questions).arg(self.id.number());
        if let Some(now) = self.now() {
            command.arg(now);
        }
        command
    }

    /// Whether this reply is the one to this call.
    pub(super) fn is_answered_by(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(bytes) if id_in(bytes) == Some(self.id.number()))
    }

    /// Hands out the answers. A take that is late by the server's clock and not by this process's is
    /// sent again. An error about one key is the answer for the takes of that key only.
    ///
    /// If the reply is not that of this call or cannot be read, all takes get an error, and the
    /// connection is closed.
    pub(super) fn hand_out(
        mut self,
        reply: &Value,
        asked: Instant,
        link: &Link,
        endpoint: &Endpoint,
    ) {
        let mut answers = Vec::with_capacity(self.questions.len());
        let read = match reply {
            Value::BulkString(bytes) => {
                read_answers(bytes, self.id.number(), &self.batches(), |answer| {
                    answers.push(answer)
                })
            }
            _ => None,
        };
        let answered = Instant::now();
        let Some(now) = read else {
            link.close();
            for question in self.questions {
                question.fail(endpoint.mismatched_reply());
            }
            return;
        };
        if self.now().is_none() {
            link.inner.clock.learn(now, asked, answered);
        }
        let spread = 2 * Duration::from_micros(DEADLINE_SPREAD);
        for (question, answer) in std::mem::take(&mut self.questions).into_iter().zip(answers) {
            match (answer, question.body) {
                (Answer::Decided(decision), QuestionBody::Take(_, sender)) => {
                    sender.send(Ok(decision));
                }
                (answer, body) => {
                    let question = Question { body, ..question };
                    match answer {
                        Answer::Late if question.deadline.into_std() > answered + spread => {
                            endpoint.send_again(question);
                        }
                        Answer::Failed(error) => {
                            if needs_another_connection(&error) {
                                link.close();
                            }
                            question.fail(store_error(&endpoint.label, error));
                        }
                        _ => question.fail(endpoint.deadline_over()),
                    }
                }
            }
        }
    }

    /// How the call is sent. All its questions have the same options.
    pub(super) fn options(&self) -> SendOptions {
        let first = self.questions.first();
        first.map(|question| question.options).unwrap_or_default()
    }

    /// A test's clock in place of the server's. All questions of the call have the same.
    fn now(&self) -> Option<u64> {
        match &self.questions.first()?.body {
            QuestionBody::Take(take, _) => take.now,
            QuestionBody::Call(..) => None,
        }
    }

    /// How many keys the call has.
    pub(super) fn number_of_keys(&self) -> usize {
        self.keys.len()
    }
}
