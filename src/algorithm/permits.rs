//! The requests in progress of a key: the same as `lua/include/permits.lua`.

use std::time::Duration;

use super::core::{Asked, CountState, Now};
use super::spec::Permits;
use crate::decision::{Decision, Receipt, Source};

/// The holders of a key's permits: the number of each, and the millisecond at which its lease ends.
#[derive(Debug, Default)]
pub(crate) struct PermitHolders(Vec<(u64, u64)>);

impl PermitHolders {
    fn add(&mut self, now: Now, lease: Duration, holder: u64) {
        let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let until = (now.micros / 1_000 + 1).saturating_add(lease);
        self.0.push((holder, until));
    }

    /// Keeps a permit for another lease, also one that is not there.
    pub(crate) fn renew(&mut self, now: Now, lease: Duration, holder: u64) {
        self.0.retain(|it| it.0 != holder);
        self.add(now, lease, holder);
    }

    fn held(&self) -> u64 {
        self.0.len() as u64
    }
}

impl CountState for PermitHolders {
    type Spec = Permits;

    fn fits(&mut self, of: &Permits, now: Now, cost: u64) -> bool {
        // Permits of takes whose answers no process has read are dropped.
        self.0.retain(|(_, until)| *until > now.micros / 1_000);
        of.is_unlimited || of.max().saturating_sub(self.held()) >= cost
    }

    fn answer(&mut self, of: &Permits, now: Now, cost: u64, asked: &Asked<'_>) -> Decision {
        let fits = of.is_unlimited || self.held() < of.max();
        let holder = (cost > 0 && fits).then(|| {
            self.add(now, of.lease, asked.holder);
            Receipt::new(0, asked.holder, 1)
        });
        of.decision(asked.cost == 0, Source::Local, self.held(), holder)
    }

    fn owe(&mut self, _: &Permits, _: Now, _: &Receipt, _: u64) -> u64 {
        0
    }

    fn refund(&mut self, _: &Permits, _: Now, holder: &Receipt, _: u64) -> u64 {
        let mut holders = self.0.iter();
        let place = holders.position(|it| it.0 == holder.serial());
        u64::from(place.map(|place| self.0.swap_remove(place)).is_some())
    }

    /// Their requests run.
    fn reset(&mut self, _: Now) -> bool {
        false
    }

    fn needed_for(&self, now: Now) -> u64 {
        let last = self.0.iter().map(|(_, until)| *until).max();
        last.unwrap_or(0)
            .saturating_mul(1_000)
            .saturating_sub(now.micros)
    }
}
