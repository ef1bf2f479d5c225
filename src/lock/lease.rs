use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::background::Background;
use super::claim::Claim;
use super::error::{LockError, may_pass};
use super::held::Held;

/// What was taken, until it is given back: by `release`, or in the background when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    held: Arc<Held>,
    /// It lives at least as long as what it watches.
    background: Arc<Background>,
    is_released: bool,
}

impl Lease {
    const PAUSE: Duration = Duration::from_millis(50);

    /// Of a request that was sent then.
    pub(super) fn new(
        background: Arc<Background>,
        claim: Claim,
        token: u64,
        sent: Instant,
    ) -> Self {
        let channels = Arc::clone(background.subscriber.channels());
        Self {
            held: Held::new(channels, claim, token, sent),
            background,
            is_released: false,
        }
    }

    /// Lets the watchdog renew it.
    pub(super) fn renewed(self) -> Self {
        self.held.claim.taken(self.held.token, None);
        self.background.watchdog.watch(&self.held);
        self
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Gives it back, with tries until the lease runs out, or for 10 s.
    pub(super) async fn release(mut self) -> Result<(), LockError> {
        let until = self.held.end();
        let until = until.min(Instant::now() + Claim::MAX_RELEASE);
        loop {
            let reply = self.held.release().await;
            let outcome = reply.and_then(|reply| self.held.read(&reply));
            let again = Instant::now() + Self::PAUSE;
            match outcome {
                Err(error) if may_pass(&error) && again < until => sleep(Self::PAUSE).await,
                // The background goes on trying.
                Err(error) => return Err(LockError::store(self.name(), error)),
                Ok(was_held) => {
                    self.is_released = true;
                    return was_held
                        .then_some(())
                        .ok_or_else(|| LockError::not_held(self.name()));
                }
            }
        }
    }

    fn name(&self) -> &str {
        &self.held.claim.target.names.key
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            let until = self.held.end();
            let held = Arc::clone(&self.held);
            self.background.watchdog.release(held, until);
        }
    }
}
