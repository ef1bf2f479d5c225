use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::limiters::{ClientId, Grant, GrantId};
use super::rate::Rate;

/// The permits that a limiter in memory has granted: a sliding window without a clock of its own.
///
/// `now` is in microseconds since any fixed instant. A grant is stamped with the next full
/// millisecond, and expires one interval after its stamp. Expired grants stay until the next grant
/// or release, so that a denied request changes nothing, also if the clock goes back later.
#[derive(Debug, Default)]
pub(super) struct GrantedPermits {
    /// The permits of each grant, in the order of the sorted set in Redis.
    grants: BTreeMap<(Stamp, GrantId), u64>,
    /// The sum of all permits in `grants`.
    total: u64,
}

/// In milliseconds.
type Stamp = u64;

impl GrantedPermits {
    /// Grants permits, or returns the microseconds until they can be granted.
    pub(super) fn acquire(
        &mut self,
        now: u64,
        rate: &Rate,
        id: GrantId,
        permits: u64,
    ) -> Result<(), u64> {
        match self.shortfall(now, rate, permits) {
            0 => {
                self.drop_expired(now, rate);
                self.total += permits;
                *self.grants.entry((stamp(now), id)).or_default() += permits;
                Ok(())
            }
            shortfall => Err(self.wait_for(now, rate, shortfall)),
        }
    }

    /// Returns how many of `permits` exceed what is available.
    pub(super) fn shortfall(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        (self.total - self.expired(now, rate) + permits).saturating_sub(rate.permits())
    }

    /// Returns the microseconds until this many permits have expired; at least 1.
    pub(super) fn wait_for(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        self.restamp_future_grants(now);
        let expire_at = self.expire_at(now, rate, permits).saturating_mul(1_000);
        expire_at.saturating_sub(now).max(1)
    }

    /// Gives back a grant if it still counts and nothing of it was released. Returns how many
    /// permits came back.
    pub(super) fn give_back(&mut self, now: u64, rate: &Rate, grant: &Grant) -> u64 {
        let Some(key) = self.find(now, rate, grant) else {
            return 0;
        };
        if has_expired(key.0, now, rate) || self.grants[&key] != grant.permits {
            return 0;
        }
        self.drop_expired(now, rate);
        self.take_out(key, grant.permits)
    }

    fn find(&self, now: u64, rate: &Rate, grant: &Grant) -> Option<(Stamp, GrantId)> {
        let key = (grant.stamp, grant.id);
        if self.grants.contains_key(&key) {
            return Some(key);
        }
        // Its stamp is an earlier one if the clock went back. A stamp of 0 says that no grant is
        // known.
        if grant.stamp == 0 || has_expired(grant.stamp, now, rate) {
            return None;
        }
        let mut keys = self.grants.keys();
        keys.find(|(_, id)| *id == grant.id).copied()
    }

    /// Gives back at most this many permits of this client, those that expire first. Returns how
    /// many came back.
    pub(super) fn release(&mut self, now: u64, rate: &Rate, client: ClientId, permits: u64) -> u64 {
        let until = (stamp(now), GrantId::from([u8::MAX; 16]));
        let (mut from, mut released) = (Bound::Unbounded, 0);
        while released < permits {
            let mut grants = self.grants.range((from, Bound::Included(until)));
            let next = grants.find(|((stamp, id), _)| {
                id.starts_with(&client) && !has_expired(*stamp, now, rate)
            });
            let Some((&key, _)) = next else {
                break;
            };
            released += self.take_out(key, permits - released);
            from = Bound::Excluded(key);
        }
        if released > 0 {
            self.drop_expired(now, rate);
        }
        released
    }

    /// Returns how many permits can be granted now.
    pub(super) fn available(&self, now: u64, rate: &Rate) -> u64 {
        let counting = self.total - self.expired(now, rate);
        rate.permits().saturating_sub(counting)
    }

    /// Returns the time until all grants have expired; zero if there are none.
    pub(super) fn expire_in(&self, now: u64, rate: &Rate) -> Duration {
        let newest = self.grants.last_key_value();
        let expires_at = newest.map_or(0, |((stamp, _), _)| stamp + rate.interval_millis());
        Duration::from_micros(expires_at.saturating_mul(1_000).saturating_sub(now))
    }

    pub(super) fn drop_expired(&mut self, now: u64, rate: &Rate) {
        while let Some(oldest) = self.grants.first_entry()
            && has_expired(oldest.key().0, now, rate)
        {
            self.total -= oldest.remove();
        }
    }

    /// Returns the sum of all permits in `grants` that have expired.
    fn expired(&self, now: u64, rate: &Rate) -> u64 {
        let expired = self.grants.iter();
        let expired = expired.take_while(|((stamp, _), _)| has_expired(*stamp, now, rate));
        expired.map(|(_, permits)| permits).sum()
    }

    fn take_out(&mut self, key: (Stamp, GrantId), permits: u64) -> u64 {
        let Some(held) = self.grants.get_mut(&key) else {
            return 0;
        };
        let taken = permits.min(*held);
        *held -= taken;
        self.total -= taken;
        if *held == 0 {
            self.grants.remove(&key);
        }
        taken
    }

    /// After the clock went back, grants with a stamp in the future count as granted now.
    fn restamp_future_grants(&mut self, now: u64) {
        while let Some(newest) = self.grants.last_entry()
            && newest.key().0 > stamp(now)
        {
            let ((_, id), permits) = newest.remove_entry();
            self.grants.insert((stamp(now), id), permits);
        }
    }

    /// Returns the millisecond at which this many of the permits that count now have expired.
    fn expire_at(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let mut expiring = 0;
        let counting = self.grants.iter();
        let mut counting = counting.skip_while(|((stamp, _), _)| has_expired(*stamp, now, rate));
        let last = counting.find(|(_, permits_of_grant)| {
            expiring += **permits_of_grant;
            expiring >= permits
        });
        last.map_or(stamp(now), |((stamp, _), _)| *stamp) + rate.interval_millis()
    }
}

/// The stamp of what is granted now.
const fn stamp(now: u64) -> Stamp {
    now.div_ceil(1_000)
}

const fn has_expired(stamp: Stamp, now: u64, rate: &Rate) -> bool {
    stamp + rate.interval_millis() <= now / 1_000
}
