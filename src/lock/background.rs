use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::subscriber::Subscriber;
use super::watchdog::Watchdog;
use crate::connection::Redis;
use crate::trace;

/// The tasks of a process that serve all of its locks.
#[derive(Debug)]
pub(super) struct Background {
    pub(super) watchdog: Watchdog,
    pub(super) subscriber: Subscriber,
}

impl Background {
    /// They run in the runtime of the connection.
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

/// Does one piece of a task's work. `None` if it panics: that ends neither the task nor other work.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        let what = "the background task of the locks";
        trace::event!(error: what, "a panic was caught, and the task goes on");
    }
    done.ok()
}
