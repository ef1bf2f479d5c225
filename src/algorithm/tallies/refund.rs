//! What tallies give back.

use super::Tallies;
use crate::algorithm::entries::MODULUS_MASK;
use crate::algorithm::refunds::GivenBack;
use crate::algorithm::tally::{Tally, TallyRefund};
use crate::decision::Receipt;

impl<T: Tally> Tallies<T> {
    /// How long a charge counts at most, in microseconds.
    pub(in crate::algorithm) fn longest_life(&self) -> u64 {
        let lives = self.kept.iter().map(|kept| kept.tally.life());
        lives.max().unwrap_or(0)
    }

    /// The instant from which on nothing counts.
    pub(in crate::algorithm) fn forgotten_at(&self) -> u64 {
        let ends = self.kept.iter().map(super::Kept::ends);
        ends.max().unwrap_or(0)
    }

    /// Gives back up to so many units of that take, and tells how many.
    pub(in crate::algorithm) fn refund(
        &mut self,
        now: u64,
        receipt: &Receipt,
        units: u64,
        given_back: &GivenBack<'_>,
    ) -> u64 {
        if self.newest > now || self.is_forgotten(now) {
            return 0;
        }
        let charged_since = |serial: u64| self.serial.wrapping_sub(serial) & MODULUS_MASK;
        let later = charged_since(receipt.serial());
        let refund = TallyRefund {
            stamp: receipt.stamp(),
            units,
            later: later.saturating_sub(given_back(&|serial| charged_since(serial) < later)),
        };
        let knowing = self.kept.iter_mut();
        let knowing = knowing.filter(|kept| kept.begun <= receipt.stamp());
        let refunds = knowing.map(|kept| kept.tally.refund(now, &refund));
        refunds.max().unwrap_or(0)
    }
}
