use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::question::{Question, runtime_ended};
use crate::error::{StoreError, StoreErrorKind};

/// The questions that wait for the next flight to one server.
#[derive(Debug)]
pub(super) struct Queue {
    address: Arc<str>,
    state: Mutex<State>,
    /// Something waits, or is overdue earlier than before.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Question>,
    /// When the first of them is overdue.
    overdue: Option<Instant>,
    /// Not before this the queue is searched for abandoned questions again.
    next_cleaning: Option<Instant>,
    is_closed: bool,
}

/// The most questions that wait for one server; those beyond are `Overloaded`.
const MAX_QUEUED: usize = 16_384;
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
        let refusal = match state.is_closed {
            true => Some(runtime_ended(&self.address)),
            false => (!state.has_room()).then(|| self.overloaded()),
        };
        if let Some(error) = refusal {
            drop(state);
            return question.fail(error);
        }
        let is_earlier = state.overdue.is_none_or(|first| question.overdue < first);
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
        while self.state().waiting.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Completes when a question is overdue.
    pub(super) async fn is_overdue(&self) {
        loop {
            let overdue = self.state().overdue;
            let is_overdue = async {
                match overdue {
                    Some(overdue) => sleep_until(overdue).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = is_overdue => return,
                () = self.changed.notified() => {}
            }
        }
    }

    /// Up to `max` questions in order of arrival, without those that nobody waits for any more.
    pub(super) fn take(&self, max: usize) -> Vec<Question> {
        let now = Instant::now();
        let mut state = self.state();
        let mut taken = Vec::with_capacity(max.min(state.waiting.len()));
        while taken.len() < max
            && let Some(question) = state.waiting.pop_front()
        {
            if question.deadline > now && question.is_wanted() {
                taken.push(question);
            }
        }
        state.overdue = state.waiting.iter().map(|question| question.overdue).min();
        taken
    }

    /// Answers all that waits with this error.
    pub(super) fn fail(&self, error: &StoreError) {
        for question in self.take(usize::MAX) {
            question.fail(error.clone());
        }
    }

    /// Nobody sends anything any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.fail(&runtime_ended(&self.address));
    }

    fn overloaded(&self) -> StoreError {
        let address = &self.address;
        let message = format!("{address} was not asked: {MAX_QUEUED} questions wait for it");
        StoreError::new(StoreErrorKind::Overloaded, message)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A state is whole between any two statements, so a panic elsewhere does not harm it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether one more may wait. Abandoned questions give their places back.
    fn has_room(&mut self) -> bool {
        if self.waiting.len() < MAX_QUEUED {
            return true;
        }
        let now = Instant::now();
        if self.next_cleaning.is_none_or(|next| now >= next) {
            self.next_cleaning = Some(now + CLEANING_PAUSE);
            self.waiting.retain(Question::is_wanted);
        }
        self.waiting.len() < MAX_QUEUED
    }
}
