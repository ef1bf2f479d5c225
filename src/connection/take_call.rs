//! Takes of many callers in one script call.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use redis::{Cmd, Value};

use super::Script;
use super::clock::ServerClock;
use super::flight::{By, Call, Home, leads_to_wrong_server};
use super::link::Link;
use super::question::{Body, Question, TakeQuestion, late_by_server};
use super::queue::Queue;
use super::take_script::{Answer, Batch, Row, read_answers, script_of, write_questions};
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::hash;
use crate::rule::Rule;

/// Keys in one script call, and takes: it holds the server for about 200 us at most.
pub(super) const MAX_KEYS: usize = 64;
pub(super) const MAX_TAKES: usize = 512;
/// Takes with the same cost share a row of a call, and the earliest of their deadlines, if these are no farther apart.
const DEADLINE_SPREAD: Duration = Duration::from_millis(5);

/// One script call: the takes of up to 64 keys.
pub(super) struct TakeCall {
    script: &'static Script,
    /// A test's clock.
    now: Option<u64>,
    /// Its reply repeats it, so that another call's reply is noticed.
    mark: u64,
    /// By key, in order of arrival.
    questions: Vec<Question>,
    batches: Vec<BatchSpan>,
    rows: Vec<Row>,
    repeats: Repeats,
}

/// The takes of one rule and key.
struct BatchSpan {
    questions: Range<usize>,
    rows: Range<usize>,
}

/// Waiters' repeats in a call. Others about the same keys wait in the queue until this is dropped.
struct Repeats {
    queue: Arc<Queue>,
    /// With the denials of each.
    keys: Vec<RepeatedKey>,
}

struct RepeatedKey {
    name: Box<str>,
    rule: Arc<Rule>,
    denials: Vec<(u64, Decision)>,
}

/// Where a question stands in the flight: the calls are cut from questions in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Takes of a key that cannot share a batch follow one another in calls of their own.
    generation: u32,
    group: u32,
    slot: u16,
    batch: u32,
    question: u32,
}

/// What the questions of one call have in common, besides their slot.
struct Group {
    script: &'static Script,
    now: Option<u64>,
    is_alone: bool,
}

struct NewBatch {
    generation: u32,
    group: u32,
    first_question: usize,
    takes: usize,
}

/// Groups takes into calls. For each key the calls and their rows keep the order of the questions.
pub(super) fn take_calls(
    questions: Vec<Question>,
    clock: &ServerClock,
    queue: &Arc<Queue>,
) -> Vec<Call> {
    let places = places(&questions);
    let mut questions: Vec<Option<Question>> = questions.into_iter().map(Some).collect();
    let mut calls: Vec<TakeCall> = Vec::new();
    let mut last: Option<&Place> = None;
    for place in &places {
        let Some(question) = questions[place.question as usize].take() else {
            continue;
        };
        let is_same_batch = last.is_some_and(|last| last.batch == place.batch);
        let is_same_call = last.is_some_and(|last| {
            (last.generation, last.group, last.slot) == (place.generation, place.group, place.slot)
        });
        let has_room = |call: &&mut TakeCall| {
            let has_place = is_same_batch || call.batches.len() < MAX_KEYS;
            has_place && call.questions.len() < MAX_TAKES
        };
        match calls.last_mut().filter(has_room).filter(|_| is_same_call) {
            Some(call) => call.push(question, clock, !is_same_batch),
            None => {
                let Some(mut call) = TakeCall::new(&question, queue) else {
                    continue;
                };
                call.push(question, clock, true);
                calls.push(call);
            }
        }
        last = Some(place);
    }
    calls.into_iter().map(Call::Takes).collect()
}

