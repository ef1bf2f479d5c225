//! The questions that wait for one server, and how one leaves: with the next flight of the
//! dispatcher, or alone, [sent by its caller](super::direct).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::direct::{Driver, Gathering};
use super::question::{Label, Question, runtime_ended};
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// The questions that wait for the next flight to one server.
///
/// They leave in order of arrival. A question whose caller has left, or whose deadline is over, is
/// dropped when its turn comes, or earlier if the queue is full: it is never sent and never
/// charged.
///
/// The node and its flights share it: callers push new questions, flights push those that have to
/// be sent again, and the dispatcher takes, or the caller of a question that is alone. A question
/// that is sent again goes to the end. It has lost its turn, which is the one exception to the
/// order of arrival.
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
pub(super) struct Queue {
    /// How errors name the server.
    pub(super) label: Arc<Label>,
    state: Mutex<QueueState>,
    /// Notified when a question becomes overdue earlier than all others, as the first one does.
    changed: Notify,
    /// Notified when a flight of the dispatcher has ended.
    pub(super) flight_ended: Notify,
    /// Whether questions gather for flights although the server is not busy.
    pub(super) gathering: Gathering,
}

/// The part of a queue behind its lock.
#[derive(Default)]
struct QueueState {
    questions: VecDeque<Question>,
    /// When the first of the questions becomes overdue.
    overdue_at: Option<Instant>,
    /// Until this instant the queue is not searched for abandoned questions again.
    next_cleaning: Option<Instant>,
    is_closed: bool,
    /// The number of the last question that came to an empty queue without notice.
    ticket: u64,
    /// Whether the dispatcher has had no notice of the question that waits.
    is_unnoticed: bool,
    /// Whether questions were taken out for a flight that is not written yet.
    is_departing: bool,
}

/// Questions were taken out of this queue. Until this is dropped, when they are written, no later
/// ones leave it.
pub(super) struct Departing<'a>(&'a Queue);

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_departing = false;
        let waits = !state.is_unnoticed && !state.questions.is_empty();
        drop(state);
        if waits {
            self.0.changed.notify_one();
        }
    }
}

/// The questions of a flight. A lone one needs no allocation.
pub type Questions = SmallVec<[Question; 1]>;

/// The most questions that wait for one server. Further ones fail as `Overloaded`.
///
/// At the 75,000 requests a second of `benches/README.md` so many questions take 0.2 s, four times
/// the default timeout: further ones would be late anyway.
const MAX_QUEUED: usize = 16_384;
/// A full queue is searched for abandoned questions once in this time at most.
const CLEANING_INTERVAL: Duration = Duration::from_millis(1);

impl Queue {
    /// An empty queue. Its errors name the server by `label`.
    pub(super) fn new(label: &Arc<Label>) -> Self {
        Self {
            label: Arc::clone(label),
            state: Mutex::default(),
            changed: Notify::new(),
            flight_ended: Notify::new(),
            gathering: Gathering::default(),
        }
    }

    /// Adds a question, or answers it with an error if the queue is closed or full.
    pub(super) fn push(&self, question: Question) {
        self.push_for(question, Driver::Dispatcher);
    }

    /// Adds a question as [`push`](Self::push) does. If its caller may send it, and no other
    /// question waits, the dispatcher gets no notice, and this returns the question's ticket.
    pub(super) fn push_for(&self, question: Question, driver: Driver) -> Option<u64> {
        let mut state = lock(&self.state);
        let refusal = if state.is_closed {
            Some(runtime_ended(&self.label.text))
        } else {
            (!state.has_room()).then(|| self.overloaded())
        };
        if let Some(error) = refusal {
            drop(state);
            question.fail(error);
            return None;
        }
        if matches!(driver, Driver::Caller) && state.questions.is_empty() {
            state.overdue_at = Some(question.overdue_at);
            state.questions.push_back(question);
            state.is_unnoticed = true;
            state.ticket += 1;
            return Some(state.ticket);
        }
        let overdue_at = question.overdue_at;
        let is_earlier = state.overdue_at.is_none_or(|first| overdue_at < first);
        if is_earlier {
            state.overdue_at = Some(overdue_at);
        }
        state.questions.push_back(question);
        let was_unnoticed = std::mem::take(&mut state.is_unnoticed);
        drop(state);
        if is_earlier || was_unnoticed {
            self.changed.notify_one();
        }
        None
    }

