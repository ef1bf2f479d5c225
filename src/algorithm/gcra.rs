use super::byte_reader::{ByteReader, ByteWriter, check};
use super::constants::{GCRA_MAX_RANGES, MAX_STORED, TEN_YEARS};
use super::count::CountError;
use super::counter::{Counter, CounterRefund, Level};
use super::counters::Counters;
use super::pace::Pace;
use crate::decision::Decision;
use crate::quota::Quota;

/// The generic cell rate algorithm: smooth, in a few numbers.
///
/// A bucket holds up to [`burst`](Quota::burst) units, each take pours its cost in, and it drains
/// by `max` units per window, evenly. So after a burst units come back one by one, every `window /
/// max`, and not all together.
///
/// **Formula.** A busy time begins at `start`, with the first take that finds the bucket empty.
/// With `units` poured in since then, a take of `cost` at `now` fits if `units + cost - floor((now
/// - start) * max / window) <= burst`. That is the usual comparison of a theoretical arrival time
/// with the clock, `start + (units + cost - burst) * window / max <= now`, kept in whole numbers:
/// nothing is rounded, so nothing drifts, be it a million per second or one per day. Any span `s`
/// admits at most `burst + floor(s * max / window)` units.
///
/// **Memory.** A few numbers for each window. **Cost.** Three divisions.
///
/// **Source.** ITU-T Recommendation I.371, the continuous-state leaky bucket; for HTTP after
/// [Brandur Leach](https://brandur.org/rate-limiting).
///
/// With several quotas each window has a bucket of its own, whatever the max. It drains at the max
/// that charged it last; of several of one take, at the smallest. Instants are microseconds since
/// any epoch. Should the clock go back, buckets stay as full as they were. They drain again once
/// the clock is where it was, or from the next charge on.
///
/// If more than 2^52 units (4.5·10^15) were charged to the key since a take, its refund may give
/// back units of later takes. Only plans that count bytes, at 100 GB a second beside a window of
/// days, get there. Another unit may be given back too much where a key has several quotas and two
/// takes of one microsecond: if the later one is given back after a part of it has drained from one
/// bucket alone, and then the earlier one in the very microsecond in which the max changes.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Quota;
/// use tidegate::algorithm::Gcra;
///
/// // One every second, and up to 3 together.
/// let quotas = [Quota::new(Duration::from_secs(10), 10)?.with_burst(3)?];
/// let mut bucket = Gcra::default();
/// assert!(bucket.take(0, &quotas, 3).is_allowed());
///
/// let denied = bucket.take(0, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
/// assert!(bucket.take(1_000_000, &quotas, 1).is_allowed());
/// assert!(!bucket.take(1_999_999, &quotas, 1).is_allowed());
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gcra(Counters<Bucket>);

impl Gcra {
    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 changes nothing, and fits unless more than a quota's max is used or
    /// that max is 0.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(&mut self, now: u64, quotas: &[Quota], cost: u64) -> Decision {
        self.0.decide(now, quotas, 1, cost)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    quota: Quota,
    pace: Pace,
    /// When the busy time began, moved on by whole paces.
    start: u64,
    /// Units poured in since then.
    units: u64,
    /// Since when it has drained at this pace; 0 if that is as long as it gives takes back.
    paced_since: u64,
}

impl Counter for Bucket {
    /// In Redis, a key of its own has them, which is no larger than the bucket's.
    const MAX_RANGES: usize = GCRA_MAX_RANGES;

    fn new(quota: &Quota, _: u16) -> Self {
        Self {
            quota: *quota,
            pace: Pace::new(quota),
            start: 0,
            units: 0,
            paced_since: 0,
        }
    }

    fn can_serve(&self, quota: &Quota, _: u16) -> bool {
        self.quota.max() == quota.max() && self.quota.window_micros() == quota.window_micros()
    }

