use super::algorithm::MAX_HELD;
use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;
use super::counter::{Counter, CounterRefund, Level};
use super::counters::Counters;
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
/// **Memory.** A few numbers for each quota. **Cost.** Three divisions.
///
/// **Source.** ITU-T Recommendation I.371, the continuous-state leaky bucket; for HTTP after
/// [Brandur Leach](https://brandur.org/rate-limiting).
///
/// With several quotas each has a bucket of its own. Instants are microseconds since any epoch.
/// Should the clock go back, buckets stay as full as they were. They drain again once the clock is
/// where it was, or from the next charge on.
///
/// If more than 2^52 units (4.5·10^15) were charged to the key since a take, its refund may give
/// back units of later takes. Only plans that count bytes, at 100 GB a second beside a window of
/// days, get there.
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
    /// How long it drains when it is as full as it can be.
    life: u64,
    /// When the busy time began, moved on by whole paces.
    start: u64,
    /// Units poured in since then.
    units: u64,
}

/// The most that a quota's bucket holds. Takes of another quota may cost more: what they pour in
/// beyond is lost.
pub(super) fn capacity(quota: &Quota) -> u64 {
    quota.max().max(quota.burst())
}

impl Counter for Bucket {
    /// In Redis, a key of its own has them, which is no larger than the bucket's.
    const MAX_RANGES: usize = 4;

    fn new(quota: &Quota, _: u16) -> Self {
        let pace = Pace::of(quota);
        Self {
            quota: *quota,
            pace,
            life: pace.life(quota),
            start: 0,
            units: 0,
        }
    }

    fn can_serve(&self, quota: &Quota, _: u16) -> bool {
        self.quota.max() == quota.max()
            && self.quota.window_micros() == quota.window_micros()
            && capacity(&self.quota) == capacity(quota)
    }

    fn serve(&mut self, quota: &Quota) {
        // It drains and holds the same: otherwise it would be another counter.
        self.quota = *quota;
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn variant(&self) -> u64 {
        capacity(&self.quota)
    }

    fn limit(quota: &Quota) -> u64 {
        match quota.max() {
            0 => 0,
            _ => quota.burst(),
        }
    }

    fn life(&self) -> u64 {
        self.life
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

    /// A unit that has drained here does not drain again there.
    fn carried_over(&self, now: u64, last_charge: u64, _: &Quota) -> u64 {
        match self.used(now, last_charge) {
            0 => 0,
            _ => self.used(last_charge, last_charge),
        }
    }

    fn may_lose(&self, held: u64) -> bool {
        held >= capacity(&self.quota) / 2
    }

    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64 {
        let has_to_drain = (self.units + cost).saturating_sub(limit);
        let fits_at = self.start.saturating_add(self.pace.time_for(has_to_drain));
        fits_at.saturating_sub(now)
    }

    fn ends_at(&self) -> u64 {
        self.start.saturating_add(self.pace.time_for(self.units))
    }

    fn charge(&mut self, now: u64, level: Level, units: u64) -> u64 {
        self.drain(now, level);
        let (capacity, used) = (capacity(&self.quota), level.used);
        let room = capacity.saturating_sub(used);
        if units > room && used <= capacity {
            // It is full to the brim, not to the last unit that fits wholly.
            (self.start, self.units) = (now, capacity);
            return units - room;
        }
        self.units += units.min(room);
        units.saturating_sub(room)
    }

    fn owe(&mut self, now: u64, level: Level, units: u64) -> u64 {
        self.drain(now, level);
        self.units += units;
        0
    }

    /// First in, first out: the units of the take that have not begun to drain. Those are no fewer
    /// than what is left if all that drained since then was the take's.
    fn refund(&mut self, now: u64, refund: &CounterRefund) -> u64 {
        let touched_since = |instant| self.pace.touched(now.saturating_sub(instant));
        let whole = self.units.saturating_sub(touched_since(self.start));
        let left = whole.saturating_sub(refund.later);
        let least = refund.charged.saturating_sub(touched_since(refund.stamp));
        let refunded = refund.units.min(left.max(least)).min(whole);
        self.units -= refunded;
        refunded
    }

    fn follow_clock_back(&mut self, now: u64, last_charge: u64) {
        let used = self.used(now, last_charge);
        (self.start, self.units) = (now, used);
    }

    fn write(&self, writer: &mut ByteWriter, last_charge: u64) {
        writer.quota(&self.quota);
        writer.number(self.quota.burst());
        writer.number_near(self.start, last_charge);
        writer.number(self.units);
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
        let most = MAX_HELD + Quota::MAX_UNITS;
        let units = reader.number_up_to(most, "a bucket's units")?;
        let empty = Self::new(&quota, 1);
        Ok(Self {
            start,
            units,
            ..empty
        })
    }
}

impl Bucket {
    /// Forgets what has drained until an instant of this level.
    fn drain(&mut self, now: u64, level: Level) {
        if level.used == 0 {
            (self.start, self.units) = (now, 0);
        } else {
            self.start += level.paces * self.pace.micros;
            self.units -= level.paces * self.pace.units;
        }
    }
}

/// The rate of a bucket: `units` drain in every `micros`. These are a quota's max and window
/// without their common factors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) units: u64,
    pub(super) micros: u64,
}

impl Pace {
    /// A quota without units is never charged, so its pace does not matter.
    pub(super) fn of(quota: &Quota) -> Self {
        let (max, window) = (quota.max().max(1), quota.window_micros());
        let common = greatest_common_divisor(max, window);
        Self {
            units: max / common,
            micros: window / common,
        }
    }

