use std::time::Duration;

use tokio::time::Instant;

use super::background_tasks::BackgroundTasks;
use super::error::is_transient;
use super::hold::{Attempt, Attempted};
use super::lease_request::LeaseRequest;
use super::lock::LockGuard;
use super::subscriber::{QueuedWaiter, WaiterInfo};
use crate::connection::Redis;
use crate::error::StoreError;

/// Acquires a lease, and waits for it up to `wait`, or without a bound as long as it takes. With
/// zero it makes one call. A call in progress at the end is awaited.
///
/// The first call is sent at once, unless it is the turn of other processes that wait. A caller
/// that is denied sleeps; of all callers in this process, one at a time asks again.
pub(super) async fn acquire(
    redis: &Redis,
    request: LeaseRequest,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, StoreError> {
    let tries_once = wait == Some(Duration::ZERO);
    // A wait beyond the clock's range has no end.
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    let tasks = BackgroundTasks::of(redis);
    let channels = &tasks.channels;
    let resource = request.resource.clone();
    let channel = &*resource.keys.channel;
    let info = WaiterInfo {
        owner: request.owner_number(),
        timeout: resource.connection.timeout(),
    };
    let mut queued = match tries_once || request.is_nested() {
        true => None,
        false => QueuedWaiter::join_behind_others(channels, channel, info, until),
    };
    let mut attempt = Attempt::new(&tasks, request);
    if let Some(queued) = &queued {
        // One call is made even if no time is left.
        queued.woken(until).await?;
    }
    let join = || QueuedWaiter::join(channels, channel, info);
    loop {
        let queued = match attempt.ask().await {
            Ok(Attempted::Granted(lease)) => {
                queued.iter().for_each(QueuedWaiter::answered);
                return Ok(Some(lease));
            }
            Ok(Attempted::Held { .. }) if tries_once => return Ok(None),
            Ok(Attempted::Held { ends_after }) => {
                let queued = queued.get_or_insert_with(join);
                queued.denied(ends_after);
                queued
            }
            Err(error) if !tries_once && is_transient(&error) => {
                let queued = queued.get_or_insert_with(join);
                attempt.start_anew();
                queued.failed(error);
                queued
            }
            Err(error) => return Err(error),
        };
        if !queued.woken(until).await? {
            return Ok(None);
        }
    }
}
