use std::collections::VecDeque;
use std::time::Duration;

use super::error::LimiterError;
use super::granted_permits::GrantedPermits;
use super::limiters::{AcquireReply, AcquireRequest, Grant, GrantId};
use super::rate::Rate;

/// One limiter in memory. `now` is in microseconds since any fixed instant.
#[derive(Debug)]
pub(super) struct MemoryLimiter {
    pub(super) rate: Rate,
    pub(super) granted: GrantedPermits,
    /// Fair callers in the order of their arrival, with the permits that each wants.
    fair_queue: VecDeque<(GrantId, u64)>,
    /// Changes whenever the counts are cleared: grants of an earlier epoch are not given back.
    epoch: u64,
    /// In microseconds; `None` if the limiter stays until it is deleted.
    pub(super) expires_at: Option<u64>,
}

impl MemoryLimiter {
    /// The low bits of a stamp hold its millisecond, the high bits the epoch. No clock of this
    /// crate shows more milliseconds.
    const MAX_MILLIS: u64 = 1 << 43;
    const MAX_EPOCHS: u64 = 1 << 20;

    pub(super) fn new(rate: Rate, epoch: u64) -> Self {
        Self {
            rate,
            granted: GrantedPermits::default(),
            fair_queue: VecDeque::new(),
            epoch,
            expires_at: None,
        }
    }

    /// Clears the counts, for a new rate.
    pub(super) fn reset(&mut self) {
        self.granted = GrantedPermits::default();
        self.epoch += 1;
    }

    pub(super) fn set_rate(&mut self, now: u64, rate: Rate) {
        self.granted.drop_expired(now, &self.rate);
        self.rate = rate;
        self.expires_at = None;
        if let Some(keep_alive) = rate.keep_alive() {
            let expire_in = self.granted.expire_in(now, &rate);
            self.expire_after(now, keep_alive.max(expire_in));
        }
    }

    pub(super) fn acquire(
        &mut self,
        now: u64,
        request: &AcquireRequest,
        callers: &[GrantId],
    ) -> Result<AcquireReply, LimiterError> {
        if request.permits > self.rate.permits() {
            return Err(LimiterError::above_rate(&request.name, request.permits));
        }
        let (granted, wait) = match request.is_fair {
            true => self.acquire_fair(now, request.permits, callers),
            false => self.acquire_unfair(now, request.permits, callers.len()),
        };
        if !granted.is_empty()
            && let Some(keep_alive) = self.rate.keep_alive()
        {
            let expire_in = self.granted.expire_in(now, &self.rate);
            // Callers that wait for the last permits still find the rate when they ask again.
            let slack = Duration::from_millis(self.rate.interval_millis().min(1_000) + 100);
            self.expire_after(now, keep_alive.max(expire_in + slack));
        }
        Ok(AcquireReply {
            granted,
            stamp: self.stamp(now.div_ceil(1_000)),
            wait: Duration::from_micros(wait),
            redisson: None,
        })
    }

    /// Returns the indices of the callers whose permits were granted, and the microseconds until
    /// the next caller's permits can be granted.
    fn acquire_unfair(&mut self, now: u64, permits: u64, callers: usize) -> (Vec<usize>, u64) {
        for granted in 0..callers {
            if let Err(wait) = self.granted.acquire(now, &self.rate, permits) {
                return ((0..granted).collect(), wait);
            }
        }
        ((0..callers).collect(), 0)
    }

    /// As [`acquire_unfair`](Self::acquire_unfair), in the order of the fair queue. Callers in the
    /// queue that do not ask now keep their place and their share.
    fn acquire_fair(&mut self, now: u64, permits: u64, callers: &[GrantId]) -> (Vec<usize>, u64) {
        for id in callers {
            if !self.fair_queue.iter().any(|(queued, _)| queued == id) {
                self.fair_queue.push_back((*id, permits));
            }
        }
        let (mut granted, mut position, mut reserved) = (Vec::new(), 0, 0);
        while let Some((id, wanted)) = self.fair_queue.get(position).copied() {
            let shortfall = (self.granted).shortfall(now, &self.rate, reserved + wanted);
            if shortfall > 0 {
                let shortfall = shortfall.min(self.rate.permits());
                return (granted, self.granted.wait_for(now, &self.rate, shortfall));
            }
            match callers.iter().position(|caller| *caller == id) {
                Some(index) => {
                    let _ = self.granted.acquire(now, &self.rate, wanted);
                    self.fair_queue.remove(position);
                    granted.push(index);
                }
                None => {
                    reserved += wanted;
                    position += 1;
                }
            }
        }
        (granted, 0)
    }

    /// Gives a grant back, and removes its caller from the fair queue.
    pub(super) fn give_back(&mut self, now: u64, grant: &Grant) -> u64 {
        self.fair_queue.retain(|(id, _)| *id != grant.id);
        let millis = grant.stamp % Self::MAX_MILLIS;
        match grant.stamp == self.stamp(millis) {
            true => (self.granted).give_back(now, &self.rate, millis, grant.permits),
            false => 0,
        }
    }

    fn stamp(&self, millis: u64) -> u64 {
        millis + self.epoch % Self::MAX_EPOCHS * Self::MAX_MILLIS
    }

    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    pub(super) fn expire_after(&mut self, now: u64, after: Duration) {
        let after = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.expires_at = Some(now.saturating_add(after));
    }
}
