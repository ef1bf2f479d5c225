use std::io;
use std::sync::Arc;

use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::attempts::Attempts;
use super::dispatcher::Dispatcher;
use super::endpoint::Endpoint;
use super::errors::may_pass;
use super::link::Link;
use super::link_state::LinkState;
use super::question::Question;
use super::queue::Queue;
use super::reconnector::Reconnector;
use super::scripts::Preload;
use super::shortest_timeout::ShortestTimeout;
use super::target::Target;

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
    queue: Arc<Queue>,
    state: watch::Receiver<LinkState>,
    shortest_timeout: Arc<ShortestTimeout>,
    tasks: [AbortHandle; 2],
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
            target,
            preload,
            state: watch::Sender::new(LinkState::Connecting),
            shortest_timeout: Arc::clone(&shortest_timeout),
            failed,
            attempts: Attempts::default(),
        };
        let state = reconnector.state.subscribe();
        let queue = Arc::clone(&endpoint.queue);
        let dispatcher = Dispatcher {
            endpoint,
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

    /// Queues a question for the server.
    ///
    /// It never waits: a question that finds no room, or no task to send it, is answered with an
    /// error before this returns.
    pub(super) fn ask(&self, question: Question) {
        self.shortest_timeout.note(question.timeout);
        self.queue.push(question);
    }

    /// Completes when it is connected, or with an error that will not pass by itself.
    pub(super) async fn connected(&self) -> RedisResult<()> {
        let is_final = |state: &LinkState| match state {
            LinkState::Up(_) => true,
            LinkState::Down(error) => !may_pass(error),
            LinkState::Connecting => false,
        };
        let mut state = self.state.clone();
        match state.wait_for(is_final).await.as_deref() {
            Ok(LinkState::Down(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))),
        }
    }

    /// The connection, if there is one.
    pub(super) fn link(&self) -> Option<Link> {
        match &*self.state.borrow() {
            LinkState::Up(link) => Some(link.clone()),
            LinkState::Connecting | LinkState::Down(_) => None,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
