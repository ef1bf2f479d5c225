use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;

use super::endpoint::Endpoint;
use super::errors::store_error;
use super::flight::Flight;
use super::link_state::LinkState;
use super::queue::Queue;

/// Flights in progress to one server, at any rate of questions. With one, the connection is idle
/// between a reply and the next questions; with more, each flight carries fewer questions: see the
/// table in `benches/README.md`.
const MAX_FLIGHTS: usize = 2;
/// The same, with the extra flights that are sent because a question is overdue. A server that
/// hangs gets no more than these.
const MAX_EXTRA_FLIGHTS: usize = 64;
/// The most questions in one flight. All of them are answered when its last reply arrives.
const MAX_QUESTIONS: usize = 1_024;

/// The background task that sends the questions of a queue and hands out the answers.
///
/// There is no timer: an idle queue sends its first question at once, and while flights are in
/// progress the questions that arrive gather for the next one. So the number of calls a second
/// stays small at any rate of questions.
///
/// Each node has one, and it ends with the node. It owns the flights in progress and polls them
/// itself, so a flight costs no task, and no caller's future drives another caller's answer: a
/// caller that stops polling delays nobody.
///
/// ```text
///                   Connecting                 Up                          Down
/// questions         wait                       depart in flights           get the error at once
/// flights           none begin                 2, or 64 if overdue         none begin
/// ```
///
/// The numbers of flights are counted for each link. When a silent link is replaced, what is stuck
/// on it does not count against the new one.
pub(super) struct Dispatcher {
    pub(super) endpoint: Endpoint,
    pub(super) state: watch::Receiver<LinkState>,
}

impl Dispatcher {
    /// Sends flights until the reconnector ends.
    ///
    /// A flight departs when a question waits and fewer than two flights are in progress, or when a
    /// question is overdue. While the first attempt to connect is in progress, nothing departs.
    ///
    /// The branches of the `select!` have to stay in this order: flights are polled first, so that
    /// each is written to the link before the next one is made. The order of arrival rests on that.
    pub(super) async fn run(mut self) {
        let queue = Arc::clone(&self.endpoint.queue);
        let _guard = CloseOnDrop(Arc::clone(&queue));
        let mut flights = FuturesUnordered::new();
        loop {
            let (is_connecting, number) = status(&self.state.borrow_and_update());
            tokio::select! {
                biased;
                // A new flight is polled before the next one is made, so that flights are sent in
                // the order in which they were made.
                Some(()) = flights.next(), if !flights.is_empty() => continue,
                changed = self.state.changed(), if is_connecting => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = queue.has_questions(), if !is_connecting && number < MAX_FLIGHTS => {}
                () = queue.is_overdue(),
                    if !is_connecting && (MAX_FLIGHTS..MAX_EXTRA_FLIGHTS).contains(&number) => {}
            }
            flights.extend(self.next_flight());
        }
    }

    /// The next flight. While connecting fails, all questions get the error instead.
    ///
    /// Returns `None`, too, if the link was closed since the loop looked, or if all questions had
    /// been abandoned. Then nothing is lost: what waits stays in the queue.
    fn next_flight(&self) -> Option<impl Future<Output = ()> + use<>> {
        let link = match &*self.state.borrow() {
            LinkState::Up(link) if !link.is_closed() => link.clone(),
            LinkState::Up(_) | LinkState::Connecting => return None,
            LinkState::Down(error) => {
                let error = store_error(&self.endpoint.label, error.clone());
                self.endpoint.queue.fail(&error);
                return None;
            }
        };
        let questions = self.endpoint.queue.take(MAX_QUESTIONS);
        let in_progress = link.inner.flights.try_acquire(usize::MAX);
        let flight = Flight::new(questions, link, self.endpoint.clone())?;
        // A panic in one flight must not end this task. The flight's callers get an error, since
        // their answers' senders are dropped.
        let flight = AssertUnwindSafe(flight.run()).catch_unwind();
        Some(flight.map(|_| drop(in_progress)))
    }
}

/// Whether questions have to wait for a connection, and the number of flights in progress over the
/// current one. A closed connection has to be waited for, too, until the reconnector notices.
fn status(state: &LinkState) -> (bool, usize) {
    match state {
        LinkState::Connecting => (true, 0),
        LinkState::Up(link) => (link.is_closed(), link.inner.flights.number()),
        LinkState::Down(_) => (false, 0),
    }
}

/// Closes the queue however the task ends, so that no question waits forever.
struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
