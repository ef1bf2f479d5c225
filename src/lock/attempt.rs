use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::background::Background;
use super::claim::Claim;
use super::lease::Lease;
use super::reply::Answer;
use crate::error::{StoreError, StoreErrorKind};

/// A request under way. Dropped while nobody knows what became of it, it is given up in the background.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    background: &'a Arc<Background>,
    claim: Option<Claim>,
    is_unknown: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(background: &'a Arc<Background>, claim: Claim) -> Self {
        Self {
            background,
            claim: Some(claim),
            is_unknown: false,
        }
    }

    /// One call: the lease, or when that of others ends, if it ever does.
    pub(super) async fn ask(&mut self) -> Result<Result<Lease, Option<Duration>>, StoreError> {
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
        let token = match answer {
            Answer::Taken { token } => token,
            Answer::Held { ends_after } => {
                // An earlier call may still be on its way.
                self.is_unknown = was_unknown;
                return Ok(Err(ends_after));
            }
        };
        if sent.elapsed() >= claim.lease {
            return Err(too_late());
        }
        self.is_unknown = false;
        let claim = self.claim.take().ok_or_else(too_late)?;
        if let Some(owner) = claim.owner_number() {
            let channel = &claim.target.names.channel;
            self.background.subscriber.taken_by(owner, channel);
        }
        let background = Arc::clone(self.background);
        Ok(Ok(Lease::new(background, claim, token, sent)))
    }
}

impl Attempt<'_> {
    /// Gives up what may have been taken, if nobody knows, and makes another request of it. Its
    /// caller sleeps before the next question, and nobody is to wait for the lock meanwhile.
    pub(super) fn start_anew(&mut self) {
        if let Some(claim) = self.claim.take_if(|_| self.is_unknown) {
            self.claim = Some(claim.again());
            self.is_unknown = false;
            self.background.watchdog.give_up(claim);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take().filter(|_| self.is_unknown) {
            self.background.watchdog.give_up(claim);
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
