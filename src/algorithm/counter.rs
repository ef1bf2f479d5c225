//! What an algorithm keeps for one quota.

use std::fmt;

use super::byte_reader::{ByteReader, ByteWriter};
use super::count::CountError;
use crate::quota::Quota;

/// What an algorithm keeps for one quota, in constant memory. Instants are microseconds, and
/// `last_charge` is the instant of the last charge of its key.
pub(super) trait Counter: fmt::Debug + Clone {
    /// The most ranges of refunded units that are kept, if refunds have to know how many units
    /// were charged later and not given back.
    const MAX_RANGES: usize = 0;

    /// The counter of this quota, with nothing charged.
    fn new(quota: &Quota, sub_windows: u16) -> Self;

    /// The counter of this quota, with `units` charged at `stamp`.
    fn charged_once(quota: &Quota, sub_windows: u16, stamp: u64, units: u64) -> Self {
        let mut counter = Self::new(quota, sub_windows);
        counter.charge(stamp, Level::default(), units);
        counter
    }

    /// Whether it can be the counter of this quota, with what it has counted.
    fn can_serve(&self, quota: &Quota, _sub_windows: u16) -> bool {
        self.quota().window_micros() == quota.window_micros()
    }

    /// Becomes the counter of this quota, which it [can serve](Self::can_serve).
    fn serve(&mut self, quota: &Quota);

    /// The quota that it was charged under last.
    fn quota(&self) -> &Quota;

    /// What distinguishes it from other counters of a key whose window and max are the same.
    fn variant(&self) -> u64 {
        0
    }

    /// The most units that may be used together under this quota.
    fn limit(quota: &Quota) -> u64 {
        quota.max()
    }

    /// How long a charge counts at most.
    fn life(&self) -> u64 {
        self.quota().window_micros()
    }

    /// Units that count at `now`.
    fn used(&self, now: u64, last_charge: u64) -> u64 {
        self.level(now, last_charge).used
    }

    /// The units that count at `now`, with what a charge at this instant needs besides.
    fn level(&self, now: u64, last_charge: u64) -> Level;

    /// Units that a new counter of this other quota begins with, as if they were charged at
    /// `last_charge`: no fewer than count there at `now` of what counts here.
    fn carried_over(&self, now: u64, last_charge: u64, _quota: &Quota) -> u64 {
        self.used(now, last_charge)
    }

    /// Whether this counter, if it counts for all quotas of a key and holds `held` units, may have
    /// forgotten some, so that a new quota begins full.
    fn may_lose(&self, _held: u64) -> bool {
        false
    }

    /// Microseconds until `cost` units fit under the limit, if they do not fit now.
    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64;

    /// The instant from which on nothing counts; 0 if nothing is held.
    fn ends_at(&self) -> u64;

    /// Charges units, whether or not they fit under a limit. `level` is that of this instant.
    /// Returns how many units it could not hold.
    fn charge(&mut self, now: u64, level: Level, units: u64) -> u64;

    /// [Charges](Self::charge) units owed, of which it holds as many as may be owed.
    fn owe(&mut self, now: u64, level: Level, units: u64) -> u64 {
        self.charge(now, level, units)
    }

    /// Gives back units of a take that still count, and returns how many.
    fn refund(&mut self, now: u64, refund: &CounterRefund) -> u64;

    /// The clock went back to `now`: what was charged in its future counts as charged now.
    fn follow_clock_back(&mut self, now: u64, last_charge: u64);

    /// Writes all that later answers depend on.
    fn write(&self, writer: &mut ByteWriter, last_charge: u64);

    /// Reads what [`write`](Self::write) has written. Other bytes are an error, or a counter that
    /// answers without a panic.
    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError>;
}

/// How full a counter is at an instant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    /// Units that count.
    pub(super) used: u64,
    /// In a bucket, the number of whole paces since its busy time began; otherwise 0.
    pub(super) paces: u64,
}

/// A take that is given back.
pub(super) struct CounterRefund {
    /// When the take was charged.
    pub(super) stamp: u64,
    /// Units that it was charged.
    pub(super) charged: u64,
    /// The most units to give back.
    pub(super) units: u64,
    /// The most units that were charged after the take and not given back since.
    pub(super) later: u64,
}
