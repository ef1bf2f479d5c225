use std::time::Duration;

use tokio::time::Instant;

use super::attempt::{Attempt, Attempted};
use super::background_tasks::BackgroundTasks;
use super::error::is_transient;
use super::lease_guard::LeaseGuard;
use super::lease_request::LeaseRequest;
use super::subscriber::{QueuedWaiter, WaiterInfo};
use crate::connection::Redis;
use crate::error::StoreError;

/// Acquires a lease in one round trip; `None` if another holder has the lock.
pub(super) async fn acquire_once(
    redis: &Redis,
    request: LeaseRequest,
) -> Result<Option<LeaseGuard>, StoreError> {
    let tasks = BackgroundTasks::of(redis);
    let mut attempt = Attempt::new(&tasks, request);
    match attempt.ask().await? {
        Attempted::Granted(lease) => Ok(Some(lease)),
        Attempted::Held { .. } => Ok(None),
    }
}

/// Acquires a lease, and waits for it up to `wait`; with zero, as [`acquire_once`].
pub(super) async fn acquire_within(
    redis: &Redis,
    request: LeaseRequest,
    wait: Duration,
) -> Result<Option<LeaseGuard>, StoreError> {
    match wait.is_zero() {
        true => acquire_once(redis, request).await,
        // A wait beyond the clock's range has no end.
        false => acquire_until(redis, request, Instant::now().checked_add(wait)).await,
    }
}

/// Acquires a lease, and waits for it until an instant, or as long as it takes. A call in progress
/// at that instant is awaited.
///
/// The first call is sent at once, unless it is the turn of other processes that wait. A caller
/// that is denied sleeps; of all callers in this process, one at a time asks again.
pub(super) async fn acquire_until(
    redis: &Redis,
    request: LeaseRequest,
    until: Option<Instant>,
) -> Result<Option<LeaseGuard>, StoreError> {
    let tasks = BackgroundTasks::of(redis);
    let channels = tasks.subscriber.channels();
    let resource = request.resource.clone();
    let channel = &*resource.keys.channel;
    let info = WaiterInfo {
        owner: request.owner_number(),
        timeout: resource.connection.timeout(),
    };
    let mut queued = match request.is_nested() {
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
            Ok(Attempted::Held { ends_after }) => {
                let queued = queued.get_or_insert_with(join);
                queued.denied(ends_after);
                queued
            }
            Err(error) if is_transient(&error) => {
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
