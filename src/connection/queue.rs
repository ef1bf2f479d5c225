use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::question::{Body, Question, TakeQuestion, runtime_ended};
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::rule::Rule;

/// The questions that wait for the next flight to one server.
#[derive(Debug)]
pub(super) struct Queue {
    address: Arc<str>,
    state: Mutex<State>,
    /// There is something to send, or something has to be sent earlier.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Question>,
    /// When the first of them is overdue.
    overdue: Option<Instant>,
    /// By the name of the key: waiters' repeats behind those that are under way.
    parked: HashMap<Box<str>, VecDeque<Question>>,
    number_parked: usize,
    /// Not before this the queue is searched for abandoned questions again.
    next_cleaning: Option<Instant>,
    is_closed: bool,
}

/// The most questions that wait for one server; those beyond are `Overloaded`.
pub(super) const MAX_QUEUED: usize = 16_384;
/// The most repeats about one key that travel at once.
const MAX_REPEATS: usize = 64;
const CLEANING_PAUSE: Duration = Duration::from_millis(1);

impl Queue {
    pub(super) fn new(address: &Arc<str>) -> Self {
        Self {
            address: Arc::clone(address),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds a question, or answers it with an error.
    pub(super) fn push(&self, question: Question) {
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            return question.fail(runtime_ended(&self.address));
        }
        if !state.has_room() {
            drop(state);
            return question.fail(self.overloaded());
        }
        let is_earlier = state
            .overdue
            .is_none_or(|overdue| question.overdue < overdue);
        if is_earlier {
            state.overdue = Some(question.overdue);
        }
        state.waiting.push_back(question);
        drop(state);
        if is_earlier {
            self.changed.notify_one();
        }
    }

    /// Completes when a question waits.
    pub(super) async fn has_questions(&self) {
        self.until(|state| !state.waiting.is_empty()).await;
    }

    /// Completes when a question is overdue.
    pub(super) async fn is_overdue(&self) {
        loop {
            let changed = self.changed.notified();
            let overdue = self.state().overdue;
            match overdue {
                Some(overdue) => tokio::select! {
                    () = tokio::time::sleep_until(overdue) => return,
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Up to `max` questions in order of arrival, without those that nobody waits for any more. Of waiters' repeats about
    /// one key some travel, and the others wait for their answers.
    pub(super) fn take(&self, max: usize) -> Vec<Question> {
        let now = Instant::now();
        let mut taken = Vec::with_capacity(max.min(64));
        let mut repeats: HashMap<Box<str>, usize> = HashMap::new();
        let mut state = self.state();
        while taken.len() < max {
            let Some(question) = state.waiting.pop_front() else {
                break;
            };
            if !question.is_wanted() || question.deadline <= now {
                continue;
            }
            match &question.body {
                Body::Take(take) if take.is_repeat && !question.route.is_alone => {
                    if state.is_parked(take, &mut repeats) {
                        state.park(question);
                        continue;
                    }
                }
                _ => {}
            }
            taken.push(question);
        }
        let overdue = state.waiting.iter().map(|question| question.overdue).min();
        state.overdue = overdue;
        taken
    }

    /// A flight with repeats about this key has landed. Those behind get the same denial, if there was one for their cost,
    /// and travel next otherwise.
    pub(super) fn landed(&self, name: &str, rule: &Arc<Rule>, denials: &[(u64, Decision)]) {
        let mut state = self.state();
        let Some(mut parked) = state.parked.remove(name) else {
            return;
        };
        state.number_parked -= parked.len();
        let mut next = VecDeque::new();
        let mut answered = Vec::new();
        while let Some(question) = parked.pop_front() {
            let denial = match &question.body {
                Body::Take(take) if Arc::ptr_eq(&take.rule, rule) => {
                    denials.iter().find(|(cost, _)| *cost == take.cost)
                }
                _ => None,
            };
            match denial {
                Some((_, denial)) => answered.push((question, denial.clone())),
                None => next.push_back(question),
            }
        }
        let is_any = !next.is_empty();
        for question in next.into_iter().rev() {
            state.waiting.push_front(question);
        }
        if is_any {
            state.overdue = state.waiting.iter().map(|question| question.overdue).min();
        }
        drop(state);
        for (question, denial) in answered {
            if let Body::Take(take) = question.body {
                take.answer(Ok(denial));
            }
        }
        if is_any {
            self.changed.notify_one();
        }
    }

    /// Answers all that waits with this error.
    pub(super) fn fail(&self, error: &StoreError) {
        let questions = self.state().drain();
        for question in questions {
            question.fail(error.clone());
        }
    }

    /// Nobody sends anything any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.fail(&runtime_ended(&self.address));
    }

    fn overloaded(&self) -> StoreError {
        let message = format!(
            "{} was not asked: {MAX_QUEUED} questions wait for it already",
            self.address
        );
        StoreError::new(StoreErrorKind::Overloaded, message)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A state is whole between any two statements, so a panic elsewhere does not harm it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Abandoned questions give their places back.
    fn has_room(&mut self) -> bool {
        let is_full = |state: &Self| state.waiting.len() + state.number_parked >= MAX_QUEUED;
        if !is_full(self) {
            return true;
        }
        let now = Instant::now();
        if self.next_cleaning.is_some_and(|next| now < next) {
            return false;
        }
        self.next_cleaning = Some(now + CLEANING_PAUSE);
        self.waiting.retain(Question::is_wanted);
        for parked in self.parked.values_mut() {
            parked.retain(Question::is_wanted);
        }
        self.number_parked = self.parked.values().map(VecDeque::len).sum();
        !is_full(self)
    }

    /// Whether this repeat has to wait for others about the same key; counts those that go with this flight.
    fn is_parked(&mut self, take: &TakeQuestion, repeats: &mut HashMap<Box<str>, usize>) -> bool {
        match repeats.get_mut(&take.name) {
            Some(number) if *number < MAX_REPEATS => {
                *number += 1;
                false
            }
            Some(_) => true,
            None if self.parked.contains_key(&take.name) => true,
            None => {
                // From now on repeats about this key wait until the flight has landed.
                self.parked.insert(take.name.clone(), VecDeque::new());
                repeats.insert(take.name.clone(), 1);
                false
            }
        }
    }

    fn park(&mut self, question: Question) {
        if let Body::Take(take) = &question.body
            && let Some(parked) = self.parked.get_mut(&take.name)
        {
            parked.push_back(question);
            self.number_parked += 1;
        }
    }

    fn drain(&mut self) -> Vec<Question> {
        self.overdue = None;
        self.number_parked = 0;
        let parked = self.parked.values_mut().flat_map(std::mem::take);
        let parked: Vec<_> = parked.collect();
        self.waiting.drain(..).chain(parked).collect()
    }
}
