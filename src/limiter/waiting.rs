//! Waiting for permits: in the line of this process, or by reservation in that of all.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backend::{Answer, Wanted};
use super::{LimiterError, RateLimiter};
use crate::jitter;

impl RateLimiter {
    /// Whether there were enough before that; without a bound, as long as it takes.
    pub(super) async fn wait(
        &self,
        permits: u64,
        until: Option<Instant>,
    ) -> Result<bool, LimiterError> {
        let wanted = self.wanted(permits)?;
        match self.fair {
            true => self.wait_reserved(wanted, until).await,
            false => self.wait_in_line(wanted, until).await,
        }
    }

    async fn wait_reserved(
        &self,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<bool, LimiterError> {
        self.only_third("fair waiting")?;
        let most = until.map(|until| until.saturating_duration_since(Instant::now()));
        let reserved = self.backend.reserve(wanted, most.unwrap_or(Duration::MAX));
        match reserved.await? {
            Answer::Wait(_) => Ok(false),
            Answer::Granted(grant, wait) => {
                tokio::time::sleep(wait).await;
                grant.keep();
                Ok(true)
            }
        }
    }

    async fn wait_in_line(
        &self,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Result<bool, LimiterError> {
        /// At most so much later than necessary, and at most this part of the wait.
        const LATER: Duration = Duration::from_millis(5);
        const PART: u32 = 20;

        let line = self.backend.lines().line(&self.name);
        let Some(turn) = line.turn(until).await? else {
            return Ok(false);
        };
        loop {
            let wait = match self.backend.acquire(wanted.clone()).await {
                Ok(Answer::Wait(wait)) => wait,
                Ok(Answer::Granted(grant, _)) => {
                    grant.keep();
                    return Ok(true);
                }
                Err(error) => {
                    if let Some(error) = error.of_store() {
                        turn.failed(error);
                    }
                    return Err(error);
                }
            };
            let earliest = Instant::now() + wait;
            turn.not_before(earliest);
            let later = earliest + jitter::up_to(LATER.min(wait / PART));
            match until {
                Some(until) if earliest > until => return Ok(false),
                Some(until) => sleep_until(later.min(until)).await,
                None => sleep_until(later).await,
            }
        }
    }
}
