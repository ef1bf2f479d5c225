use std::collections::VecDeque;
use std::time::Duration;

use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::quota::{MAX_QUOTAS, Quota};

/// Totals run modulo 2^52, so that the Lua twin's doubles hold them, and any sum of two, exactly.
const MODULUS_MASK: u64 = (1 << 52) - 1;

/// The millisecond, in the clock's unit: takes within the same one share an entry.
const MILLISECOND: u64 = 1_000;

/// The sliding log: exact, for any mix of quotas and costs.
///
/// It is the well-known list of the instants of all admitted takes, with three changes that keep
/// it small and quick:
///
/// - takes of the same millisecond share an entry, which carries the instant of the last of them;
/// - an entry carries the running total of all costs, so that the sum inside any window is one
///   subtraction, and all quotas of a rule look at one log;
/// - entries that have left the longest window are dropped only when the log is full, which is at
///   the smaller of that quota's max and its window in milliseconds.
///
/// A take is counted from its instant `t` until `t + window`, or up to a millisecond longer where it
/// shares an entry; never shorter. Any window `(t - window, t]` therefore holds at most `max` units.
///
/// Memory: 16 bytes for an entry. Time: a binary search over the entries for each quota.
///
/// The quotas may change from take to take: another rule, another deployment, another route that shares
/// the count. What was charged under a longer window is kept for as long as that window needs it,
/// though no more of it than the larger quota could have used; so going from a day to a second and
/// back refills nothing. Windows that are made longer find what still counted before.
///
/// Should the clock go back, what was admitted in its future counts as admitted now.
///
/// Instants are microseconds since any epoch.
#[derive(Debug, Clone, Default)]
pub struct SlidingLog {
    entries: VecDeque<Entry>,
    /// The running total before the oldest entry.
    floor: u64,
    /// What the quotas of the last charge need.
    horizon: Horizon,
    /// What longer windows of earlier charges need, and until when.
    long: Option<(Horizon, u64)>,
}

/// How far back a log has to go: entries inside of the window, of which the newest units suffice.
#[derive(Debug, Clone, Copy, Default)]
struct Horizon {
    window: u64,
    units: u64,
}

