use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::acquire_queue::AcquireAnswer;
use super::batcher::Batcher;
use super::error::LimiterError;
use super::grant_guard::GrantGuard;
use super::limiters::{Grant, GrantId};

/// The result of waiting for permits.
enum Acquired {
    Granted(GrantGuard),
    /// The permits cannot be granted before `wait` has passed, and the caller waits no longer.
    Refused {
        wait: Duration,
        /// Whether the caller's question is still in the queue or under way.
        is_pending: bool,
    },
}

/// Asks for permits at once, and again whenever they may be granted, until the caller's deadline.
///
/// Returns the grant, or how long the caller would have to wait for it.
pub(super) async fn acquire(
    batcher: &Arc<Batcher>,
    id: GrantId,
    until: Option<Instant>,
) -> Result<Result<Grant, Duration>, LimiterError> {
    // The permits may be granted while the reply gets lost, or while this future is dropped.
    let mut guard = batcher.guard(id, 0);
    let acquired = ask_until(batcher, id, until).await;
    let is_fair = batcher.request.is_fair;
    let may_be_granted = match &acquired {
        Ok(Acquired::Granted(_)) => false,
        Ok(Acquired::Refused { is_pending, .. }) => *is_pending || is_fair,
        Err(error) => error.is_store_error() || is_fair,
    };
    if !may_be_granted {
        guard.disarm();
    }
    match acquired? {
        Acquired::Granted(mut granted) => Ok(Ok(granted.disarm())),
        Acquired::Refused { wait, .. } => Ok(Err(wait)),
    }
}

async fn ask_until(
    batcher: &Arc<Batcher>,
    id: GrantId,
    until: Option<Instant>,
) -> Result<Acquired, LimiterError> {
    let arrival = batcher.next_arrival();
    loop {
        let (wait, retry) = match batcher.ask(arrival, id, until).await? {
            AcquireAnswer::Granted(guard) => return Ok(Acquired::Granted(guard)),
            AcquireAnswer::Denied { wait, retry } => (wait, retry),
        };
        let Some(retry) = retry else {
            let is_pending = false;
            return Ok(Acquired::Refused { wait, is_pending });
        };
        let answer = match until {
            Some(until) => timeout_at(until, retry).await,
            None => Ok(retry.await),
        };
        match answer {
            Ok(Ok(Ok(AcquireAnswer::Granted(guard)))) => return Ok(Acquired::Granted(guard)),
            Ok(Ok(Err(error))) => return Err(error),
            Err(_) => {
                let is_pending = true;
                return Ok(Acquired::Refused { wait, is_pending });
            }
            // The runtime that was to ask again has ended.
            Ok(Ok(Ok(AcquireAnswer::Denied { .. })) | Err(_)) => {}
        }
    }
}
