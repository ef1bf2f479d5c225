//! Takes of many callers in one script call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::clock::ServerClock;
use super::errors::store_error;
use super::flight::{Home, needs_another_connection};
use super::link::Link;
use super::question::{Body, Question, TakeQuestion, Way};
use super::scripts::algorithm_script;
use super::take_script::{Answer, Batch, Row, read_answers, write_questions};

/// Keys in one script call, and takes: it holds the server for about 200 us at most.
const MAX_KEYS: usize = 64;
const MAX_TAKES: usize = 512;
/// Microseconds. Takes of the same cost share a row, and its earliest deadline, if their deadlines
/// are no farther apart.
const DEADLINE_SPREAD: u64 = 5_000;
/// The scripts' numbers are doubles: no clock of theirs shows more.
const NO_DEADLINE: u64 = 1 << 53;

/// One script call: takes of up to 64 keys.
pub(super) struct TakeCall {
    /// Its reply repeats it, so that another call's reply is noticed.
    mark: u64,
    /// Those of a key stand together, in order of arrival.
    pub(super) questions: Vec<Question>,
    keys: Vec<KeyTakes>,
}

/// What is asked about one key, under one rule.
struct KeyTakes {
    first: usize,
    rows: SmallVec<[Row; 1]>,
}

/// Where a question stands in its flight: calls are cut from questions in this order. For each key
/// it is that of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Calls of a later part follow those of an earlier one.
    part: usize,
    /// Questions that differ in these cannot share a call.
    call: (usize, Option<u64>, Way, usize, u16),
    /// The first question about the same key.
    first: usize,
    at: usize,
}

/// Groups takes into calls.
pub(super) fn take_calls(questions: Vec<Question>, clock: &ServerClock) -> Vec<TakeCall> {
    let mut places = places(&questions);
    places.sort_unstable();
    let mut questions: Vec<_> = questions.into_iter().map(Some).collect();
    let mut calls: Vec<TakeCall> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| &places[index]);
        let is_same_key = before.is_some_and(|other| other.first == place.first);
        let is_same_call =
            before.is_some_and(|other| (other.part, other.call) == (place.part, place.call));
        let has_room = calls.last().is_some_and(|call| {
            let has_key = is_same_key || call.keys.len() < MAX_KEYS;
            has_key && call.questions.len() < MAX_TAKES
        });
        if !is_same_call || !has_room {
            calls.push(TakeCall::new());
        }
        if let (Some(call), Some(question)) = (calls.last_mut(), questions[place.at].take()) {
            call.push(question, clock, is_same_key && has_room);
        }
    }
    calls
}

fn places(questions: &[Question]) -> Vec<Place> {
    let mut part = 0;
    let mut known: HashMap<&str, (usize, &TakeQuestion)> = HashMap::with_capacity(questions.len());
    let mut places = Vec::with_capacity(questions.len());
    for (at, question) in questions.iter().enumerate() {
        let Body::Take(take, _) = &question.body else {
            continue;
        };
        let is_alone = question.way.is_alone;
        let (mut first, other) = *known.entry(&take.name).or_insert((at, take));
        if !Arc::ptr_eq(&other.rule, &take.rule) || other.now != take.now || is_alone && first < at
        {
            // Asked behind the other takes of this key, but not together with them.
            part += 1;
            known.clear();
            known.insert(&take.name, (at, take));
            first = at;
        }
        let script: *const _ = algorithm_script(take.rule.counting().algorithm());
        let alone = if is_alone { at + 1 } else { 0 };
        places.push(Place {
            part,
            call: (
                script as usize,
                take.now,
                question.way,
                alone,
                question.slot,
            ),
            first,
            at,
        });
    }
    places
}

impl TakeCall {
    fn new() -> Self {
        /// Calls that are under way at the same time have different marks.
        static MARK: AtomicU64 = AtomicU64::new(0);
        Self {
            mark: MARK.fetch_add(1, Ordering::Relaxed) % (1 << 32),
            questions: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn push(&mut self, question: Question, clock: &ServerClock, is_same_key: bool) {
        let Body::Take(take, _) = &question.body else {
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

    fn batches(&self) -> Vec<Batch<'_>> {
        let batches = self.keys.iter().filter_map(|key| {
            let Body::Take(take, _) = &self.questions[key.first].body else {
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

    pub(super) fn command(&self) -> Cmd {
        let batches = self.batches();
        let mut command = Cmd::new();
        let Some(script) = batches
            .first()
            .map(|batch| algorithm_script(batch.rule.counting().algorithm()))
        else {
            return command;
        };
        match self.way().has_text {
            true => command.arg("EVAL").arg(script.source()),
            false => command.arg("EVALSHA").arg(script.sha()),
        };
        command.arg(batches.len());
        for batch in &batches {
            command.arg(batch.name);
        }
        let mut questions = Vec::with_capacity(64 * batches.len());
        write_questions(&batches, &mut questions);
        command.arg(questions).arg(self.mark);
        if let Some(now) = self.now() {
            command.arg(now);
        }
        command
    }

    /// Hands out the answers, if this is the reply to these questions. What is late by the server's
    /// clock and not by this process's is asked again.
    pub(super) fn answer(
        mut self,
        reply: &Value,
        asked: Instant,
        link: &Link,
        home: &Home,
    ) -> bool {
        let mut answers = Vec::with_capacity(self.questions.len());
        let read = match reply {
            Value::BulkString(bytes) => read_answers(bytes, self.mark, &self.batches(), |answer| {
                answers.push(answer)
            }),
            _ => None,
        };
        let answered = Instant::now();
        let Some(now) = read else {
            // The replies behind it may be those to other questions, too.
            link.close();
            for question in self.questions {
                question.fail(home.wrong_answer());
            }
            return false;
        };
        if self.now().is_none() {
            link.shared.clock.learn(now, asked, answered);
        }
        let spread = 2 * std::time::Duration::from_micros(DEADLINE_SPREAD);
        for (question, answer) in std::mem::take(&mut self.questions).into_iter().zip(answers) {
            match (answer, question.body) {
                (Answer::Decided(decision), Body::Take(_, caller)) => caller.answer(Ok(decision)),
                (answer, body) => {
                    let question = Question { body, ..question };
                    match answer {
                        Answer::Late if question.deadline.into_std() > answered + spread => {
                            home.ask_again(question);
                        }
                        Answer::Failed(error) => {
                            if needs_another_connection(&error) {
                                link.close();
                            }
                            question.fail(store_error(&home.address, error));
                        }
                        _ => question.fail(home.late()),
                    }
                }
            }
        }
        true
    }

    pub(super) fn way(&self) -> Way {
        self.questions
            .first()
            .map_or_else(Way::default, |question| question.way)
    }

    fn now(&self) -> Option<u64> {
        match &self.questions.first()?.body {
            Body::Take(take, _) => take.now,
            Body::Call(..) => None,
        }
    }

    pub(super) fn number_of_keys(&self) -> usize {
        self.keys.len()
    }
}
