use std::sync::Arc;

use super::channels::Channels;
use super::listen::listen;
use crate::connection::Connection;

/// A handle to the task that listens for releases. Dropping the handle ends the task.
#[derive(Debug)]
pub(in crate::lock) struct Subscriber {
    channels: Arc<Channels>,
    task: tokio::task::AbortHandle,
}

impl Subscriber {
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(in crate::lock) fn start(connection: &Connection) -> Self {
        let channels = Arc::new(Channels::default());
        let task = tokio::spawn(listen(connection.clone(), Arc::clone(&channels)));
        Self {
            channels,
            task: task.abort_handle(),
        }
    }

    pub(in crate::lock) fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}
