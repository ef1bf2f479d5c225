//! What was charged, and what that allows: it only adds up.

use crate::*;

/// A charge, and until when it has to count at most; for ever with plans.
#[derive(Debug, Clone, Copy)]
struct Charged {
    at: u64,
    units: u64,
    until: u64,
}

/// The charges of a key.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    algorithm: Algorithm,
    charged: Vec<Charged>,
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

    /// A decision about a take at this instant, to which the charges must stand in order. `until`
    /// is when the contract ceases to count the charge for quotas that come later.
    pub(super) fn charge(&mut self, at: u64, units: u64, until: u64) {
        self.charged.push(Charged { at, units, until });
    }

    fn sum(&self, now: u64, from_excluded: i128) -> u64 {
        let counts = |one: &&Charged| i128::from(one.at) > from_excluded && one.until > now;
        self.charged
            .iter()
            .filter(counts)
            .map(|one| one.units)
            .sum()
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
                over(self.sum(now, i128::from(now) - i128::from(window)), max)
            }
            // The window that counts began one window before its end.
            Algorithm::FixedWindow => {
                let begin = i128::from(now + micros(reset_after)) - i128::from(window);
                over(self.sum(now, begin - 1), max)
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

    /// Law 14: whether a quota that has to say no would. An algorithm may count a little longer.
    pub(super) fn check_denied(&self, now: u64, quotas: &[Quota], cost: u64, decision: &Decision) {
        let is_full = quotas.iter().any(|quota| {
            let (window, max) = (micros(quota.window()), quota.max());
            let longer = match self.algorithm {
                Algorithm::SlidingLog => 1_000,
                Algorithm::SlidingWindow => window / 64 + 2_000,
                _ => 0,
            };
            let begin = i128::from(now) - i128::from(window + longer);
            if self.algorithm != Algorithm::Gcra {
                return self.sum(now, begin) + cost > max;
            }
            self.bucket(now, quota) + u128::from(cost) * u128::from(window)
                > u128::from(quota.burst()) * u128::from(window)
        });
        assert!(
            is_full,
            "law 14, {:?}: {decision:?} at {now}",
            self.algorithm
        );
    }

    /// What is in the bucket, in units times the window in microseconds. What others than its own
    /// plan charge fills it, and does not flow over: a downgrade denies until the rate allows one.
    fn bucket(&self, now: u64, quota: &Quota) -> u128 {
        let full = u128::from(quota.burst()) * u128::from(micros(quota.window()));
        let (mut level, mut last) = (0_u128, 0);
        for one in self.charged.iter().filter(|one| one.until > now) {
            level = level.min(full);
            level = level.saturating_sub(u128::from(one.at - last) * u128::from(quota.max()));
            level += u128::from(one.units) * u128::from(micros(quota.window()));
            last = one.at;
        }
        // The last charge may be that of the take in question.
        let is_now = last == now;
        let level = if is_now { level } else { level.min(full) };
        level.saturating_sub(u128::from(now - last) * u128::from(quota.max()))
    }
}
