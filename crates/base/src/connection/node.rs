use std::io;
use std::sync::Arc;

use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, watch};

#[cfg(feature = "cluster")]
use super::cluster::Redirects;
use super::direct::{Alone, Driver};
use super::errors::store_error;
use super::link::Link;
use super::question::{Label, Question};
use super::queue::Queue;
use super::reconnector::{ConnectAttempts, MAX_ATTEMPT, Reconnector, Target, within};
use super::scripts::Preload;
use super::silence::{Moment, ShortestTimeout};
use crate::in_flight_counter::InFlight;
use crate::sync::OwnedTask;

/// One server address: a connection that is made again when it breaks, and the questions for it.
/// Its two background tasks end when it is dropped.
///
/// ```text
///         questions                     LinkState
/// ask ----> Queue ----> Dispatcher <--------------- Reconnector
///                           |                            |
///                           +-----> Link <---------------+ makes, watches, closes
/// ```
///
/// The two tasks share nothing but the state. Neither waits for the other: while the reconnector
/// connects, the dispatcher fails questions or lets them wait, as the state says. The owner is a
/// connection, or in a cluster the router.
pub(super) struct Node {
    core: Arc<NodeCore>,
    target: Target,
    /// To be notified when the server may not be the right one any more.
    pub(super) failed: Arc<Notify>,
    _tasks: [OwnedTask; 2],
}

/// What callers need of a node whose questions they send.
pub(super) struct NodeCore {
    pub(super) endpoint: Endpoint,
    state: watch::Receiver<LinkState>,
    shortest_timeout: Arc<ShortestTimeout>,
}

impl Node {
    /// Begins to connect. `failed` is notified when the connection is lost or silent, and when an
    /// attempt to connect has failed.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(
        target: Target,
        preload: Preload,
        endpoint: Endpoint,
        failed: Arc<Notify>,
    ) -> Self {
        let shortest_timeout = Arc::<ShortestTimeout>::default();
        let reconnector = Reconnector {
            target: target.clone(),
            preload,
            state: watch::Sender::new(LinkState::Connecting),
            shortest_timeout: Arc::clone(&shortest_timeout),
            failed: Arc::clone(&failed),
            attempts: ConnectAttempts::default(),
            has_warned: false,
        };
        let state = reconnector.state.subscribe();
        let dispatcher = Dispatcher {
            endpoint: endpoint.clone(),
            state: state.clone(),
        };
        Self {
            core: Arc::new(NodeCore {
                endpoint,
                state,
                shortest_timeout,
            }),
            target,
            failed,
            _tasks: [
                tokio::spawn(reconnector.run()).abort_handle(),
                tokio::spawn(dispatcher.run()).abort_handle(),
            ]
            .map(OwnedTask),
        }
    }

    /// Opens another connection to the same server, for the messages of channels.
    pub(super) async fn beside(&self) -> RedisResult<Link> {
        let preload = Preload::default();
        within(MAX_ATTEMPT, self.target.connect(&preload)).await
    }

    /// Queues a question for the server. With [`Driver::Caller`] its caller may send it itself.
    ///
    /// It never waits: a question that finds no room, or no task to send it, is answered with an
    /// error before this returns.
    pub(super) fn enqueue(&self, question: Question, driver: Driver) -> Option<Alone> {
        self.core.shortest_timeout.note(question.deadline.timeout);
        let ticket = self.core.endpoint.queue.push_for(question, driver)?;
        let node = Arc::clone(&self.core);
        Some(Alone { node, ticket })
    }

    /// Why there is no connection, if there is none, and the server's label.
    pub(super) fn missing(&self) -> Option<(RedisError, Arc<Label>)> {
        let error = match &*self.core.state.borrow() {
            LinkState::Up(link) if !link.is_closed() => return None,
            LinkState::Down(error, _) => error.clone(),
            LinkState::Connecting | LinkState::Up(_) => {
                io::Error::from(io::ErrorKind::TimedOut).into()
            }
        };
        Some((error, Arc::clone(&self.core.endpoint.queue.label)))
    }

    /// The connection, if there is one.
    pub(super) fn link(&self) -> Option<Link> {
        match &*self.core.state.borrow() {
            LinkState::Up(link) => Some(link.clone()),
            LinkState::Connecting | LinkState::Down(..) => None,
        }
    }
}

impl NodeCore {
    /// The link, and a place on it, for a question that its caller sends, if few are in progress.
    pub(super) fn claim(&self) -> Option<(Link, InFlight)> {
        let link = self.state.borrow().link()?;
        if link.inner.activity.needs_proof() {
            return None;
        }
        let gathering = &self.endpoint.queue.gathering;
        let max = gathering.max_in_progress();
        let in_flight = link.inner.questions.try_acquire(max);
        if in_flight.is_none() {
            gathering.begin();
        }
        Some((link, in_flight?))
    }
}

/// What all flights to one server share: where questions go that have to be sent again.
///
/// The dispatcher has one and clones it for each flight. It holds no link, so a question that is
/// sent again may travel over another one than before.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// Questions that have to be sent again to the same server go in here.
    pub(super) queue: Arc<Queue>,
    /// Questions that another node of the cluster has to answer go through this.
    #[cfg(feature = "cluster")]
    pub(super) redirects: Option<Redirects>,
}

