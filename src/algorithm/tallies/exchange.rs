//! What tallies hand over to another algorithm, take over from one, and give back.

use smallvec::SmallVec;

use super::{Kept, Tallies};
use crate::algorithm::carried::{Carried, Exchange};
use crate::algorithm::entries::MODULUS_MASK;
use crate::algorithm::refunds::GivenBack;
use crate::algorithm::tally::{Tally, TallyRefund};
use crate::decision::Token;
use crate::quota::Quota;

impl<T: Tally> Exchange for Tallies<T> {
    fn newest(&self) -> u64 {
        self.newest
    }

    fn longest_life(&self) -> u64 {
        let lives = self.kept.iter().map(|kept| kept.tally.life());
        lives.max().unwrap_or(0)
    }

    fn hand_over(&self, now: u64) -> Carried {
        let mut tallies = self.clone();
        tallies.follow_clock_back(now);
        let begun = match tallies.kept.is_empty() {
            true => 0,
            false => tallies.newest.saturating_add(1),
        };
        let needed = tallies.kept.iter().filter(|kept| kept.until > now);
        let newest = tallies.newest;
        let used = |kept: &Kept<T>| (kept.tally.window_quota(), kept.tally.counts(now, newest));
        Carried {
            newest: tallies.newest,
            serial: tallies.serial,
            begun: tallies.latest_begun().max(begun),
            quotas: needed.map(used).collect(),
        }
    }

    /// Under each quota counts what counts under the fullest: what is known of the others may have been
    /// forgotten by an algorithm that does not look back as far.
    fn take_over(mut carried: Carried, sub_windows: u64) -> Self {
        let Carried { newest, begun, .. } = carried;
        let fullest = carried.fullest();
        let order = |(quota, used): &(Quota, u64)| (*used, quota.max());
        carried
            .quotas
            .sort_by_key(|carried| std::cmp::Reverse(order(carried)));
        let mut kept = SmallVec::<[Kept<T>; 1]>::new();
        for (quota, _) in &carried.quotas {
            if !kept.iter().any(|kept| kept.tally.is_of(quota, sub_windows)) {
                let tally = T::taken_over(quota, sub_windows, newest, fullest);
                let until = newest.saturating_add(tally.life());
                kept.push(Kept {
                    tally,
                    until,
                    begun,
                });
            }
        }
        Self {
            kept,
            serial: carried.serial,
            newest,
        }
    }

    /// Not before the millisecond of the last charge is over, whatever was given back of it or has drained:
    /// until then a log that begins here would not know that charge from its own.
    fn forgotten_at(&self) -> u64 {
        let next = (self.newest / 1_000 + 1).saturating_mul(1_000);
        let ends = self.kept.iter().map(Kept::ends).max();
        ends.map_or(0, |ends| ends.max(next))
    }

    fn refund(&mut self, now: u64, token: &Token, units: u64, given_back: &GivenBack<'_>) -> u64 {
        if self.newest > now || self.is_forgotten(now) {
            return 0;
        }
        let charged_since = |serial: u64| self.serial.wrapping_sub(serial) & MODULUS_MASK;
        let later = charged_since(token.serial());
        let refund = TallyRefund {
            stamp: token.stamp(),
            units,
            later: later.saturating_sub(given_back(&|serial| charged_since(serial) < later)),
        };
        let knowing = self.kept.iter_mut();
        let knowing = knowing.filter(|kept| kept.begun <= token.stamp());
        let refunds = knowing.map(|kept| kept.tally.refund(now, &refund));
        refunds.max().unwrap_or(0)
    }
}