impl Horizon {
    fn of(quotas: &[Quota]) -> Self {
        Self {
            window: quotas.iter().map(Quota::window_micros).max().unwrap_or(0),
            units: quotas.iter().map(Quota::max).max().unwrap_or(0),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            window: self.window.max(other.window),
            units: self.units.max(other.units),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    stamp: u64,
    /// The running total with this entry.
    total: u64,
}

impl SlidingLog {
    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 only looks, and is always allowed.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(&mut self, now: u64, quotas: &[Quota], cost: u64) -> Decision {
        let quotas = &quotas[..quotas.len().min(MAX_QUOTAS)];
        self.follow_clock_back(now);

        let mut used = [0; MAX_QUOTAS];
        for (used, quota) in used.iter_mut().zip(quotas) {
            *used = self.used(now, quota);
        }

        let verdict = self.verdict(now, quotas, &used, cost);
        if verdict == Verdict::Allowed && cost > 0 {
            self.charge(now, quotas, cost);
            used.iter_mut().for_each(|used| *used += cost);
        }

        let newest = self.newest().unwrap_or(now);
        let states = quotas.iter().zip(used).map(|(quota, used)| {
            let reset = match used {
                0 => 0,
                _ => leaves(newest, quota) - now,
            };
            QuotaState::new(
                quota.max().saturating_sub(used),
                Duration::from_micros(reset),
            )
        });
        Decision::new(verdict, Source::Memory, states)
    }

    /// The instant from which on this log counts for nothing and may be dropped.
    #[must_use]
    pub fn forgotten_at(&self) -> u64 {
        let long = self.long.map_or(0, |(_, until)| until);
        self.newest().map_or(0, |newest| {
            newest.saturating_add(self.horizon.window).max(long)
        })
    }

    fn verdict(&self, now: u64, quotas: &[Quota], used: &[u64], cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::Allowed;
        }
        if quotas.iter().any(|quota| cost > quota.max()) {
            return Verdict::Never;
        }
        let waits = quotas
            .iter()
            .zip(used)
            .filter(|(quota, used)| **used + cost > quota.max())
            .map(|(quota, _)| self.wait(now, quota, cost));
        waits
            .max()
            .map_or(Verdict::Allowed, |wait| Verdict::Denied {
                retry_after: Duration::from_micros(wait),
            })
    }

    /// Units inside the quota's window.
    fn used(&self, now: u64, quota: &Quota) -> u64 {
        if self.is_forgotten(now) {
            return 0;
        }
        self.total().wrapping_sub(self.base_of_window(now, quota)) & MODULUS_MASK
    }

    /// The running total before the oldest entry inside the quota's window.
    fn base_of_window(&self, now: u64, quota: &Quota) -> u64 {
        match self.outside(now, quota) {
            0 => self.floor,
            outside => self.entries[outside - 1].total,
        }
    }

    /// How many of the oldest entries have left the quota's window.
    fn outside(&self, now: u64, quota: &Quota) -> usize {
        let has_left = |entry: &Entry| leaves(entry.stamp, quota) <= now;
        match self.entries.front() {
            Some(oldest) if has_left(oldest) => self.entries.partition_point(has_left),
            _ => 0,
        }
    }

    /// Microseconds until enough entries have left the window of a quota that is used up.
    fn wait(&self, now: u64, quota: &Quota, cost: u64) -> u64 {
        let total = self.total();
        let too_few = self.entries.partition_point(|entry| {
            (total.wrapping_sub(entry.total) & MODULUS_MASK) + cost > quota.max()
        });
        let last_to_leave = self.entries.get(too_few).or(self.entries.back());
        last_to_leave.map_or(0, |entry| leaves(entry.stamp, quota).saturating_sub(now))
    }

    fn charge(&mut self, now: u64, quotas: &[Quota], cost: u64) {
        if self.is_forgotten(now) {
            *self = Self::default();
        }
        let horizon = Horizon::of(quotas);
        self.long = self.long_after(now, horizon.window);
        self.horizon = horizon;

        let total = self.total().wrapping_add(cost) & MODULUS_MASK;
        let entry = Entry { stamp: now, total };
        match self.entries.back_mut() {
            Some(newest) if newest.stamp / MILLISECOND == now / MILLISECOND => *newest = entry,
            _ => self.entries.push_back(entry),
        }
        if let Some(longest) = longest(quotas) {
            self.drop_outside_if_full(now, longest);
        }
    }

    /// What windows longer than this one still need.
    fn long_after(&self, now: u64, window: u64) -> Option<(Horizon, u64)> {
        if self.long.is_none() && self.horizon.window <= window {
            return None;
        }
        let long = self
            .long
            .filter(|(long, until)| now < *until && long.window > window);
        let last_until = self.newest()?.saturating_add(self.horizon.window);
        if self.horizon.window <= window || now >= last_until {
            return long;
        }
        let (horizon, until) = long.unwrap_or_default();
        Some((horizon.and(self.horizon), until.max(last_until)))
    }

    /// Only when the log is full; but while longer windows need something of it, at once, since then
    /// it is their units that bound it.
    fn drop_outside_if_full(&mut self, now: u64, longest: &Quota) {
        let bound = longest.max().min(longest.window_micros() / MILLISECOND);
        if self.long.is_none() && self.held() <= bound {
            return;
        }
        let mut outside = self.outside(now, longest);
        if let Some((long, _)) = self.long {
            let total = self.total();
            let unneeded = |entry: &Entry| {
                let newer = total.wrapping_sub(entry.total) & MODULUS_MASK;
                newer >= long.units || entry.stamp.saturating_add(long.window) <= now
            };
            outside = outside.min(self.entries.partition_point(unneeded));
        }
        if let Some(last) = outside.checked_sub(1) {
            self.floor = self.entries[last].total;
        }
        self.entries.drain(..outside);
    }

    /// Units in the log, whether or not they still count.
    fn held(&self) -> u64 {
        self.total().wrapping_sub(self.floor) & MODULUS_MASK
    }

    /// Entries stamped later than `now` become one of `now`: nothing is forgiven, and all of it has
    /// left every window one window from now.
    fn follow_clock_back(&mut self, now: u64) {
        if self.newest().is_some_and(|newest| newest > now) {
            let total = self.total();
            let earlier = self.entries.partition_point(|entry| entry.stamp < now);
            self.entries.truncate(earlier);
            self.entries.push_back(Entry { stamp: now, total });
            if let Some((long, until)) = &mut self.long {
                *until = (*until).min(now.saturating_add(long.window));
            }
        }
    }

    fn is_forgotten(&self, now: u64) -> bool {
        self.forgotten_at() <= now
    }

    fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.stamp)
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.floor, |entry| entry.total)
    }
}

/// When what was stamped then leaves the quota's window.
fn leaves(stamp: u64, quota: &Quota) -> u64 {
    stamp.saturating_add(quota.window_micros())
}

/// The quota with the longest window, the first of several.
fn longest(quotas: &[Quota]) -> Option<&Quota> {
    // Of equals `max_by_key` takes the last.
    quotas
        .iter()
        .rev()
        .max_by_key(|quota| quota.window_micros())
}
