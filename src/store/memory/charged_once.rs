use super::split_micros::SplitMicros;
use crate::algorithm::{Algorithm, Count, Counting};
use crate::quota::Quota;
use crate::store::Take;

/// A count that was charged once, under one quota, by what the charge was.
///
/// In a flood of keys all are like this, and this takes a fifth of a [`Count`]'s memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChargedOnce {
    stamp: SplitMicros,
    max: u32,
    burst: u32,
    cost: u32,
    /// In milliseconds.
    window: u32,
    algorithm: Algorithm,
    sub_windows: u16,
}

impl ChargedOnce {
    /// The first take of a key. `None` if the rule has several quotas or a lease, or a number is
    /// too large.
    pub(super) fn of(take: &Take, now: u64) -> Option<Self> {
        let [quota] = take.quotas() else {
            return None;
        };
        let counting = take.rule().algorithm();
        if counting.lease_micros() > 0 {
            return None;
        }
        let (window, part) = (quota.window_micros() / 1_000, quota.window_micros() % 1_000);
        if part > 0 {
            return None;
        }
        Some(Self {
            stamp: now.into(),
            max: quota.max().try_into().ok()?,
            burst: quota.burst().try_into().ok()?,
            cost: take.cost().try_into().ok()?,
            window: window.try_into().ok()?,
            algorithm: counting.algorithm(),
            sub_windows: counting.number_of_sub_windows(),
        })
    }

    /// When it was charged.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp.into()
    }

    pub(super) fn count(&self) -> Count {
        let window = u64::from(self.window) * 1_000;
        let quota = Quota::of_parts(self.max.into(), window, self.burst.into());
        let counting = Counting::from(self.algorithm).sub_windows(self.sub_windows);
        Count::charged_once(counting, self.stamp(), &quota, self.cost.into())
    }
}
