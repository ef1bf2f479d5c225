use std::collections::VecDeque;
use std::time::Duration;

use super::rate::Rate;

/// The permits that a limiter in memory has granted: a sliding window without a clock of its own.
///
/// `now` is in microseconds since any fixed instant. A grant is stamped with the next full
/// millisecond, and expires one interval after its stamp. Expired grants stay until the next grant
/// or release, so that a denied request changes nothing, also if the clock goes back later.
#[derive(Debug, Default)]
pub(super) struct GrantedPermits {
    /// Sorted by stamp. Grants of the same millisecond are one item.
    grants: VecDeque<StampedPermits>,
    /// The sum of all permits in `grants`.
    total: u64,
}

#[derive(Debug)]
struct StampedPermits {
    /// In milliseconds.
    stamp: u64,
    permits: u64,
}

impl GrantedPermits {
    /// Grants permits, or returns the microseconds until they can be granted.
    pub(super) fn acquire(&mut self, now: u64, rate: &Rate, permits: u64) -> Result<(), u64> {
        match self.shortfall(now, rate, permits) {
            0 => self.add(now.div_ceil(1_000), permits, now, rate),
            shortfall => return Err(self.wait_for(now, rate, shortfall)),
        }
        Ok(())
    }

    /// Returns how many of `permits` exceed what is available.
    pub(super) fn shortfall(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let (_, expired) = self.expired(now, rate);
        (self.total - expired + permits).saturating_sub(rate.permits())
    }

    /// Returns the microseconds until this many permits have expired; at least 1.
    pub(super) fn wait_for(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        self.restamp_future_grants(now, rate);
        let expire_at = self.expire_at(now, rate, permits).saturating_mul(1_000);
        expire_at.saturating_sub(now).max(1)
    }

    /// Gives back permits with this stamp if they still count. Returns how many came back.
    pub(super) fn give_back(&mut self, now: u64, rate: &Rate, stamp: u64, permits: u64) -> u64 {
        let found = self
            .grants
            .binary_search_by_key(&stamp, |grant| grant.stamp);
        match found {
            Ok(index) if stamp + rate.interval_millis() > now / 1_000 => {
                self.take_out(index, permits)
            }
            _ => 0,
        }
    }

    /// Gives back at most this many permits, those that expire first. Returns how many came back.
    pub(super) fn release(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let (first, _) = self.expired(now, rate);
        let is_past = |grant: &StampedPermits| grant.stamp <= now.div_ceil(1_000);
        let mut released = 0;
        while released < permits && self.grants.get(first).is_some_and(is_past) {
            released += self.take_out(first, permits - released);
        }
        if released > 0 {
            self.drop_expired(now, rate);
        }
        released
    }

    /// Returns how many permits can be granted now.
    pub(super) fn available(&self, now: u64, rate: &Rate) -> u64 {
        let (_, expired) = self.expired(now, rate);
        rate.permits().saturating_sub(self.total - expired)
    }

    /// Returns the time until all grants have expired.
    pub(super) fn expire_in(&self, now: u64, rate: &Rate) -> Duration {
        let newest = self.grants.back().map_or(0, |grant| grant.stamp);
        let expires_at = (newest + rate.interval_millis()).saturating_mul(1_000);
        Duration::from_micros(expires_at.saturating_sub(now))
    }

    pub(super) fn drop_expired(&mut self, now: u64, rate: &Rate) {
        let (number, permits) = self.expired(now, rate);
        self.grants.drain(..number);
        self.total -= permits;
    }

    /// Returns the number of items that have expired, and their permits.
    fn expired(&self, now: u64, rate: &Rate) -> (usize, u64) {
        let has_expired =
            |grant: &&StampedPermits| grant.stamp + rate.interval_millis() <= now / 1_000;
        let expired = self.grants.iter().take_while(has_expired);
        expired.fold((0, 0), |(number, permits), grant| {
            (number + 1, permits + grant.permits)
        })
    }

    fn add(&mut self, stamp: u64, permits: u64, now: u64, rate: &Rate) {
        self.drop_expired(now, rate);
        self.total += permits;
        let index = self.grants.partition_point(|grant| grant.stamp < stamp);
        match self.grants.get_mut(index) {
            Some(grant) if grant.stamp == stamp => grant.permits += permits,
            _ => self.grants.insert(index, StampedPermits { stamp, permits }),
        }
    }

    fn take_out(&mut self, index: usize, permits: u64) -> u64 {
        let grant = &mut self.grants[index];
        let taken = permits.min(grant.permits);
        grant.permits -= taken;
        self.total -= taken;
        if grant.permits == 0 {
            self.grants.remove(index);
        }
        taken
    }

    /// After the clock went back, grants with a stamp in the future count as granted now.
    fn restamp_future_grants(&mut self, now: u64, rate: &Rate) {
        let stamp = now.div_ceil(1_000);
        let from = self.grants.partition_point(|grant| grant.stamp <= stamp);
        let future = self.grants.split_off(from);
        if !future.is_empty() {
            let permits = future.iter().map(|grant| grant.permits).sum();
            self.total -= permits;
            self.add(stamp, permits, now, rate);
        }
    }

    /// Returns the millisecond at which this many of the permits that count now have expired.
    fn expire_at(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let (first, _) = self.expired(now, rate);
        let mut expiring = 0;
        let mut counting = self.grants.iter().skip(first).skip_while(|grant| {
            expiring += grant.permits;
            expiring < permits
        });
        let last = counting.next().or(self.grants.back());
        last.map_or(0, |grant| grant.stamp) + rate.interval_millis()
    }
}
