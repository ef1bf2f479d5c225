use std::sync::Arc;

use redis::RedisResult;
use tokio::task::AbortHandle;

use super::router::{Router, RouterState};
use super::watcher::Watcher;
use crate::connection::address::RedisAddress;
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

    /// `Ok` if one of the masters is connected, or why none is. `None` while the first attempts are
    /// in progress.
    pub(in crate::connection) fn status(&self) -> Option<RedisResult<()>> {
        match &**self.router.state.load() {
            RouterState::Connecting => None,
            RouterState::Unknown(error) => Some(Err(error.clone())),
            RouterState::Known(map) => {
                let statuses = map.masters.iter().map(|(_, node)| node.status());
                let statuses: Vec<_> = statuses.collect();
                match statuses.contains(&Some(Ok(()))) {
                    true => Some(Ok(())),
                    false => statuses.into_iter().collect::<Option<Vec<_>>>()?.pop(),
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