fn places(questions: &[Question]) -> Vec<Place> {
    let mut groups: Vec<Group> = Vec::new();
    let mut batches: Vec<NewBatch> = Vec::new();
    let mut latest: HashTable<u32> = HashTable::with_capacity(questions.len());
    let mut places = Vec::with_capacity(questions.len());
    for (at, question) in (0..).zip(questions) {
        let Body::Take(take) = &question.body else {
            continue;
        };
        let group = group_of(question, take, &mut groups);
        let is_same_key = |batch: &u32| {
            let batch = &batches[*batch as usize];
            batch.group == group && name(&questions[batch.first_question]) == &*take.name
        };
        let hash_of = hash(&take.name);
        let known = latest.find(hash_of, is_same_key).copied();
        let joined = known.filter(|batch| {
            let batch = &batches[*batch as usize];
            batch.takes < MAX_TAKES && has_rule(&questions[batch.first_question], &take.rule)
        });
        let batch = joined.unwrap_or_else(|| {
            let generation = known.map_or(0, |known| batches[known as usize].generation + 1);
            let new = u32::try_from(batches.len()).unwrap_or(u32::MAX);
            batches.push(NewBatch {
                generation,
                group,
                first_question: at as usize,
                takes: 0,
            });
            new
        });
        if joined.is_none() {
            match latest.find_mut(hash_of, |known_batch| Some(*known_batch) == known) {
                Some(entry) => *entry = batch,
                None => {
                    let name_of = |batch: &u32| {
                        hash(name(&questions[batches[*batch as usize].first_question]))
                    };
                    latest.insert_unique(hash_of, batch, name_of);
                }
            }
        }
        let known = &mut batches[batch as usize];
        known.takes += 1;
        places.push(Place {
            generation: known.generation,
            group,
            slot: question.slot,
            batch,
            question: at,
        });
    }
    places.sort_unstable();
    places
}

