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
        let lacking = self.lacking(now, rate, permits);
        if lacking == 0 {
            let at = now.div_ceil(1_000);
            self.add(at, permits, now, rate);
            return Ok(Place { at, wait: 0 });
        }
        self.settle(now, rate);
        Err(self.leaves_at(now, rate, lacking).saturating_mul(1_000) - now)
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
        self.settle(now, rate);
        let soonest = now.div_ceil(1_000);
        let mut at = soonest.max(self.grants.back().map_or(0, |newest| newest.at));
        let lacking = self.lacking(now, rate, permits);
        if lacking > 0 {
            at = at.max(self.leaves_at(now, rate, lacking));
        }
        let wait = match at > soonest {
            true => at.saturating_mul(1_000) - now,
            false => 0,
        };
        if wait > most {
            return Err(wait);
        }
        self.add(at, permits, now, rate);
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
        let (gone, _) = self.leaving(now, rate);
        let is_usable = |grant: &Granted| grant.at <= now.div_ceil(1_000);
        let mut released = 0;
        while released < permits && self.grants.get(gone).is_some_and(is_usable) {
            released += self.take_out(gone, permits - released);
        }
        if released > 0 {
            self.forget(now, rate);
        }
        released
    }

    pub(super) fn available(&self, now: u64, rate: &Rate) -> u64 {
        let (_, gone) = self.leaving(now, rate);
        rate.permits().saturating_sub(self.granted - gone)
    }

    /// Until all of it has left.
    pub(super) fn matters_for(&self, now: u64, rate: &Rate) -> Duration {
        let newest = self.grants.back().map_or(0, |grant| grant.at);
        let leaves_at = (newest + rate.interval_millis()).saturating_mul(1_000);
        Duration::from_micros(leaves_at.saturating_sub(now))
    }

    /// How many permits too few there are for so many.
    fn lacking(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let (_, gone) = self.leaving(now, rate);
        (self.granted - gone + permits).saturating_sub(rate.permits())
    }

    /// The number of grants that count no longer, and their permits. They are kept until something is granted or given
    /// back: whoever is denied leaves no trace, also if the clock goes back then.
    fn leaving(&self, now: u64, rate: &Rate) -> (usize, u64) {
        let has_left = |grant: &&Granted| grant.at + rate.interval_millis() <= now / 1_000;
        let gone = self.grants.iter().take_while(has_left);
        gone.fold((0, 0), |(number, permits), grant| {
            (number + 1, permits + grant.permits)
        })
    }

    /// Drops what counts no longer.
    pub(super) fn forget(&mut self, now: u64, rate: &Rate) {
        let (number, permits) = self.leaving(now, rate);
        self.grants.drain(..number);
        self.granted -= permits;
    }

    fn add(&mut self, at: u64, permits: u64, asked: u64, rate: &Rate) {
        self.forget(asked, rate);
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

    /// After the clock went back: what is granted in the future, and not reserved for then, is granted now.
    fn settle(&mut self, now: u64, rate: &Rate) {
        let soonest = now.div_ceil(1_000);
        let from = self.grants.partition_point(|grant| grant.at <= soonest);
        let ends = [self.grants.get(from), self.grants.back()];
        if !ends.into_iter().flatten().any(|grant| grant.is_ahead(now)) {
            return;
        }
        let future = self.grants.split_off(from);
        let (ahead, reserved): (VecDeque<_>, VecDeque<_>) =
            future.into_iter().partition(|grant| grant.is_ahead(now));
        self.grants.extend(reserved);
        let permits = ahead.iter().map(|grant| grant.permits).sum();
        self.granted -= permits;
        self.add(soonest, permits, now, rate);
    }

    /// The millisecond at which so many permits have left that count now, or all.
    fn leaves_at(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let (gone, _) = self.leaving(now, rate);
        let mut left = 0;
        let mut counting = self.grants.iter().skip(gone).skip_while(|grant| {
            left += grant.permits;
            left < permits
        });
        let last = counting.next().or(self.grants.back());
        last.map_or(0, |grant| grant.at) + rate.interval_millis()
    }
}

impl Granted {
    /// Whether it is in the future and was not reserved for then: the clock went back.
    fn is_ahead(&self, now: u64) -> bool {
        self.at > now.div_ceil(1_000) && self.asked > now
    }
}
