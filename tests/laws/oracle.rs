//! What should be: the takes that one quota admitted, looked at by brute force.
//!
//! Nothing here knows how the crate counts. It is a list of stamps, costs and refunds, and sums
//! over it; instants are microseconds, and sums are wide enough for whatever fits into a quota.

use tidegate::{Algorithm, Quota};

use crate::history::Way;

/// A take that was admitted.
#[derive(Debug, Clone, Copy)]
struct Entry {
    stamp: u64,
    cost: u64,
    back: u64,
}

impl Entry {
    fn net(&self) -> i128 {
        i128::from(self.cost) - i128::from(self.back)
    }

    /// Whether it is inside of `(now - window, now]`.
    fn is_inside(&self, now: u64, window: u64) -> bool {
        i128::from(self.stamp) + i128::from(window) > i128::from(now)
    }
}

/// A range of units: what has to be, and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Range {
    const fn exactly(units: u64) -> Self {
        Self {
            least: units,
            most: units,
        }
    }

    /// What is left of the limit.
    pub(crate) fn left_of(self, limit: u64) -> Self {
        Self {
            least: limit.saturating_sub(self.most),
            most: limit.saturating_sub(self.least),
        }
    }

    pub(crate) const fn contains(self, units: u64) -> bool {
        self.least <= units && units <= self.most
    }
}

/// All that one quota admitted, in the order in which it did. Clocks do not go back here.
#[derive(Debug, Clone)]
pub(crate) struct Book {
    way: Way,
    quota: Quota,
    entries: Vec<Entry>,
    /// When the fixed window began, if one did.
    start: Option<u64>,
}

impl Book {
    pub(crate) const fn new(way: Way, quota: Quota) -> Self {
        Self {
            way,
            quota,
            entries: Vec::new(),
            start: None,
        }
    }

    pub(crate) fn window(&self) -> u64 {
        window(&self.quota)
    }

    pub(crate) fn limit(&self) -> u64 {
        limit(self.way, &self.quota)
    }

    pub(crate) fn admit(&mut self, now: u64, cost: u64) {
        if self.running(now).is_none() {
            self.start = Some(now);
        }
        self.entries.push(Entry {
            stamp: now,
            cost,
            back: 0,
        });
    }

    /// So many units of take number `index` were given back, of which this quota takes what it
    /// still counts.
    pub(crate) fn give_back(&mut self, now: u64, index: usize, units: u64) {
        let units = units.min(self.counted_of(now, index).most);
        self.entries[index].back += units;
        // A window in which nothing was admitted has not begun.
        if self
            .running(now)
            .is_some_and(|start| self.since(start) == 0)
        {
            self.start = None;
        }
    }

    /// How many units count now.
    pub(crate) fn counted(&self, now: u64) -> Range {
        match self.way.algorithm {
            Algorithm::SlidingLog if self.entries.iter().all(|entry| entry.back == 0) => {
                Range::exactly(self.inside_as_shared(now))
            }
            // Refunds may or may not undo what sharing did to an entry's stamp.
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Range {
                least: self.inside(now),
                most: self.inside_as_shared(now),
            },
            Algorithm::Gcra => Range::exactly(units(div_ceil(self.level(now), self.scale()))),
            Algorithm::FixedWindow => {
                Range::exactly(self.running(now).map_or(0, |start| self.since(start)))
            }
            other => panic!("no law for {other:?}"),
        }
    }

