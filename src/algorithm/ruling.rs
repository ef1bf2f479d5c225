//! What all algorithms decide alike, once they know what is used.

use crate::decision::Ruling;

/// One quota's part in a decision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ask {
    /// The most that may be used.
    pub(super) limit: u64,
    pub(super) used: u64,
}

impl Ask {
    pub(super) fn remaining(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Also where there is nothing to be had.
    pub(super) fn is_whole(self) -> bool {
        self.used == 0 || self.limit == 0
    }

    fn lacks(self, cost: u64) -> bool {
        self.used + cost > self.limit
    }
}

/// Whether the cost fits everywhere; if not, `wait` is asked for the microseconds until it fits the quota
/// at that place.
pub(super) fn rule(cost: u64, asks: &[Ask], wait: impl Fn(usize) -> u64) -> Ruling {
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
