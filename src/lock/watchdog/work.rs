use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::connection::AnswerFuture;
use crate::error::StoreErrorKind;
use crate::lock::claim::Claim;
use crate::lock::held::Held;

/// A thing to do in the background, in one call.
#[derive(Debug)]
pub(super) enum Work {
    Renew(Weak<Held>),
    Release(Release),
    #[cfg(test)]
    Panic,
}

/// What has to go before its lease runs out, since nobody waits for it.
#[derive(Debug)]
pub(super) struct Release {
    what: What,
    /// The first call, if it is under way already.
    sent: Option<Sent>,
    until: Instant,
    /// Before the next try.
    pause: Duration,
}

/// A call to release, and its place among those that are sent early.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) reply: Pin<Box<AnswerFuture<Value>>>,
    pub(super) _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum What {
    Held(Arc<Held>),
    Unknown(Claim),
}

impl Work {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const MAX_PAUSE: Duration = Duration::from_secs(1);

    pub(super) fn release(held: Arc<Held>, until: Instant, sent: Option<Sent>) -> Self {
        Self::until(What::Held(held), until, sent)
    }

    pub(super) fn give_up(claim: Claim) -> Self {
        // The request may be late: its lease begins when Redis gets to it.
        let until = Instant::now() + claim.lease;
        Self::until(What::Unknown(claim), until, None)
    }

    fn until(what: What, until: Instant, sent: Option<Sent>) -> Self {
        Self::Release(Release {
            what,
            sent,
            until,
            pause: Self::FIRST_PAUSE,
        })
    }

    /// Whether it has to be done at all.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Renew(held) => held.upgrade().is_some_and(|held| held.until().is_some()),
            Self::Release(_) => true,
            #[cfg(test)]
            Self::Panic => true,
        }
    }

    /// Does it; what there is to do then, and when.
    pub(super) async fn go_on(self) -> Option<(Instant, Self)> {
        match self {
            Self::Renew(held) => {
                let due = held.upgrade()?.renew().await?;
                Some((due, Self::Renew(held)))
            }
            Self::Release(release) => release.go_on().await,
            #[cfg(test)]
            Self::Panic => panic!("a bug"),
        }
    }
}

impl Release {
    async fn go_on(mut self) -> Option<(Instant, Work)> {
        let sent = self.sent.take();
        let call = async {
            match &self.what {
                What::Held(held) => {
                    let reply = match sent {
                        Some(sent) => sent.reply.await?,
                        None => held.release().await?,
                    };
                    held.read(&reply)
                }
                What::Unknown(claim) => {
                    let reply = claim.release(None, false).await?;
                    claim.read(&reply).map(|released| released.was_held)
                }
            }
        };
        // Even if it is late: one call hardly costs anything, and the lease in Redis ends a bit later than here.
        let until = self.until.max(Instant::now() + Work::MAX_PAUSE);
        let done = timeout_at(until, call).await;
        let again = Instant::now() + self.pause;
        let is_done = done.is_ok_and(|done| match done {
            Ok(_) => true,
            // Something else stands there by now.
            Err(error) => error.kind() == StoreErrorKind::WrongType,
        });
        if is_done || again >= self.until {
            return None;
        }
        self.pause = (2 * self.pause).min(Work::MAX_PAUSE);
        Some((again, Work::Release(self)))
    }
}
