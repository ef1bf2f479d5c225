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
}

impl Permits {
    /// Grants permits and returns the millisecond of that, or the microseconds until it can.
    pub(super) fn acquire(&mut self, now: u64, rate: &Rate, permits: u64) -> Result<u64, u64> {
        let lacking = self.lacking(now, rate, permits);
        if lacking == 0 {
            let at = now.div_ceil(1_000);
            self.add(at, permits, now, rate);
            return Ok(at);
        }
        Err(self.wait(now, rate, lacking))
    }

    /// The microseconds until so many more permits have left, at least 1.
    pub(super) fn wait(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        self.settle(now, rate);
        let leaves_at = self.leaves_at(now, rate, permits).saturating_mul(1_000);
        leaves_at.saturating_sub(now).max(1)
    }

    /// Gives back what was granted at this millisecond, if it counts still, and tells how much.
    pub(super) fn give_back(&mut self, now: u64, rate: &Rate, at: u64, permits: u64) -> u64 {
        let found = self.grants.binary_search_by_key(&at, |grant| grant.at);
        match found {
            Ok(place) if at + rate.interval_millis() > now / 1_000 => self.take_out(place, permits),
            _ => 0,
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
    pub(super) fn lacking(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
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

    fn add(&mut self, at: u64, permits: u64, now: u64, rate: &Rate) {
        self.forget(now, rate);
        self.granted += permits;
        let place = self.grants.partition_point(|grant| grant.at < at);
        match self.grants.get_mut(place) {
            Some(grant) if grant.at == at => grant.permits += permits,
            _ => self.grants.insert(place, Granted { at, permits }),
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

    /// After the clock went back: what is granted in the future counts as granted now.
    fn settle(&mut self, now: u64, rate: &Rate) {
        let soonest = now.div_ceil(1_000);
        let from = self.grants.partition_point(|grant| grant.at <= soonest);
        let ahead = self.grants.split_off(from);
        if !ahead.is_empty() {
            let permits = ahead.iter().map(|grant| grant.permits).sum();
            self.granted -= permits;
            self.add(soonest, permits, now, rate);
        }
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
