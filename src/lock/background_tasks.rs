use std::sync::Arc;

use super::subscriber::Subscriber;
use super::watchdog::Watchdog;
use crate::connection::Redis;

/// The tasks that serve all locks of one `Redis` handle and its clones.
#[derive(Debug)]
pub(super) struct BackgroundTasks {
    pub(super) watchdog: Watchdog,
    pub(super) subscriber: Subscriber,
}

impl BackgroundTasks {
    /// Starts the tasks with the first call. They run in the runtime of the connection.
    pub(super) fn of(redis: &Redis) -> Arc<Self> {
        redis.keep(|connection| {
            let _runtime = connection.runtime().enter();
            Self {
                watchdog: Watchdog::start(),
                subscriber: Subscriber::start(connection),
            }
        })
    }
}