fn group_of(question: &Question, take: &TakeQuestion, groups: &mut Vec<Group>) -> u32 {
    let group = Group {
        script: script_of(&take.rule),
        now: take.now,
        is_alone: question.route.is_alone,
    };
    let is_same = |other: &Group| {
        !group.is_alone
            && !other.is_alone
            && std::ptr::eq(group.script, other.script)
            && group.now == other.now
    };
    let known = groups.iter().position(is_same);
    let at = known.unwrap_or_else(|| {
        groups.push(group);
        groups.len() - 1
    });
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn name(question: &Question) -> &str {
    match &question.body {
        Body::Take(take) => &take.name,
        Body::Call(_) => "",
    }
}

fn has_rule(question: &Question, rule: &Arc<Rule>) -> bool {
    matches!(&question.body, Body::Take(take) if Arc::ptr_eq(&take.rule, rule))
}

impl TakeCall {
    /// An empty call that this question may begin.
    fn new(question: &Question, queue: &Arc<Queue>) -> Option<Self> {
        use std::sync::atomic::{AtomicU64, Ordering};
        /// Calls that are under way at the same time have different marks.
        static MARK: AtomicU64 = AtomicU64::new(0);

        let Body::Take(take) = &question.body else {
            return None;
        };
        Some(Self {
            script: script_of(&take.rule),
            now: take.now,
            mark: MARK.fetch_add(1, Ordering::Relaxed) % (1 << 32),
            questions: Vec::new(),
            batches: Vec::new(),
            rows: Vec::new(),
            repeats: Repeats {
                queue: Arc::clone(queue),
                keys: Vec::new(),
            },
        })
    }

    fn push(&mut self, question: Question, clock: &ServerClock, is_new_key: bool) {
        let Body::Take(take) = &question.body else {
            return;
        };
        let (at, row_at) = (self.questions.len(), self.rows.len());
        if is_new_key {
            self.batches.push(BatchSpan {
                questions: at..at,
                rows: row_at..row_at,
            });
        }
        let Some(batch) = self.batches.last_mut() else {
            return;
        };
        batch.questions.end = at + 1;
        let deadline = match take.now {
            Some(_) => NO_DEADLINE,
            None => clock.at(question.deadline.into_std()).min(NO_DEADLINE),
        };
        let spread = DEADLINE_SPREAD.as_micros() as u64;
        let last = self.rows[batch.rows.clone()].last_mut();
        let same =
            |row: &&mut Row| row.cost == take.cost && row.deadline.abs_diff(deadline) <= spread;
        match last.filter(same) {
            Some(row) => {
                row.takes += 1;
                row.deadline = row.deadline.min(deadline);
            }
            None => {
                self.rows.push(Row {
                    cost: take.cost,
                    takes: 1,
                    deadline,
                });
                batch.rows.end += 1;
            }
        }
        if take.is_repeat && !question.route.is_alone {
            self.repeats.note(take);
        }
        self.questions.push(question);
    }

    fn batches(&self) -> Vec<Batch<'_>> {
        let spans = self.batches.iter().filter_map(|span| {
            let Body::Take(take) = &self.questions[span.questions.start].body else {
                return None;
            };
            Some(Batch {
                rule: &take.rule,
                name: &take.name,
                rows: &self.rows[span.rows.clone()],
            })
        });
        spans.collect()
    }

    pub(super) fn command(&self, by: By) -> Cmd {
        let batches = self.batches();
        let mut questions = Vec::with_capacity(64 * batches.len());
        write_questions(&batches, &mut questions);
        let (name, script) = match by {
            By::Hash => ("EVALSHA", self.script.sha()),
            By::Text => ("EVAL", self.script.source()),
        };
        let names: usize = batches.iter().map(|batch| batch.name.len()).sum();
        let size = script.len() + names + questions.len() + 64;
        let mut command = Cmd::with_capacity(6 + batches.len(), size);
        command.arg(name).arg(script).arg(batches.len());
        for batch in &batches {
            command.arg(batch.name);
        }
        command.arg(&questions).arg(self.mark);
        if let Some(now) = self.now {
            command.arg(now);
        }
        command
    }

    /// Hands out the answers. What is left was too late by the server's clock and is not by this process's.
    pub(super) fn answer(
        mut self,
        reply: &Value,
        asked: Instant,
        link: &Link,
        home: &Home,
    ) -> Vec<Question> {
        let mut answers = Vec::with_capacity(self.questions.len());
        let read = match reply {
            Value::BulkString(bytes) => {
                read_answers(bytes, self.mark, &self.batches(), |_, answer| {
                    answers.push(answer)
                })
            }
            _ => Err(StoreError::new(
                StoreErrorKind::Protocol,
                "redis gave an answer that is not a decision",
            )),
        };
        let answered = Instant::now();
        match read {
            Ok(now) if self.now.is_none() => link.shared.clock.learn(now, asked, answered),
            Ok(_) => {}
            Err(error) => {
                // Neither are the replies behind it those to their questions.
                link.close();
                let error = home.explained(&error);
                self.into_questions()
                    .into_iter()
                    .for_each(|question| question.fail(error.clone()));
                return Vec::new();
            }
        }
        let mut late = Vec::new();
        for (question, answer) in std::mem::take(&mut self.questions).into_iter().zip(answers) {
            match answer {
                Answer::Decided(decision) => self.repeats.decided(question, decision),
                Answer::Late if question.deadline.into_std() > answered + 2 * DEADLINE_SPREAD => {
                    late.push(question);
                }
                Answer::Late => question.fail(late_by_server(&home.address)),
                Answer::Failed(error) => {
                    if leads_to_wrong_server(&error) {
                        link.close();
                    }
                    question.fail(home.explained(&error));
                }
            }
        }
        late
    }

    pub(super) fn number_of_keys(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn into_questions(self) -> Vec<Question> {
        self.questions
    }

    #[cfg(feature = "cluster")]
    pub(super) fn is_asking(&self) -> bool {
        self.questions
            .first()
            .is_some_and(|question| question.route.is_asking)
    }
}

/// The scripts' numbers are doubles: no clock of theirs shows more.
const NO_DEADLINE: u64 = 1 << 53;

impl Repeats {
    fn note(&mut self, take: &TakeQuestion) {
        if self.keys.last().is_none_or(|key| key.name != take.name) {
            self.keys.push(RepeatedKey {
                name: take.name.clone(),
                rule: Arc::clone(&take.rule),
                denials: Vec::new(),
            });
        }
    }

    fn decided(&mut self, question: Question, decision: Decision) {
        let Body::Take(take) = question.body else {
            return;
        };
        if take.is_repeat && !decision.is_allowed() {
            let key = self.keys.iter_mut().find(|key| key.name == take.name);
            if let Some(key) = key
                && key.denials.iter().all(|(cost, _)| *cost != take.cost)
            {
                key.denials.push((take.cost, decision.clone()));
            }
        }
        take.answer(Ok(decision));
    }
}

impl Drop for Repeats {
    fn drop(&mut self) {
        for key in &self.keys {
            self.queue.landed(&key.name, &key.rule, &key.denials);
        }
    }
}
