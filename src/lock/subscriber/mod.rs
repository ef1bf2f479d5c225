//! The one connection of a process over which it hears of releases.

mod channels;
mod link;

use std::sync::Arc;

use self::channels::Channels;
pub(super) use self::channels::Listening;
use crate::connection::Connection;

/// The handle on the task, which ends with it. A connection is made when somebody waits for the first time.
#[derive(Debug)]
pub(super) struct Subscriber {
    channels: Arc<Channels>,
    task: tokio::task::AbortHandle,
}

impl Subscriber {
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(connection: &Connection) -> Self {
        let channels = Arc::new(Channels::default());
        let task = tokio::spawn(link::run(connection.clone(), Arc::clone(&channels)));
        Self {
            channels,
            task: task.abort_handle(),
        }
    }

    /// Begins to listen.
    pub(super) fn listen(&self, channel: &str) -> Listening {
        Listening::new(&self.channels, channel)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}