    /// Takes out the question with this ticket, if it is still the only one, the dispatcher has had
    /// no notice of it, all earlier ones are written, and `claim` gives what its flight needs.
    /// Otherwise the dispatcher gets notice.
    pub(super) fn take_alone<T>(
        &self,
        ticket: u64,
        claim: impl FnOnce() -> Option<T>,
    ) -> Option<(Question, T, Departing<'_>)> {
        let mut state = lock(&self.state);
        if !state.is_unnoticed || state.ticket != ticket {
            return None;
        }
        state.is_unnoticed = false;
        let Some(claimed) = (!state.is_departing).then(claim).flatten() else {
            drop(state);
            self.changed.notify_one();
            return None;
        };
        state.overdue_at = None;
        let question = state.questions.pop_front()?;
        state.is_departing = true;
        Some((question, claimed, Departing(self)))
    }

    /// Completes when a question waits that may leave.
    ///
    /// Dropping the future loses nothing: it only looks, and takes no question out. The dispatcher
    /// relies on that, since it races this against other events.
    pub(super) async fn has_questions(&self) {
        let may_leave = |state: &QueueState| !state.is_departing && !state.questions.is_empty();
        while !may_leave(&lock(&self.state)) {
            self.changed.notified().await;
        }
    }

    /// Completes when a question is overdue.
    ///
    /// It wakes for the question that becomes overdue first, which need not be the first one in the
    /// queue: timeouts differ.
    pub(super) async fn is_overdue(&self) {
        loop {
            let overdue_at = lock(&self.state).next_overdue();
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
        self.take_from(lock(&self.state), max)
    }

    /// The same for a flight of the dispatcher, unless earlier ones are not written yet.
    pub(super) fn take_for_flight(&self, max: usize) -> Option<(Questions, Departing<'_>)> {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_departing, true) {
            return None;
        }
        Some((self.take_from(state, max), Departing(self)))
    }

    fn take_from(&self, mut state: MutexGuard<'_, QueueState>, max: usize) -> Questions {
        let now = Instant::now();
        let mut taken = Questions::with_capacity(max.min(state.questions.len()));
        while taken.len() < max
            && let Some(mut question) = state.questions.pop_front()
        {
            if question.is_wanted() && question.has_time(now, &self.label.lag) {
                taken.push(question);
            }
        }
        let overdue = state.questions.iter().map(|question| question.overdue_at);
        state.overdue_at = overdue.min();
        state.is_unnoticed &= !state.questions.is_empty();
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
    /// A question that is pushed afterwards fails immediately instead of waiting for its timeout.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.fail(&runtime_ended(&self.label.text));
    }

    /// The error of a question for which the queue has no room.
    fn overloaded(&self) -> StoreError {
        let label = &self.label.text;
        let message = format!("{label} was not asked: {MAX_QUEUED} questions wait for it");
        StoreError::new(StoreErrorKind::Overloaded, message)
    }
}

impl QueueState {
    /// When the first question becomes overdue, if questions may leave.
    fn next_overdue(&self) -> Option<Instant> {
        self.overdue_at.filter(|_| !self.is_departing)
    }

    /// Whether one more question may wait. Makes room by dropping abandoned questions.
    fn has_room(&mut self) -> bool {
        self.questions.len() < MAX_QUEUED || self.makes_room()
    }

    #[cold]
    fn makes_room(&mut self) -> bool {
        let now = Instant::now();
        if self.next_cleaning.is_none_or(|next| now >= next) {
            self.next_cleaning = Some(now + CLEANING_INTERVAL);
            self.questions.retain(Question::is_wanted);
        }
        self.questions.len() < MAX_QUEUED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Deadline;

    /// What its caller has taken out and not written yet is overtaken by no flight.
    #[tokio::test]
    async fn nothing_leaves_before_what_departs_is_written() {
        let (text, lag, is_proven) = ("redis".into(), Arc::default(), Arc::default());
        let label = Arc::new(Label {
            text,
            lag,
            is_proven,
        });
        let until = Deadline::after(Duration::from_secs(60));
        let asked = || Question::new::<(), ()>((), None, None, until, &label);
        let queue = Queue::new(&label);
        let (first, _first_reply) = asked();
        let ticket = queue.push_for(first, Driver::Caller).expect("it is alone");
        let (_first, (), departing) = queue.take_alone(ticket, || Some(())).expect("its turn");
        let (second, _second_reply) = asked();
        queue.push(second);
        assert!(queue.take_for_flight(64).is_none(), "it would be overtaken");
        drop(departing);
        let (flight, _departing) = queue.take_for_flight(64).expect("the first is written");
        assert_eq!(flight.len(), 1);
    }
}
