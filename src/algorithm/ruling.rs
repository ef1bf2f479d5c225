//! What all algorithms decide alike, once they know what is used.

use crate::decision::{QuotaState, Ruling};

/// One quota's part in a decision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ask {
    /// The most that may be used.
    pub(super) limit: u64,
    pub(super) used: u64,
}

impl Ask {
    /// How the quota stands, of which nothing counts from `over_at` on.
    pub(super) fn state(self, now: u64, over_at: impl FnOnce() -> u64) -> QuotaState {
        // Where there is nothing to be had, there is nothing to wait for.
        let reset_after = match self.used == 0 || self.limit == 0 {
            true => 0,
            false => over_at().saturating_sub(now),
        };
        QuotaState::from_micros(self.limit.saturating_sub(self.used), reset_after)
    }

    fn lacks(self, cost: u64) -> bool {
        self.used + cost > self.limit
    }
}

/// Whether the cost fits everywhere; if not, `wait` is asked for the microseconds until it fits the quota
/// at that place.
pub(super) fn ruling(cost: u64, asks: &[Ask], wait: impl Fn(usize) -> u64) -> Ruling {
    if cost == 0 {
        return Ruling::Allowed;
    }
    if asks.iter().any(|ask| cost > ask.limit) {
        return Ruling::Never;
    }
    let lacking = asks.iter().enumerate().filter(|(_, ask)| ask.lacks(cost));
    let longest = lacking.map(|(at, _)| wait(at)).max();
    longest.map_or(Ruling::Allowed, |retry_after| Ruling::Denied {
        retry_after,
    })
}
