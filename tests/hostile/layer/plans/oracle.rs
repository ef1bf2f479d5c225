//! What was charged, and what that allows: it only adds up.

use crate::*;

/// The charges of a key.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    algorithm: Algorithm,
    /// Of each charge its time, its units, and its quotas.
    charged: Vec<(u64, u64, Vec<Quota>)>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a short time")
}

impl Oracle {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            charged: Vec::new(),
        }
    }

    /// What a take at this instant was charged. The charges must stand in order.
    pub(super) fn charge(&mut self, at: u64, units: u64, quotas: &[Quota]) {
        self.charged.push((at, units, quotas.to_vec()));
    }

    /// What counts for a quota at least: what was charged under its window. With it the quota of
    /// that window.
    fn counted(&self, quota: &Quota) -> impl Iterator<Item = (u64, u64, &Quota)> {
        let window = quota.window();
        self.charged.iter().filter_map(move |(at, units, quotas)| {
            let own = quotas.iter().find(|it| it.window() == window)?;
            Some((*at, *units, own))
        })
    }

    fn sum(&self, quota: &Quota, from_excluded: i128) -> u64 {
        let charged = self.counted(quota);
        let counts = charged.filter(|(at, ..)| i128::from(*at) > from_excluded);
        counts.map(|(_, units, _)| units).sum()
    }

    /// Whether this quota was kept when it let pass a take that is in the charges already; what is
    /// over it, otherwise.
    pub(super) fn over(&self, now: u64, quota: &Quota, reset_after: Duration) -> Option<String> {
        let (window, max) = (micros(quota.window()), quota.max());
        let over = |sum: u64, most: u64| {
            (sum > most).then(|| format!("{sum} units of at most {most} by {quota:?} at {now}"))
        };
        match self.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                over(self.sum(quota, i128::from(now) - i128::from(window)), max)
            }
            // The window that counts began one window before its end.
            Algorithm::FixedWindow => {
                let begin = i128::from(now + micros(reset_after)) - i128::from(window);
                over(self.sum(quota, begin - 1), max)
            }
            _ => {
                let (level, most) = (self.bucket(now, quota), quota.burst());
                let most = u128::from(most) * u128::from(window);
                (level > most).then(|| format!("{level} of at most {most} by {quota:?} at {now}"))
            }
        }
    }

    /// Law 1, for a take that was allowed and whose charge was told.
    pub(super) fn check_allowed(&self, now: u64, quotas: &[Quota], decision: &Decision) {
        assert_eq!(decision.quotas().len(), quotas.len(), "{decision:?}");
        for (quota, state) in quotas.iter().zip(decision.quotas()) {
            let over = self.over(now, quota, state.reset_after());
            assert_eq!(over, None, "law 1, {:?}: {decision:?}", self.algorithm);
        }
    }

    /// What is in the bucket, in units times the window in microseconds. It drains at the max that
    /// charged it last, and a change of max may round a microsecond of that up.
    fn bucket(&self, now: u64, quota: &Quota) -> u128 {
        let (mut level, mut last, mut pace) = (0_u128, 0, 0_u128);
        for (at, units, own) in self.counted(quota) {
            level = level.saturating_sub(u128::from(at - last) * pace);
            level += u128::from(units) * u128::from(micros(quota.window()));
            (last, pace) = (at, own.max().into());
        }
        level.saturating_sub(u128::from(now - last) * pace)
    }
}