    /// How long the fullest bucket of this quota drains, in microseconds.
    pub(super) fn life(self, quota: &Quota) -> u64 {
        self.time_for(capacity(quota))
    }

    /// Units of which at least a part drains in this time.
    pub(super) fn touched(self, micros: u64) -> u64 {
        let (whole, part) = whole_and_part(micros, self.micros);
        let (part, more) = fraction(part, self.units, self.micros);
        let whole = whole.saturating_mul(self.units);
        whole.saturating_add(part).saturating_add(more)
    }

    /// Units that drain in this time, rounded down, and how many whole paces it has.
    pub(super) fn drained(self, micros: u64) -> (u64, u64) {
        let (paces, part) = whole_and_part(micros, self.micros);
        let (part, _) = fraction(part, self.units, self.micros);
        let drained = paces.saturating_mul(self.units).saturating_add(part);
        (drained, paces)
    }

    /// Microseconds in which `units` drain, rounded up.
    pub(super) fn time_for(self, units: u64) -> u64 {
        let (whole, part) = whole_and_part(units, self.units);
        let (part, more) = fraction(part, self.micros, self.units);
        let whole = whole.saturating_mul(self.micros);
        whole.saturating_add(part).saturating_add(more)
    }
}

/// Quotient and remainder, without a division where none is needed: most paces are one unit in some
/// number of microseconds.
fn whole_and_part(number: u64, of: u64) -> (u64, u64) {
    match of {
        1 => (number, 0),
        _ if number < of => (0, number),
        _ => (number / of, number % of),
    }
}

/// `part * number / of` for a part smaller than `of`: the quotient rounded down, and 1 if that is
/// less than the exact one.
fn fraction(part: u64, number: u64, of: u64) -> (u64, u64) {
    if part == 0 {
        return (0, 0);
    }
    if let Some(product) = part.checked_mul(number) {
        return (product / of, u64::from(!product.is_multiple_of(of)));
    }
    let product = u128::from(part) * u128::from(number);
    let of = u128::from(of);
    let quotient = u64::try_from(product / of).expect("smaller than `number`");
    (quotient, u64::from(!product.is_multiple_of(of)))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
