use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::question::{Question, runtime_ended};
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// The questions that wait for the next flight to one server.
///
/// They leave in order of arrival. A question whose caller has left, or whose deadline is over, is
/// dropped when its turn comes, or earlier if the queue is full: it is never sent and never
/// charged.
///
/// The node and its flights share it: callers push new questions, flights push those that have to
/// be sent again, and only the dispatcher takes. A question that is sent again goes to the end. It
/// has lost its turn, which is the one exception to the order of arrival.
///
/// ```text
/// push ----> room? --yes--> waits ----> taken by the dispatcher ----> a flight
///              |              |
///              no             +--> caller left, or deadline over: dropped, never charged
///              |
///              +--> abandoned questions are dropped; still no room: Overloaded
/// ```
///
/// The lock is held for a push of one question and for a flight's worth of pops, never across an
/// `.await`. A full queue is searched through under the lock, which is why that happens at most
/// once a millisecond.
#[derive(Debug)]
pub(super) struct Queue {
    label: Arc<str>,
    state: Mutex<QueueState>,
    /// Notified when a question becomes overdue earlier than all others, as the first one does.
    changed: Notify,
}

/// The part of a queue behind its lock.
#[derive(Debug, Default)]
struct QueueState {
    questions: VecDeque<Question>,
    /// When the first of the questions becomes overdue.
    overdue_at: Option<Instant>,
    /// Until this instant the queue is not searched for abandoned questions again.
    next_cleaning: Option<Instant>,
    is_closed: bool,
}

/// The questions of a flight. A lone one needs no allocation.
pub(super) type Questions = SmallVec<[Question; 1]>;

/// The most questions that wait for one server. Further ones fail as `Overloaded`.
///
/// At the 75,000 requests a second of `benches/README.md` so many questions take 0.2 s, four times
/// the default timeout: further ones would be late anyway.
const MAX_QUEUED: usize = 16_384;
/// A full queue is searched for abandoned questions once in this time at most.
const CLEANING_INTERVAL: Duration = Duration::from_millis(1);

impl Queue {
    /// An empty queue. Its errors name the server by `label`.
    pub(super) fn new(label: &Arc<str>) -> Self {
        Self {
            label: Arc::clone(label),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds a question, or answers it with an error if the queue is closed or full.
    pub(super) fn push(&self, question: Question) {
        let mut state = lock(&self.state);
        let refusal = match state.is_closed {
            true => Some(runtime_ended(&self.label)),
            false => (!state.has_room()).then(|| self.overloaded()),
        };
        if let Some(error) = refusal {
            drop(state);
            return question.fail(error);
        }
        let overdue_at = question.overdue_at;
        let is_earlier = state.overdue_at.is_none_or(|first| overdue_at < first);
        if is_earlier {
            state.overdue_at = Some(overdue_at);
        }
        state.questions.push_back(question);
        drop(state);
        if is_earlier {
            self.changed.notify_one();
        }
    }

    /// Completes when a question waits.
    ///
    /// Dropping the future loses nothing: it only looks, and takes no question out. The dispatcher
    /// relies on that, since it races this against its flights.
    pub(super) async fn has_questions(&self) {
        while lock(&self.state).questions.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Completes when a question is overdue.
    ///
    /// It wakes for the question that becomes overdue first, which need not be the first one in the
    /// queue: timeouts differ.
    pub(super) async fn is_overdue(&self) {
        loop {
            let overdue_at = lock(&self.state).overdue_at;
            let is_overdue = async {
                match overdue_at {
                    Some(overdue_at) => sleep_until(overdue_at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = is_overdue => return,
                () = self.changed.notified() => {}
            }
        }
    }

    /// Up to `max` questions in order of arrival. Questions whose caller has left or whose deadline
    /// is over are dropped.
    ///
    /// Questions are dropped here without an answer: either nobody listens any more, or the
    /// caller's own timer has ended its future.
    pub(super) fn take(&self, max: usize) -> Questions {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let mut taken = Questions::with_capacity(max.min(state.questions.len()));
        while taken.len() < max
            && let Some(question) = state.questions.pop_front()
        {
            if question.deadline > now && question.is_wanted() {
                taken.push(question);
            }
        }
        let overdue = state.questions.iter().map(|question| question.overdue_at);
        state.overdue_at = overdue.min();
        taken
    }

    /// Answers all questions with this error.
    pub(super) fn fail(&self, error: &StoreError) {
        for question in self.take(usize::MAX) {
            question.fail(error.clone());
        }
    }

    /// Answers all questions, and all later ones, with an error: nothing sends them any more.
    ///
    /// It is called from a drop guard of the dispatcher, also when that panics or its runtime ends.
    /// A question that is pushed afterwards fails at once instead of waiting for its timeout.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.fail(&runtime_ended(&self.label));
    }

    /// The error of a question for which the queue has no room.
    fn overloaded(&self) -> StoreError {
        let label = &self.label;
        let message = format!("{label} was not asked: {MAX_QUEUED} questions wait for it");
        StoreError::new(StoreErrorKind::Overloaded, message)
    }
}

impl QueueState {
    /// Whether one more question may wait. Makes room by dropping abandoned questions.
    fn has_room(&mut self) -> bool {
        if self.questions.len() < MAX_QUEUED {
            return true;
        }
        let now = Instant::now();
        if self.next_cleaning.is_none_or(|next| now >= next) {
            self.next_cleaning = Some(now + CLEANING_INTERVAL);
            self.questions.retain(Question::is_wanted);
        }
        self.questions.len() < MAX_QUEUED
    }
}
