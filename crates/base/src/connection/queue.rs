//! The questions that wait for one server, and how one leaves: with the next flight of the
//! dispatcher, or alone, in a [flight that its caller drives](super::direct).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::direct::{DirectFlight, Driver, Gathering, MAX_OWN_CALLS};
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
    /// Notified when the dispatcher has to drive flights of callers.
    direct_changed: Notify,
    /// Held while questions leave, until a caller's own is written: none behind it overtakes it.
    departing: Mutex<()>,
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
    /// Whether questions were taken out for a flight of the dispatcher that is not written yet.
    is_flight_unwritten: bool,
    /// The flights that their callers drive, and some that have ended.
    direct: Vec<Weak<DirectFlight>>,
    /// Flights that the dispatcher has to drive from now on.
    adopted: Vec<Arc<DirectFlight>>,
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
            direct_changed: Notify::new(),
            departing: Mutex::default(),
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
    pub(super) fn take_unnoticed<T>(
        &self,
        ticket: u64,
        claim: impl FnOnce() -> Option<T>,
    ) -> Option<(Question, T)> {
        let mut state = lock(&self.state);
        if !state.is_unnoticed || state.ticket != ticket {
            return None;
        }
        state.is_unnoticed = false;
        let claimed = (!state.is_flight_unwritten).then(claim).flatten();
        if claimed.is_none() {
            drop(state);
            self.changed.notify_one();
            return None;
        }
        state.overdue_at = None;
        state.questions.pop_front().zip(claimed)
    }

    /// Keeps others from taking out questions until this is dropped.
    pub(super) fn departing(&self) -> MutexGuard<'_, ()> {
        lock(&self.departing)
    }

    /// Remembers the flight that its caller drives.
    pub(super) fn remember(&self, flight: &Arc<DirectFlight>) {
        let mut state = lock(&self.state);
        if state.direct.len() >= 2 * MAX_OWN_CALLS {
            state.direct.retain(|flight| flight.strong_count() > 0);
        }
        state.direct.push(Arc::downgrade(flight));
    }

    /// Lets the dispatcher drive a flight whose caller has left.
    pub(super) fn adopt(&self, flight: Arc<DirectFlight>) {
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.adopted.push(flight);
            drop(state);
            self.direct_changed.notify_one();
        }
    }

    /// Lets the dispatcher drive the flights of callers that might never poll again.
    pub(super) fn adopt_unfinished(&self) {
        let flights = std::mem::take(&mut lock(&self.state).direct);
        let unfinished = flights.iter().filter_map(Weak::upgrade);
        unfinished.for_each(|flight| self.adopt(flight));
    }

    /// Completes when the dispatcher has to drive flights of callers: those that are returned.
    pub(super) async fn direct_flights(&self) -> Vec<Arc<DirectFlight>> {
        self.direct_changed.notified().await;
        std::mem::take(&mut lock(&self.state).adopted)
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
        self.take_from(lock(&self.state), max)
    }

    /// The same for a flight of the dispatcher. Until that is [written](Self::flight_written) no
    /// caller sends a later question.
    pub(super) fn take_for_flight(&self, max: usize) -> Questions {
        let _departing = self.departing();
        let mut state = lock(&self.state);
        state.is_flight_unwritten = true;
        self.take_from(state, max)
    }

    pub(super) fn flight_written(&self) {
        lock(&self.state).is_flight_unwritten = false;
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
