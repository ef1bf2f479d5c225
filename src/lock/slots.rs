use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claim::Claim;
use super::lease::Lease;
use super::target::{Kind, Target};
use super::waiting;
use crate::connection::Redis;
use crate::error::StoreError;

/// A number of permits that the whole fleet shares: at most so many are out at a time.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    redis: Redis,
    target: Arc<Target>,
    lease: Duration,
}

/// One of the permits, renewed until it is dropped: then it is given back in the background.
#[derive(Debug)]
pub(super) struct Permit {
    _lease: Lease,
}

impl Slots {
    pub(super) fn new(redis: &Redis, name: &str, permits: u32, lease: Duration) -> Self {
        Self {
            redis: redis.clone(),
            target: Target::slots(redis, name, permits),
            lease,
        }
    }

    /// A permit, if one is to be had before that time is over; with zero, in one round trip.
    pub(super) async fn take(&self, wait: Duration) -> Result<Option<Permit>, StoreError> {
        let claim = Claim::new(&self.target, None, self.lease);
        // Without any permits none is ever given back.
        let is_vain = matches!(self.target.kind(), Kind::Slots { permits: 0 });
        let lease = match wait.is_zero() || is_vain {
            true => waiting::try_once(&self.redis, claim).await?,
            false => {
                let until = Instant::now().checked_add(wait);
                waiting::wait(&self.redis, claim, until).await?
            }
        };
        Ok(lease.map(|lease| Permit {
            _lease: lease.renewed(),
        }))
    }
}
