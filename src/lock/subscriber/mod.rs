//! Those who wait, and the task that hears of releases for them.

mod channels;
mod link;
mod turn;
mod waiters;

use std::sync::Arc;

use tokio::time::Instant;

pub(super) use self::channels::{Channels, Waiting};
pub(super) use self::waiters::Caller;
use self::waiters::Waiters;
use crate::connection::Connection;

/// The handle on the task, which ends with it.
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

    /// Joins those who wait for this channel, after a first question.
    pub(super) fn join(&self, channel: &str, caller: Caller) -> Waiting {
        Waiting::new(&self.channels, channel, caller)
    }

    /// Joins those who wait before a first question, if others go first for a part of the time that
    /// there is.
    pub(super) fn join_behind_others(
        &self,
        channel: &str,
        caller: Caller,
        until: Option<Instant>,
    ) -> Option<Waiting> {
        Waiting::behind_others(&self.channels, channel, caller, until)
    }

    pub(super) fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    /// The owner has the lock: what else it asks for there is granted.
    pub(super) fn taken_by(&self, owner: u64, channel: &str) {
        let wake = |waiters: &mut Waiters| waiters.wake_all_of(owner);
        self.channels.change(channel, wake);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}
