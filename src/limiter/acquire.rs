use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::acquire_queue::AcquireAnswer;
use super::batcher::Batcher;
use super::error::LimiterError;
use super::limiters::{Grant, GrantId};

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
    let answer = ask_until(batcher, id, until).await;
    let is_fair = batcher.request.is_fair;
    let may_be_granted = match &answer {
        Ok(AcquireAnswer::Granted(_)) => false,
        Ok(AcquireAnswer::Denied { retry, .. }) => retry.is_some() || is_fair,
        Err(error) => error.is_store_error() || is_fair,
    };
    if !may_be_granted {
        guard.disarm();
    }
    match answer? {
        AcquireAnswer::Granted(mut granted) => Ok(Ok(granted.disarm())),
        AcquireAnswer::Denied { wait, .. } => Ok(Err(wait)),
    }
}

/// Returns the last answer. A denial has a `retry` if the caller is still in the queue.
async fn ask_until(
    batcher: &Arc<Batcher>,
    id: GrantId,
    until: Option<Instant>,
) -> Result<AcquireAnswer, LimiterError> {
    let arrival = batcher.next_arrival();
    loop {
        let (wait, mut retry) = match batcher.ask(arrival, id, until).await? {
            AcquireAnswer::Denied {
                wait,
                retry: Some(retry),
            } => (wait, retry),
            answer => return Ok(answer),
        };
        let answer = match until {
            Some(until) => timeout_at(until, &mut retry).await,
            None => Ok((&mut retry).await),
        };
        match answer {
            // The runtime that was to ask again has ended.
            Ok(Ok(Ok(AcquireAnswer::Denied { .. })) | Err(_)) => {}
            Ok(Ok(answer)) => return answer,
            Err(_) => {
                let retry = Some(retry);
                return Ok(AcquireAnswer::Denied { wait, retry });
            }
        }
    }
}
