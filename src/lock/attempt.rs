use std::sync::Arc;

use tokio::time::Instant;

use super::claim::Claim;
use super::lease::Lease;
use super::reply::Answer;
use super::watchdog::Watchdog;
use crate::error::{StoreError, StoreErrorKind};

/// A request under way. Dropped while nobody knows what became of it, it is given up in the background.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    watchdog: &'a Arc<Watchdog>,
    claim: Option<Claim>,
    is_unknown: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(watchdog: &'a Arc<Watchdog>, claim: Claim) -> Self {
        Self {
            watchdog,
            claim: Some(claim),
            is_unknown: false,
        }
    }

    /// One call. After one that nobody knows the end of, the next one is the same request again: it counts once.
    pub(super) async fn ask(&mut self) -> Result<Result<Lease, Answer>, StoreError> {
        let Some(claim) = &self.claim else {
            return Err(too_late());
        };
        let was_unknown = std::mem::replace(&mut self.is_unknown, true);
        let sent = Instant::now();
        let answer = claim.acquire().await;
        if answer.as_ref().is_err_and(is_refusal) {
            self.is_unknown = was_unknown;
        }
        let answer = answer?.ok_or_else(too_late)?;
        let Answer::Taken { token } = answer else {
            // An earlier call may still be on its way.
            self.is_unknown = was_unknown;
            return Ok(Err(answer));
        };
        if sent.elapsed() >= claim.lease {
            return Err(too_late());
        }
        self.is_unknown = false;
        let lease = self.claim.take().map(|claim| {
            let watchdog = Arc::clone(self.watchdog);
            Lease::new(watchdog, claim, token, sent)
        });
        lease.map(Ok).ok_or_else(too_late)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take().filter(|_| self.is_unknown) {
            self.watchdog.give_up(claim);
        }
    }
}

/// Whether nothing has come of it for sure.
fn is_refusal(error: &StoreError) -> bool {
    use StoreErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::WrongType | Kind::Refused | Kind::ReadOnly | Kind::OutOfMemory
    )
}

/// The answer is there, but what it grants is over.
fn too_late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        "the lease ran out before the answer came",
    )
}
