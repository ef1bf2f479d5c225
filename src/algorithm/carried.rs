use super::refunds::GivenBack;
use crate::decision::Token;
use crate::quota::Quota;

/// What still counts of a count that another algorithm kept: what is handed over when a rule changes its
/// algorithm.
///
/// The receiver counts all units as charged at `newest`. None is forgiven by that, and none counts for more
/// than a window longer than it did.
#[derive(Debug, Clone)]
pub(super) struct Carried {
    /// When something was charged last.
    pub(super) newest: u64,
    pub(super) serial: u64,
    /// Takes that were charged before this cannot be given back.
    pub(super) begun: u64,
    /// The quotas that it was charged under, and the units that still count for each.
    pub(super) quotas: Vec<(Quota, u64)>,
}

impl Carried {
    /// The most units that count under one quota.
    pub(super) fn fullest(&self) -> u64 {
        let used = self.quotas.iter().map(|(_, used)| *used);
        used.max().unwrap_or(0)
    }

    /// Where nothing counts, nothing is known.
    pub(super) fn that_counts(mut self) -> Self {
        if self.fullest() == 0 {
            self.quotas.clear();
        }
        self
    }
}

/// An algorithm's state, as all of them have it.
pub(super) trait Exchange {
    /// When something was charged last; 0 if nothing was.
    fn newest(&self) -> u64;
    /// How long a charge counts at most, in microseconds.
    fn longest_life(&self) -> u64;
    /// What still counts. What was charged in the future counts as charged now.
    fn hand_over(&self, now: u64) -> Carried;
    fn take_over(carried: Carried, sub_windows: u64) -> Self;
    fn forgotten_at(&self) -> u64;
    /// Gives back up to so many units of that take, and tells how many.
    fn refund(&mut self, now: u64, token: &Token, units: u64, given_back: &GivenBack<'_>) -> u64;
}