    fn serve(&mut self, quota: &Quota, _: u16, now: u64) -> bool {
        if !self.can_serve(quota, 1) {
            *self = self.at_pace_of(quota, now);
        }
        self.quota = *quota;
        false
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn limit(quota: &Quota) -> u64 {
        match quota.max() {
            0 => 0,
            _ => quota.burst(),
        }
    }

    /// While the clock is behind the last charge, nothing drains.
    fn level(&self, now: u64, last_charge: u64) -> Level {
        let busy = now.max(last_charge).saturating_sub(self.start);
        let (drained, paces) = self.pace.drained(busy);
        Level {
            used: self.units.saturating_sub(drained),
            paces,
        }
    }

    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64 {
        let has_to_drain = (self.units + cost).saturating_sub(limit);
        let fits_at = self.start.saturating_add(self.pace.time_for(has_to_drain));
        fits_at.saturating_sub(now)
    }

    fn ends_at(&self) -> u64 {
        self.start.saturating_add(self.pace.time_for(self.units))
    }

    fn charge(&mut self, now: u64, level: Level, units: u64) {
        if level.used == 0 {
            (self.start, self.units) = (now, 0);
        } else {
            self.start += level.paces * self.pace.micros;
            self.units -= level.paces * self.pace.units;
        }
        self.units += units;
    }

    fn restart(&mut self) {
        self.paced_since = 0;
    }

    /// First in, first out: the units of the take that have not begun to drain. If the pace was the
    /// same, those are no fewer than what is left if all that drained since then was the take's.
    fn refund(&mut self, now: u64, refund: &CounterRefund) -> u64 {
        let touched_since = |instant| self.pace.touched(now.saturating_sub(instant));
        let whole = self.units.saturating_sub(touched_since(self.start));
        let paced_for = self.paced_for(refund.last_charge);
        let is_of_pace = refund.stamp.saturating_add(paced_for) > refund.last_charge;
        let least = match paced_for == 0 || is_of_pace {
            true => refund.charged.saturating_sub(touched_since(refund.stamp)),
            false => 0,
        };
        let left = whole.saturating_sub(refund.later).max(least).min(whole);
        let refunded = refund.units.min(left);
        self.units -= refunded;
        refunded
    }

    fn follow_clock_back(&mut self, now: u64, last_charge: u64) {
        let used = self.used(now, last_charge);
        (self.start, self.units) = (now, used);
        // No longer ago than its bytes say.
        self.paced_since = Self::paced_since_of(self.paced_for(last_charge), last_charge).min(now);
    }

    fn write(&self, writer: &mut ByteWriter, last_charge: u64) {
        writer.quota(&self.quota);
        writer.number(self.quota.burst());
        writer.number_near(self.start, last_charge);
        writer.number(self.units);
        writer.number(self.paced_for(last_charge));
    }

    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError> {
        let mut quota = reader.quota()?;
        let burst = reader.number()?;
        if burst != quota.max() {
            let with_burst = quota.with_burst(burst);
            quota = with_burst.map_err(|_| CountError::Impossible("a quota's burst"))?;
        }
        let start = reader.number_near(last_charge)?;
        check(start <= last_charge, "the beginning of a busy time")?;
        // Besides what it holds it says what has drained within a pace.
        let max = MAX_STORED + Quota::MAX_UNITS;
        let units = reader.number_up_to(max, "a bucket's units")?;
        let paced_for = reader.number_up_to(TEN_YEARS, "the time at one pace")?;
        Ok(Self {
            start,
            units,
            paced_since: Self::paced_since_of(paced_for, last_charge),
            ..Self::new(&quota, 1)
        })
    }
}

impl Bucket {
    /// Until the last charge, a microsecond more, and no more than ten years; 0 for all its time.
    fn paced_for(&self, last_charge: u64) -> u64 {
        match self.paced_since {
            0 => 0,
            since => (1 + last_charge.saturating_sub(since)).min(TEN_YEARS),
        }
    }

    /// The opposite: since when it drains at this pace, if it did for so long until the last charge.
    fn paced_since_of(paced_for: u64, last_charge: u64) -> u64 {
        match paced_for {
            0 => 0,
            paced_for => last_charge.saturating_add(1).saturating_sub(paced_for),
        }
    }

    /// The bucket of another max from this instant on: as full, and of the unit that drains as much
    /// has drained, rounded down to a microsecond of the new pace.
    fn at_pace_of(&self, quota: &Quota, now: u64) -> Self {
        let window = u128::from(self.quota.window_micros());
        let busy = u128::from(now.saturating_sub(self.start));
        let part = busy * u128::from(self.quota.max()) % window / u128::from(quota.max().max(1));
        Self {
            start: now.saturating_sub(part as u64),
            units: self.used(now, now),
            paced_since: now,
            ..Self::new(quota, 1)
        }
    }
}
