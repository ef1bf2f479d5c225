//! How much of each quota is used, and whether a cost fits.

use std::time::Duration;

use crate::decision::{QuotaState, Verdict};

/// How much of a quota is used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QuotaUse {
    /// The most units that may be used together.
    pub(super) limit: u64,
    pub(super) used: u64,
}

impl QuotaUse {
    /// The state of the quota for a decision, if nothing counts from `ends_at` on.
    pub(super) fn state(self, now: u64, ends_at: impl FnOnce() -> u64) -> QuotaState {
        // A quota of no units has none to wait for.
        let reset_after = match self.used == 0 || self.limit == 0 {
            true => 0,
            false => ends_at().saturating_sub(now),
        };
        let state = QuotaState::from_micros(self.limit.saturating_sub(self.used), reset_after);
        state.with_max(self.limit)
    }

    /// Whether the cost fits. A quota of no units lets nothing pass, not even what costs nothing.
    #[inline]
    pub(super) const fn fits(self, cost: u64) -> bool {
        self.limit > 0 && self.used.saturating_add(cost) <= self.limit
    }
}

/// Whether the cost fits into all quotas. For each quota that it does not fit into, `wait` is
/// called with the quota's index, and returns the microseconds until the cost fits.
pub(super) fn verdict(cost: u64, uses: &[QuotaUse], wait: impl Fn(usize) -> u64) -> Verdict {
    if uses.iter().any(|quota| cost.max(1) > quota.limit) {
        return Verdict::Never;
    }
    let lacking = uses
        .iter()
        .enumerate()
        .filter(|(_, quota)| !quota.fits(cost));
    let longest = lacking.map(|(index, _)| wait(index)).max();
    longest.map_or(Verdict::Allowed, |micros| Verdict::Denied {
        retry_after: Duration::from_micros(micros),
    })
}