    /// How many units of take number `index` count now.
    pub(crate) fn counted_of(&self, now: u64, index: usize) -> Range {
        let entry = &self.entries[index];
        let net = units(entry.net());
        let if_counted = |counts: bool| if counts { net } else { 0 };
        match self.way.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Range {
                least: if_counted(entry.is_inside(now, self.window())),
                most: if_counted(self.last_shared(entry).is_inside(now, self.window())),
            },
            Algorithm::Gcra => {
                // First in, first out. A unit that has drained by a part does not count.
                let after: i128 = self.entries[index + 1..].iter().map(Entry::net).sum();
                let full = self.level(now) / self.scale();
                Range::exactly(units((full - after).clamp(0, entry.net())))
            }
            Algorithm::FixedWindow => Range::exactly(if_counted(
                self.running(now).is_some_and(|start| entry.stamp >= start),
            )),
            other => panic!("no law for {other:?}"),
        }
    }

    /// Units stamped inside of `(now - window, now]`.
    pub(crate) fn inside(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| entry.is_inside(now, self.window());
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The same, but takes that share a place count as of the last of them.
    fn inside_as_shared(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| self.last_shared(entry).is_inside(now, self.window());
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The last take that may share a place with this one.
    fn last_shared(&self, first: &Entry) -> Entry {
        let shares = |last: &&Entry| self.may_share(first.stamp, last.stamp);
        let shared = self.entries.iter().filter(shares);
        *shared.max_by_key(|entry| entry.stamp).unwrap_or(first)
    }

    /// Whether a take of this instant would move the stamp of an earlier one.
    pub(crate) fn would_share(&self, now: u64) -> bool {
        let earlier = |entry: &&Entry| entry.stamp < now;
        let mut earlier = self.entries.iter().filter(earlier);
        earlier.any(|entry| self.may_share(entry.stamp, now))
    }

    /// Whether two takes may share a place.
    pub(crate) fn may_share(&self, first: u64, last: u64) -> bool {
        let apart = u128::from(last.saturating_sub(first));
        match self.way.algorithm {
            Algorithm::SlidingLog => first / 1_000 == last / 1_000,
            // Less than a sub-window apart.
            Algorithm::SlidingWindow => {
                first <= last
                    && apart * u128::from(self.way.sub_windows) < u128::from(self.window())
            }
            _ => false,
        }
    }

    /// Whether all that was admitted is within the law, whatever it was when it was admitted.
    pub(crate) fn is_lawful(&self) -> bool {
        let mut ends = self.entries.iter().enumerate();
        ends.all(|(end, last)| {
            let spans = self.entries[..=end].iter().enumerate();
            let mut spans = spans.map(|(start, first)| (start, last.stamp - first.stamp));
            spans.all(|(start, span)| self.units(start, end) <= self.most_within(span))
        })
    }

    fn units(&self, start: usize, end: usize) -> i128 {
        self.entries[start..=end].iter().map(Entry::net).sum()
    }

    /// The most that a span of this length may admit, both its ends included.
    fn most_within(&self, span: u64) -> i128 {
        let limit = i128::from(self.limit());
        let windows = 1 + i128::from(span / self.window());
        match self.way.algorithm {
            Algorithm::Gcra => {
                limit + i128::from(span) * i128::from(self.quota.max()) / self.scale()
            }
            // One that was running, and those that began.
            Algorithm::FixedWindow => (windows + 1) * limit,
            _ => windows * limit,
        }
    }

    /// GCRA: by how many units, times the window, the worst span up to now is above its rate.
    ///
    /// The units of a span must not be more than `burst + floor(span * max / window)`.
    fn level(&self, now: u64) -> i128 {
        let rate = i128::from(self.quota.max());
        let mut units = 0;
        let mut worst = 0;
        for first in self.entries.iter().rev() {
            units += first.net();
            let span = i128::from(now) - i128::from(first.stamp);
            worst = worst.max(units * self.scale() - span * rate);
        }
        worst
    }

    fn scale(&self) -> i128 {
        i128::from(self.window())
    }

    /// The start of the fixed window that runs.
    fn running(&self, now: u64) -> Option<u64> {
        let runs = |start: &u64| i128::from(*start) + i128::from(self.window()) > i128::from(now);
        self.start.filter(runs)
    }

    /// Units stamped at `start` or later.
    fn since(&self, start: u64) -> u64 {
        let inside = |entry: &&Entry| entry.stamp >= start;
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }
}

/// The window in microseconds.
pub(crate) fn window(quota: &Quota) -> u64 {
    u64::try_from(quota.window().as_micros()).expect("at most ten years")
}

/// What fits at once.
pub(crate) fn limit(way: Way, quota: &Quota) -> u64 {
    match way.algorithm {
        // Nothing drains, and so nothing fits.
        Algorithm::Gcra if quota.max() == 0 => 0,
        Algorithm::Gcra => quota.burst(),
        _ => quota.max(),
    }
}

/// After how long, at most, nothing of what was charged counts: a window, or until the fullest
/// bucket is empty.
pub(crate) fn span_of_memory(way: Way, quota: &Quota) -> u64 {
    let window = window(quota);
    match way.algorithm {
        Algorithm::SlidingLog => window + 999,
        Algorithm::SlidingWindow => window + window / u64::from(way.sub_windows),
        Algorithm::Gcra if quota.max() > 0 => {
            let drained = i128::from(quota.burst()) * i128::from(window);
            units(div_ceil(drained, i128::from(quota.max())))
        }
        _ => window,
    }
}

fn div_ceil(number: i128, by: i128) -> i128 {
    (number + by - 1) / by
}

fn units(number: i128) -> u64 {
    u64::try_from(number).expect("no less than nothing, and no more than was charged")
}
