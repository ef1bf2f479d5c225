use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::RedisResult;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::errors::store_error;
use super::flight::{Flight, Home};
use super::link::Link;
use super::question::Question;
use super::queue::Queue;
use super::reconnector::{Attempts, Reconnector, ShortestTimeout, State, Target};
use super::scripts::Preload;

/// Flights in progress to one server, whatever the rate of questions. With one the connection is
/// idle between a reply and the next questions, with more a flight carries fewer questions: see the
/// table in `benches/README.md`.
const MAX_FLIGHTS: usize = 2;
/// The same with those that depart because a question is overdue. A server that hangs gets no more.
const MAX_EXTRA_FLIGHTS: usize = 64;
/// Questions that travel in one flight. All answers come with its last reply.
const MAX_QUESTIONS: usize = 1_024;

/// One server address: a connection that is kept, and the questions for it. Its two tasks end with
/// it.
pub(super) struct Node {
    queue: Arc<Queue>,
    state: watch::Receiver<State>,
    shortest_timeout: Arc<ShortestTimeout>,
    tasks: [AbortHandle; 2],
}

impl Node {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(target: Target, preload: Preload, home: Home, alarm: Arc<Notify>) -> Self {
        let shortest_timeout = Arc::<ShortestTimeout>::default();
        let reconnector = Reconnector {
            target,
            preload,
            state: watch::Sender::new(State::Connecting),
            shortest_timeout: Arc::clone(&shortest_timeout),
            alarm,
            attempts: Attempts::default(),
        };
        let state = reconnector.state.subscribe();
        let queue = Arc::clone(&home.queue);
        let dispatcher = Dispatcher {
            home,
            state: state.clone(),
        };
        Self {
            queue,
            state,
            shortest_timeout,
            tasks: [
                tokio::spawn(reconnector.run()).abort_handle(),
                tokio::spawn(dispatcher.run()).abort_handle(),
            ],
        }
    }

    pub(super) fn ask(&self, question: Question) {
        self.shortest_timeout.note(question.timeout);
        self.queue.push(question);
    }

    /// Whether it is connected; `None` before the first attempt has ended.
    pub(super) fn status(&self) -> Option<RedisResult<()>> {
        match &*self.state.borrow() {
            State::Up(_) => Some(Ok(())),
            State::Down(error) => Some(Err(error.clone())),
            State::Connecting => None,
        }
    }

    /// The connection, if it stands.
    pub(super) fn link(&self) -> Option<Link> {
        match &*self.state.borrow() {
            State::Up(link) => Some(link.clone()),
            _ => None,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The background task that sends what waits and hands out the answers.
struct Dispatcher {
    home: Home,
    state: watch::Receiver<State>,
}

impl Dispatcher {
    async fn run(mut self) {
        let queue = Arc::clone(&self.home.queue);
        let _closing = Closing(Arc::clone(&queue));
        let mut flights = FuturesUnordered::new();
        loop {
            let (is_connecting, number) = status(&self.state.borrow_and_update());
            tokio::select! {
                biased;
                // Flights are sent in the order of departure: a new one is polled before the next
                // departs.
                Some(()) = flights.next(), if !flights.is_empty() => continue,
                changed = self.state.changed(), if is_connecting => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = queue.has_questions(), if !is_connecting && number < MAX_FLIGHTS => {}
                () = queue.is_overdue(),
                    if !is_connecting && (MAX_FLIGHTS..MAX_EXTRA_FLIGHTS).contains(&number) => {}
            }
            flights.extend(self.depart());
        }
    }

    /// The next flight. While there is no connection, all that waits gets the reason.
    fn depart(&self) -> Option<impl Future<Output = ()> + use<>> {
        let link = match &*self.state.borrow() {
            State::Up(link) if !link.is_closed() => link.clone(),
            State::Up(_) | State::Connecting => return None,
            State::Down(error) => {
                let error = store_error(&self.home.address, error.clone());
                self.home.queue.fail(&error);
                return None;
            }
        };
        let questions = self.home.queue.take(MAX_QUESTIONS);
        let in_progress = link.shared.flights.try_acquire(usize::MAX);
        let flight = Flight::new(questions, link, self.home.clone())?;
        // A panic of one flight must not end the task. Its callers are told that nothing answers
        // any more.
        let flight = AssertUnwindSafe(flight.run()).catch_unwind();
        Some(flight.map(|_| drop(in_progress)))
    }
}

/// Whether the connection has to be waited for, and the flights in progress over it. What is sent
/// over one that has just been lost is in vain, though nobody has said so yet.
fn status(state: &State) -> (bool, usize) {
    match state {
        State::Connecting => (true, 0),
        State::Up(link) => (link.is_closed(), link.shared.flights.number()),
        State::Down(_) => (false, 0),
    }
}

/// However the task ends, nobody waits for it in vain.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
