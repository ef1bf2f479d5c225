use std::collections::VecDeque;
use std::time::Duration;

use super::Rate;

/// What a limiter has granted and not got back: a pure function of that, an instant and a rate.
///
/// Instants are microseconds since any epoch; a grant is stamped with the millisecond that ends next, and counts for an
/// interval from there.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// The earliest first; those of one millisecond are one.
    grants: VecDeque<Granted>,
    /// The sum of them.
    granted: u64,
}

#[derive(Debug)]
struct Granted {
    at: u64,
    permits: u64,
    /// When the latest of them was asked for.
    asked: u64,
}

/// When granted permits may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The millisecond.
    pub(super) at: u64,
    /// The microseconds until then.
    pub(super) wait: u64,
}

impl Permits {
    /// Grants permits, or tells the microseconds until they can be.
    pub(super) fn acquire(&mut self, now: u64, rate: &Rate, permits: u64) -> Result<Place, u64> {
        self.forget(now, rate);
        let at = now.div_ceil(1_000);
        if self.granted + permits <= rate.permits() {
            self.add(at, permits, now);
            return Ok(Place { at, wait: 0 });
        }
        self.settle(now);
        let lacking = self.granted + permits - rate.permits();
        Err(self.leaves_at(lacking, rate).saturating_mul(1_000) - now)
    }

    /// Grants permits for as soon as they are free, behind all that were granted before; or tells that it would take
    /// longer than `most` microseconds, and how long.
    pub(super) fn reserve(
        &mut self,
        now: u64,
        rate: &Rate,
        permits: u64,
        most: u64,
    ) -> Result<Place, u64> {
        self.forget(now, rate);
        self.settle(now);
        let soonest = now.div_ceil(1_000);
        let mut at = soonest.max(self.grants.back().map_or(0, |newest| newest.at));
        let lacking = (self.granted + permits).saturating_sub(rate.permits());
        if lacking > 0 {
            at = at.max(self.leaves_at(lacking, rate));
        }
        let wait = match at > soonest {
            true => at.saturating_mul(1_000) - now,
            false => 0,
        };
        if wait > most {
            return Err(wait);
        }
        self.add(at, permits, now);
        Ok(Place { at, wait })
    }

    /// Gives a grant back that nobody has used.
    pub(super) fn cancel(&mut self, place: Place, permits: u64) {
        let found = self
            .grants
            .binary_search_by_key(&place.at, |grant| grant.at);
        if let Ok(at) = found {
            self.take_out(at, permits);
        }
    }

    /// Gives back permits that would come back soonest, and tells how many.
    pub(super) fn release(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        self.forget(now, rate);
        let mut released = 0;
        while released < permits
            && self
                .grants
                .front()
                .is_some_and(|grant| grant.at <= now.div_ceil(1_000))
        {
            released += self.take_out(0, permits - released);
        }
        released
    }

    pub(super) fn available(&self, now: u64, rate: &Rate) -> u64 {
        let counts = |grant: &&Granted| !has_left(grant, now, rate);
        let granted: u64 = self
            .grants
            .iter()
            .filter(counts)
            .map(|grant| grant.permits)
            .sum();
        rate.permits().saturating_sub(granted)
    }

    /// Until all of it has left.
    pub(super) fn matters_for(&self, now: u64, rate: &Rate) -> Duration {
        let newest = self.grants.back().map_or(0, |grant| grant.at);
        let leaves_at = (newest + rate.interval_millis()).saturating_mul(1_000);
        Duration::from_micros(leaves_at.saturating_sub(now))
    }

    fn add(&mut self, at: u64, permits: u64, asked: u64) {
        self.granted += permits;
        let place = self.grants.partition_point(|grant| grant.at < at);
        match self.grants.get_mut(place) {
            Some(grant) if grant.at == at => {
                grant.permits += permits;
                grant.asked = asked;
            }
            _ => self.grants.insert(place, Granted { at, permits, asked }),
        }
    }

    fn take_out(&mut self, place: usize, permits: u64) -> u64 {
        let grant = &mut self.grants[place];
        let taken = permits.min(grant.permits);
        grant.permits -= taken;
        self.granted -= taken;
        if grant.permits == 0 {
            self.grants.remove(place);
        }
        taken
    }

    fn forget(&mut self, now: u64, rate: &Rate) {
        while self
            .grants
            .front()
            .is_some_and(|grant| has_left(grant, now, rate))
        {
            self.granted -= self.grants.pop_front().map_or(0, |grant| grant.permits);
        }
    }

    /// After the clock went back: what is granted in the future, and was not reserved for then, is granted now.
    fn settle(&mut self, now: u64) {
        let soonest = now.div_ceil(1_000);
        let is_wrong = |grant: &Granted| grant.at > soonest && grant.asked > now;
        if !self.grants.back().is_some_and(is_wrong) {
            return;
        }
        let from = self.grants.partition_point(|grant| grant.at <= soonest);
        let permits = self.grants.drain(from..).map(|grant| grant.permits).sum();
        self.granted -= permits;
        self.add(soonest, permits, now);
    }

    /// The millisecond at which so many permits have left, or all.
    fn leaves_at(&self, permits: u64, rate: &Rate) -> u64 {
        let mut left = 0;
        let mut leaving = self.grants.iter().skip_while(|grant| {
            left += grant.permits;
            left < permits
        });
        let last = leaving.next().or(self.grants.back());
        last.map_or(0, |grant| grant.at) + rate.interval_millis()
    }
}

fn has_left(grant: &Granted, now: u64, rate: &Rate) -> bool {
    grant.at + rate.interval_millis() <= now / 1_000
}
