use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select_ok;
use redis::RedisResult;
use tokio::task::AbortHandle;

use super::router::{Router, RouterState};
use super::watcher::Watcher;
use crate::connection::address::RedisAddress;
use crate::connection::errors::may_pass;
use crate::connection::link::Link;
use crate::connection::question::Question;
use crate::connection::scripts::Preload;

/// The masters of a cluster. The background tasks end when this is dropped.
///
/// A connection owns it. The watcher holds the router, too, so it is aborted here: otherwise the
/// nodes, their tasks and their links would outlive the connection.
pub(in crate::connection) struct Cluster {
    router: Arc<Router>,
    watcher: AbortHandle,
}

impl Cluster {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(in crate::connection) fn start(
        address: RedisAddress,
        label: &Arc<str>,
        preload: Preload,
    ) -> Self {
        let router = Arc::new(Router::new(address, label, preload));
        let watcher = tokio::spawn(Watcher::new(Arc::clone(&router)).run());
        Self {
            router,
            watcher: watcher.abort_handle(),
        }
    }

    /// Completes when one of the masters is connected, or with an error that will not pass by
    /// itself.
    pub(in crate::connection) async fn connected(&self) -> RedisResult<()> {
        loop {
            let mut changed = pin!(self.router.state_changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            match &*self.router.state.load_full() {
                RouterState::Unknown(error) if !may_pass(error) => return Err(error.clone()),
                RouterState::Connecting | RouterState::Unknown(_) => changed.await,
                RouterState::Known(map) => {
                    let masters = map.masters.iter();
                    let connected = masters.map(|(_, node)| Box::pin(node.connected()));
                    tokio::select! {
                        first = select_ok(connected) => return first.map(drop),
                        () = changed => {}
                    }
                }
            }
        }
    }

    /// Asks the master of the question's slot.
    pub(in crate::connection) fn ask(&self, question: Question) {
        self.router.ask(question);
    }

    /// A connection to any master.
    pub(in crate::connection) fn link(&self) -> Option<Link> {
        match &**self.router.state.load() {
            RouterState::Known(map) => map.masters.iter().find_map(|(_, node)| node.link()),
            RouterState::Connecting | RouterState::Unknown(_) => None,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}
