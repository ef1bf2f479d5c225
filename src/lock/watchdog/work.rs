use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::connection::AnswerFuture;
use crate::error::StoreErrorKind;
use crate::lock::held_lease::HeldLease;
use crate::lock::lease_request::LeaseRequest;

/// A piece of the watchdog's work: one call.
#[derive(Debug)]
pub(super) enum Work {
    Renew(Weak<HeldLease>),
    Release(ReleaseWork),
    #[cfg(test)]
    Panic,
}

/// A release that no caller waits for.
#[derive(Debug)]
pub(super) struct ReleaseWork {
    lease: ReleasedLease,
    /// The first call, if it was sent already.
    sent: Option<SentRelease>,
    /// When the lease runs out by itself.
    until: Instant,
    /// The time until the next attempt.
    pause: Duration,
}

/// A release that was sent, with its permit of [`Watchdog`](super::Watchdog).
#[derive(Debug)]
pub(super) struct SentRelease {
    pub(super) reply: Pin<Box<AnswerFuture<Value>>>,
    pub(super) _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum ReleasedLease {
    Held(Arc<HeldLease>),
    /// The request may have been granted without a reply.
    MayBeGranted(LeaseRequest),
}

impl Work {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const MAX_PAUSE: Duration = Duration::from_secs(1);

    pub(super) fn release(held: Arc<HeldLease>, until: Instant, sent: Option<SentRelease>) -> Self {
        Self::new_release(ReleasedLease::Held(held), until, sent)
    }

    pub(super) fn give_up(request: LeaseRequest) -> Self {
        // The request may still arrive. Its lease begins when Redis receives it.
        let until = Instant::now() + request.lease;
        Self::new_release(ReleasedLease::MayBeGranted(request), until, None)
    }

    fn new_release(lease: ReleasedLease, until: Instant, sent: Option<SentRelease>) -> Self {
        Self::Release(ReleaseWork {
            lease,
            sent,
            until,
            pause: Self::FIRST_PAUSE,
        })
    }

    /// Whether the work still has to be done: a lease whose guard is gone is not renewed.
    pub(super) fn is_needed(&self) -> bool {
        match self {
            Self::Renew(held) => held.upgrade().is_some_and(|held| held.until().is_some()),
            Self::Release(_) => true,
            #[cfg(test)]
            Self::Panic => true,
        }
    }

    /// Makes the call. Returns the next call and when it is due, if there is one.
    pub(super) async fn run(self) -> Option<(Instant, Self)> {
        match self {
            Self::Renew(held) => {
                let due = held.upgrade()?.renew().await?;
                Some((due, Self::Renew(held)))
            }
            Self::Release(release) => release.run().await,
            #[cfg(test)]
            Self::Panic => panic!("a bug"),
        }
    }
}

impl ReleaseWork {
    async fn run(mut self) -> Option<(Instant, Work)> {
        let sent = self.sent.take();
        let call = async {
            match &self.lease {
                ReleasedLease::Held(held) => {
                    let reply = match sent {
                        Some(sent) => sent.reply.await?,
                        None => held.release().await?,
                    };
                    held.read(&reply)
                }
                ReleasedLease::MayBeGranted(request) => {
                    let reply = request.give_up().await?;
                    request.read_release(&reply).map(|reply| reply.was_held)
                }
            }
        };
        // A late call is still made: the lease in Redis ends a bit later than here.
        let until = self.until.max(Instant::now() + Work::MAX_PAUSE);
        let done = timeout_at(until, call).await;
        let next_attempt = Instant::now() + self.pause;
        let is_done = done.is_ok_and(|done| match done {
            Ok(_) => true,
            // The key holds something else by now.
            Err(error) => error.kind() == StoreErrorKind::WrongType,
        });
        if is_done || next_attempt >= self.until {
            return None;
        }
        self.pause = (2 * self.pause).min(Work::MAX_PAUSE);
        Some((next_attempt, Work::Release(self)))
    }
}
