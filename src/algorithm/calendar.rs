//! Counts of a period of the calendar.

use super::Algorithm;
use super::core::{Asked, CountState, Now};
use super::period::Period;
use super::quota_use::{QuotaUse, verdict};
use super::share::Share;
use super::spec::Windows;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::quota::Quota;

/// The units that were charged since a day, a week or a month began.
#[derive(Debug, Clone)]
pub(crate) struct Calendar {
    pub(crate) period: Period,
    /// Its window is the longest of such periods.
    pub(crate) quotas: [Quota; 1],
    pub(crate) owe_at_most: Option<u64>,
}

/// The count under a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CalendarCount {
    /// When its period ends. Neither a step of the clock nor another time zone changes it.
    pub(crate) end: u64,
    /// When it began to count, so that receipts from before a reset are known.
    pub(crate) since: u64,
    pub(crate) used: u64,
}

const HOUR: u64 = 3_600_000_000;

impl Calendar {
    pub(crate) const fn max(&self) -> u64 {
        self.quotas[0].max()
    }

    /// The highest number of used units that a key may have, with those that it owes.
    pub(crate) fn limit_with_debt(&self) -> u64 {
        Algorithm::SlidingLog.limit_with_debt(&self.quotas[0], self.owe_at_most)
    }

    /// The longest time for which a charge counts, with a change of clocks.
    pub(crate) const fn life(&self) -> u64 {
        self.period.usual_micros() + 24 * HOUR
    }

    /// What a fallback admits of it: an hour's part of the share at once, and what comes evenly, or
    /// one request of this cost where nothing else counts. It may owe what the share may.
    pub(crate) fn part_for(&self, share: Share, cost: u64) -> Windows {
        let all = self.whole_for(share);
        let hours = u32::try_from(self.period.usual_micros() / HOUR).expect("a month at most");
        let most = all.quotas[0].max();
        let burst = if cost <= most { cost } else { 1 }.max(most / u64::from(hours));
        let window = all.quotas[0].window_micros();
        let quotas = [Quota::from_parts(most, window, burst.max(1))];
        Windows::new(Algorithm::Gcra.into(), quotas.into(), all.owe_at_most)
    }

    /// The share of it in the longest such period.
    pub(crate) fn whole_for(&self, share: Share) -> Windows {
        let max = share.at_least_one_of(self.max());
        let all = Quota::from_micros(max, self.period.usual_micros());
        let owed = share.times(self.owe_at_most.unwrap_or(self.max()));
        Windows::new(Algorithm::SlidingWindow.into(), [all].into(), Some(owed))
    }

    /// The decision about a take, when so many units are used with it, of a period that ends in
    /// `ends_in` microseconds.
    pub(crate) fn decision(
        &self,
        verdict: Verdict,
        source: Source,
        (cost, used, ends_in): (u64, u64, u64),
        receipt: Option<Receipt>,
    ) -> Decision {
        let (max, is_whole) = (self.max(), used == 0 || self.max() == 0);
        let reset_after = if is_whole { 0 } else { ends_in };
        let state = QuotaState::from_micros(max.saturating_sub(used), reset_after);
        Decision::from_state(verdict, source, cost, state.with_max(max), receipt)
    }
}

impl CalendarCount {
    /// For how long it is kept behind its end, in microseconds: where a clock is put back until
    /// then, it counts on.
    const KEPT_BEHIND: u64 = 48 * HOUR;

    /// The count at this instant: this one, or an empty one of a new period with this end.
    pub(crate) fn at(self, now: u64, end: impl FnOnce() -> u64) -> Self {
        if self.end > now {
            return self;
        }
        Self {
            end: end(),
            since: self.since.max(now),
            used: 0,
        }
    }

    fn uses(self, of: &Calendar) -> QuotaUse {
        let (limit, used) = (of.max(), self.used);
        QuotaUse { limit, used }
    }
}

impl CountState for CalendarCount {
    type Spec = Calendar;

    fn fits(&mut self, of: &Calendar, now: Now, cost: u64) -> bool {
        self.at(now.wall, || 0).uses(of).fits(cost)
    }

    fn answer(&mut self, of: &Calendar, now: Now, cost: u64, _: &Asked<'_>) -> Decision {
        let mut count = self.at(now.wall, || of.period.at(now.wall).end);
        let ends_in = count.end.saturating_sub(now.wall);
        let verdict = verdict(cost, &[count.uses(of)], |_| ends_in);
        let receipt = (verdict == Verdict::Allowed).then(|| {
            count.used += cost;
            if cost > 0 {
                *self = count;
            }
            Receipt::new(count.end, count.since, cost)
        });
        let used = count.uses(of).used;
        of.decision(verdict, Source::Local, (cost, used, ends_in), receipt)
    }

    /// It does so if the units of the receipt count in this period.
    fn owe(&mut self, of: &Calendar, now: Now, receipt: &Receipt, units: u64) -> u64 {
        let mut count = self.at(now.wall, || receipt.stamp());
        let is_its = count.end == receipt.stamp() && count.end > now.wall;
        let units = units.min(of.limit_with_debt().saturating_sub(count.uses(of).used));
        let charged = if is_its { units } else { 0 };
        if charged > 0 {
            count.used += charged;
            *self = count;
        }
        charged
    }

    fn refund(&mut self, _: &Calendar, now: Now, receipt: &Receipt, units: u64) -> u64 {
        let is_its = [self.end, self.since] == [receipt.stamp(), receipt.serial()];
        if !is_its || self.end <= now.wall {
            return 0;
        }
        let given_back = units.min(receipt.units()).min(self.used);
        self.used -= given_back;
        given_back
    }

    fn reset(&mut self, now: Now) -> bool {
        let has_counted = self.used > 0 && self.end > now.wall;
        // Receipts of takes until now are not its own any more.
        *self = Self {
            end: 0,
            since: now.wall + 1,
            used: 0,
        };
        has_counted
    }

    fn needed_for(&self, now: Now) -> u64 {
        match self.end.max(self.since) {
            0 => 0,
            last => (last.saturating_add(Self::KEPT_BEHIND)).saturating_sub(now.wall),
        }
    }
}
