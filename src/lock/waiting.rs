//! Asking for what others may have, once or until it is there.

use tokio::time::Instant;

use super::attempt::Attempt;
use super::background::Background;
use super::claim::Claim;
use super::error::may_pass;
use super::lease::Lease;
use super::subscriber::{Caller, Waiting};
use crate::connection::Redis;
use crate::error::StoreError;

/// One round trip; none if others have it.
pub(super) async fn try_once(redis: &Redis, claim: Claim) -> Result<Option<Lease>, StoreError> {
    let background = Background::of(redis);
    let mut attempt = Attempt::new(&background, claim);
    Ok(attempt.ask().await?.ok())
}

/// Waits until then, or as long as it takes; a question that is under way by then is waited for.
///
/// The first question goes out at once, unless this process has just had the lock and others wait:
/// then they go first. Those who are refused sleep, and ask again one at a time.
pub(super) async fn wait(
    redis: &Redis,
    claim: Claim,
    until: Option<Instant>,
) -> Result<Option<Lease>, StoreError> {
    let background = Background::of(redis);
    let target = claim.target.clone();
    let caller = Caller {
        owner: claim.owner_number(),
        timeout: target.connection.timeout(),
    };
    let join = || background.subscriber.join(&target.names.channel, caller);
    let behind_others = || {
        let channel = &target.names.channel;
        background
            .subscriber
            .join_behind_others(channel, caller, until)
    };
    let mut waiting: Option<Waiting> = match claim.is_nested() {
        true => None,
        false => behind_others(),
    };
    let mut attempt = Attempt::new(&background, claim);
    if let Some(waiting) = &waiting {
        // Also without any time left it asks once.
        waiting.woken(until).await?;
    }
    loop {
        let refusal = match attempt.ask().await {
            Ok(Ok(lease)) => {
                if let Some(waiting) = &waiting {
                    waiting.answered();
                }
                return Ok(Some(lease));
            }
            Ok(Err(ends_after)) => Ok(ends_after),
            Err(error) if may_pass(&error) => Err(error),
            Err(error) => return Err(error),
        };
        let waiting = waiting.get_or_insert_with(join);
        match refusal {
            Ok(ends_after) => waiting.refused(ends_after),
            Err(error) => {
                attempt.start_anew();
                waiting.failed(error);
            }
        }
        if !waiting.woken(until).await? {
            return Ok(None);
        }
    }
}