/// Whether there is a connection to one server.
///
/// The reconnector is the only one that writes it. The dispatcher, the node and a cluster's watcher
/// read it.
///
/// ```text
///               an attempt succeeds
/// Connecting ------------------------> Up      (Up -> Up: another link has taken its place)
///   ^    |                             ^  |
///   |    | an attempt fails            |  |
///   |    +------------------> Down ----+  |    an attempt succeeds
///   |                           ^         |
///   |                           +---------+    silent, and attempts to replace the link fail
///   +-------------------------------------+    closed, or the master has moved
/// ```
///
/// `Down` goes straight to `Up`, and not through `Connecting`: after a failed attempt nobody waits
/// for the next one, since it may last for seconds.
#[derive(Clone)]
pub(super) enum LinkState {
    Up(Link),
    /// The first attempt to connect, or the first attempt after a loss, is in progress. Questions
    /// wait for its outcome.
    Connecting,
    /// The last attempt failed, at this moment. Questions get its error immediately.
    Down(RedisError, Moment),
}

impl LinkState {
    /// The link, if it is open.
    pub(super) fn link(&self) -> Option<Link> {
        match self {
            Self::Up(link) if !link.is_closed() => Some(link.clone()),
            _ => None,
        }
    }

    /// Whether it may not be so any more, because this process was idle or frozen. The reconnector
    /// publishes what it finds out.
    fn is_old(&self) -> bool {
        match self {
            Self::Up(link) => link.inner.activity.needs_proof(),
            Self::Down(_, since) => since.is_old(),
            Self::Connecting => false,
        }
    }
}

/// Flights in progress to one server, at any rate of questions. With one, the connection is idle
/// between a reply and the next questions; with more, each flight carries fewer questions: see the
/// table in `benches/README.md`.
const MAX_FLIGHTS: usize = 2;
/// Flights in progress with those that are sent because a question is overdue. A server that hangs
/// gets no more than these.
const MAX_EXTRA_FLIGHTS: usize = 64;
/// The most questions in one flight. All of them are answered when its last reply arrives.
const MAX_QUESTIONS: usize = 1_024;

/// The background task that sends the questions of a queue and hands out the answers.
///
/// There is no timer: an idle queue sends its first question immediately, and while flights are in
/// progress the questions that arrive gather for the next one. So the number of calls a second
/// stays small at any rate of questions.
///
/// Each node has one, and it ends with the node. It sends the flights and does nothing for them
/// afterwards: whoever brings a reply hands out the answers. A question that is alone is sent by its
/// caller.
///
/// ```text
///                   Connecting                 Up                          Down
/// questions         wait                       depart in flights           get its error
/// flights           none begin                 2, or 64 if overdue         none begin
/// ```
///
/// Questions also wait while the state is [old](LinkState::is_old).
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
    pub(super) async fn run(mut self) {
        let queue = Arc::clone(&self.endpoint.queue);
        let _guard = CloseQueueOnDrop(Arc::clone(&queue));
        loop {
            let (is_connecting, number) = status(&self.state.borrow_and_update());
            tokio::select! {
                biased;
                () = queue.flight_ended.notified(), if number >= MAX_FLIGHTS => continue,
                changed = self.state.changed(), if is_connecting => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = queue.has_questions(), if !is_connecting && number < MAX_FLIGHTS => {}
                () = queue.is_overdue(),
                    if !is_connecting && (MAX_FLIGHTS..MAX_EXTRA_FLIGHTS).contains(&number) => {}
            }
            if !self.state.borrow().is_old() {
                self.next_flight();
            } else if self.state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends the next flight. While connecting fails, all questions get the error instead.
    ///
    /// Nothing is sent if the link was closed since the loop looked, or if all questions had been
    /// abandoned. Then nothing is lost: what waits stays in the queue.
    fn next_flight(&self) {
        let queue = &self.endpoint.queue;
        let link = match &*self.state.borrow() {
            LinkState::Down(error, _) => Err(error.clone()),
            state => Ok(state.link()),
        };
        let link = match link {
            Ok(Some(link)) => link,
            Ok(None) => return,
            Err(error) => return queue.fail(&store_error(&queue.label.text, error)),
        };
        // Until it is written, no later question leaves.
        let Some((mut questions, _departing)) = queue.take_for_flight(MAX_QUESTIONS) else {
            return;
        };
        questions.retain(Question::departs);
        let number = questions.len();
        queue.gathering.flight_departs(number);
        let in_progress = (
            link.inner.flights.try_acquire(usize::MAX),
            link.inner.questions.try_acquire_many(number, usize::MAX),
            NotifyOnDrop(Arc::clone(queue)),
        );
        self.endpoint.fly(questions, link, in_progress);
    }
}

/// Tells the dispatcher that a flight has ended, after its callers were woken.
struct NotifyOnDrop(Arc<Queue>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.flight_ended.notify_one();
    }
}

/// Whether questions have to wait for a connection, and the number of flights in progress over the
/// current one. A closed connection has to be waited for, too, until the reconnector notices.
fn status(state: &LinkState) -> (bool, usize) {
    match state {
        LinkState::Connecting => (true, 0),
        LinkState::Up(link) => (link.is_closed(), link.inner.flights.number()),
        LinkState::Down(..) => (false, 0),
    }
}

/// Closes the queue however the task ends, so that no question waits forever.
struct CloseQueueOnDrop(Arc<Queue>);

impl Drop for CloseQueueOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
