use std::fmt;

use crate::quota::Quota;

/// No tally holds more units: a rule that charges much may feed the tally of an earlier one.
pub(super) const MAX_USED: u64 = 1 << 51;

/// What an algorithm keeps for one quota, in constant memory.
pub(super) trait Tally: fmt::Debug + Clone {
    /// A tally of this quota, with nothing in it.
    fn new(quota: &Quota, sub_windows: u64) -> Self;
    /// The same with so many units as charged at `stamp`.
    fn charged(quota: &Quota, sub_windows: u64, stamp: u64, units: u64) -> Self {
        let mut tally = Self::new(quota, sub_windows);
        tally.charge(stamp, Look::default(), units);
        tally
    }
    /// Whether it can go on as the tally of this quota.
    fn is_of(&self, quota: &Quota, sub_windows: u64) -> bool;
    /// Goes on as the tally of this quota.
    fn goes_on(&mut self, quota: &Quota);
    /// The quota that it was charged under last.
    fn quota(&self) -> &Quota;

    /// The most units that may be used under this quota.
    fn limit(quota: &Quota) -> u64;
    /// How long a charge counts at most, in microseconds.
    fn life(&self) -> u64;
    /// Units that count at `now`, if something was charged last at `newest`.
    fn used(&self, now: u64, newest: u64) -> u64 {
        self.look(now, newest).used
    }
    /// The same with what a charge of this instant needs to know besides.
    fn look(&self, now: u64, newest: u64) -> Look;
    /// What has to be charged to another tally at `newest`, the last charge of this one, for what counts at
    /// `now` to count there, too: no less then, and nothing that has drained drains there again.
    fn counts(&self, now: u64, newest: u64) -> u64 {
        self.used(now, newest)
    }
    /// Microseconds until so many units fit under the limit, where they do not.
    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64;
    /// From when on nothing of it counts.
    fn over_at(&self) -> u64;
    /// Charges units, whether or not they fit under a limit, after a look at this instant. The answer is how
    /// many of them it could not hold.
    fn charge(&mut self, now: u64, look: Look, units: u64) -> u64;
    /// Gives back up to so many units, and tells how many.
    fn refund(&mut self, now: u64, refund: &TallyRefund) -> u64;
    /// What was charged in the future counts as charged now.
    fn follow_clock_back(&mut self, now: u64, newest: u64);
}

/// How a tally stands at an instant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    /// Units that count.
    pub(super) used: u64,
    /// How many times a bucket has drained by its pace.
    pub(super) paces: u64,
}

/// What a tally has to know of the take that is given back.
pub(super) struct TallyRefund {
    pub(super) stamp: u64,
    pub(super) units: u64,
    /// Units that were charged after it and not given back since.
    pub(super) later: u64,
}
