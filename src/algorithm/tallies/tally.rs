use std::fmt;

use crate::algorithm::byte_reader::{ByteReader, ByteWriter};
use crate::algorithm::count::CountError;
use crate::quota::Quota;

/// No tally holds more units: a rule with large costs may charge the tally of an earlier one beyond
/// that one's max.
pub(in crate::algorithm) const MAX_HELD: u64 = 1 << 51;

/// What an algorithm keeps for one quota, in constant memory. Instants are microseconds, and
/// `last_charge` is the instant of the last charge of its key.
pub(in crate::algorithm) trait Tally: fmt::Debug + Clone {
    /// The tally of this quota, with nothing charged.
    fn new(quota: &Quota, sub_windows: u16) -> Self;

    /// The tally of this quota, with `units` charged at `stamp`.
    fn charged_once(quota: &Quota, sub_windows: u16, stamp: u64, units: u64) -> Self {
        let mut tally = Self::new(quota, sub_windows);
        tally.charge(stamp, Level::default(), units);
        tally
    }

    /// Whether it can be the tally of this quota, with what it has counted.
    fn can_serve(&self, quota: &Quota, sub_windows: u16) -> bool;

    /// Becomes the tally of this quota, which it [can serve](Self::can_serve).
    fn serve(&mut self, quota: &Quota);

    /// The quota that it was charged under last.
    fn quota(&self) -> &Quota;

    /// The most units that may be used at once under this quota.
    fn limit(quota: &Quota) -> u64 {
        quota.max()
    }

    /// How long a charge counts at most.
    fn life(&self) -> u64;

    /// Units that count at `now`.
    fn used(&self, now: u64, last_charge: u64) -> u64 {
        self.level(now, last_charge).used
    }

    /// The same, with what a charge at this instant needs besides.
    fn level(&self, now: u64, last_charge: u64) -> Level;

    /// Units that a new tally has to be charged with, as of `last_charge`, for what counts here at
    /// `now` to count there too. At `now` that many units count there, or more; what has drained
    /// here does not drain again there.
    fn carried_over(&self, now: u64, last_charge: u64) -> u64 {
        self.used(now, last_charge)
    }

    /// Microseconds until `cost` units fit under the limit, if they do not fit now.
    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64;

    /// The instant from which on nothing counts; 0 if nothing is held.
    fn ends_at(&self) -> u64;

    /// Charges units, whether or not they fit under a limit. `level` is that of this instant.
    /// Returns how many units it could not hold.
    fn charge(&mut self, now: u64, level: Level, units: u64) -> u64;

    /// Gives back units of a take that still count, and returns how many.
    fn refund(&mut self, now: u64, refund: &TallyRefund) -> u64;

    /// The clock went back to `now`: what was charged in its future counts as charged now.
    fn follow_clock_back(&mut self, now: u64, last_charge: u64);

    /// Writes all that later answers depend on.
    fn write(&self, writer: &mut ByteWriter, last_charge: u64);

    /// Reads what [`write`](Self::write) has written. Other bytes are an error, or a tally that
    /// answers without a panic.
    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError>;
}

/// How full a tally is at an instant.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::algorithm) struct Level {
    /// Units that count.
    pub(in crate::algorithm) used: u64,
    /// In a bucket, the number of whole paces since its busy time began; otherwise 0.
    pub(in crate::algorithm) paces: u64,
}

/// A take that is given back.
pub(in crate::algorithm) struct TallyRefund {
    /// When the take was charged.
    pub(in crate::algorithm) stamp: u64,
    /// The most units to give back.
    pub(in crate::algorithm) units: u64,
    /// Units that were charged after the take and not given back since.
    pub(in crate::algorithm) later: u64,
}
