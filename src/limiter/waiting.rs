//! Waiting for permits: each caller asks at once, and again when it may be granted them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::backend::{Grant, Id};
use super::batcher::Batcher;
use super::pending::Answer;
use super::permit::{Claim, Permit};
use super::{Generation, LimiterError, RateLimiter};

impl RateLimiter {
    /// The permits, or how long they are not to be had, where that is more than there is time for;
    /// without a bound, as long as it takes.
    pub(super) async fn wait(
        &self,
        permits: u64,
        until: Option<Instant>,
    ) -> Result<Result<Permit, Duration>, LimiterError> {
        let what = self.wanted(permits)?;
        if self.fair {
            self.only_third("fair waiting")?;
        }
        let batcher = self.backend.client().batcher(&what, &self.backend);
        let id = self.backend.client().next_id();
        let grant = Grant {
            id,
            stamp: 0,
            permits,
        };
        // If the answer is lost, or this future is dropped, while it may be granted.
        let mut claim = Claim::new(&batcher, grant);
        claim.is_open = self.generation == Generation::Third;
        let asked = self.ask(&batcher, id, until).await;
        claim.is_open &= match &asked {
            Ok(Ok(_)) => false,
            Ok(Err(_)) => true,
            Err(error) => self.fair || error.of_store().is_some(),
        };
        let granted = match asked? {
            Ok(mut granted) => {
                granted.is_open = false;
                granted.grant
            }
            Err((wait, may_be_granted)) => {
                claim.is_open &= may_be_granted || self.fair;
                return Ok(Err(wait));
            }
        };
        Ok(Ok(Permit {
            backend: Arc::clone(&self.backend),
            name: Arc::clone(&self.name),
            grant: granted,
        }))
    }

    /// Returns the grant; or how long it takes, and whether a question is still on its way.
    async fn ask(
        &self,
        batcher: &Arc<Batcher>,
        id: Id,
        until: Option<Instant>,
    ) -> Result<Result<Claim, (Duration, bool)>, LimiterError> {
        let arrival = batcher.arrive();
        loop {
            let (wait, repeat) = match batcher.ask(arrival, id, until).await? {
                Answer::Granted(claim) => return Ok(Ok(claim)),
                Answer::Denied { wait, repeat } => (wait, repeat),
            };
            let Some(repeat) = repeat else {
                return Ok(Err((wait, false)));
            };
            let answer = match until {
                Some(until) => timeout_at(until, repeat).await,
                None => Ok(repeat.await),
            };
            match answer {
                Ok(Ok(Ok(Answer::Granted(claim)))) => return Ok(Ok(claim)),
                Ok(Ok(Err(error))) => return Err(error),
                Err(_) => return Ok(Err((wait, true))),
                // The runtime that was to ask again has ended.
                Ok(Ok(Ok(Answer::Denied { .. })) | Err(_)) => {}
            }
        }
    }
}
