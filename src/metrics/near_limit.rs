use crate::decision::Decision;
use crate::rule::Rule;

/// From which part of a quota on an allowed request counts as near the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearLimit {
    /// What may remain of a quota near its limit, in thousandths.
    free_permille: u64,
}

impl NearLimit {
    /// The ratio in thousandths is at most the whole; others become the nearest that is possible.
    pub(crate) fn new(ratio: f64) -> Self {
        // A cast of a float saturates, and makes 0 of what is no number.
        let used = ((ratio * 1_000.0).round() as u64).min(1_000);
        Self {
            free_permille: 1_000 - used,
        }
    }

    /// Whether so much of a quota is used. For a leased unit the store says that, as of the lease:
    /// little of a lease may be left although much of the quota is. Quotas have at most 15 digits:
    /// nothing overflows.
    #[inline]
    pub(super) fn is_near(self, rule: &Rule, decision: &Decision) -> bool {
        let algorithm = rule.algorithm().algorithm();
        let mut quotas = rule.quotas().iter().zip(decision.quotas());
        quotas.any(|(quota, state)| {
            state.remaining_in_store() * 1_000 <= algorithm.limit(quota) * self.free_permille
        })
    }
}

impl Default for NearLimit {
    fn default() -> Self {
        Self { free_permille: 200 }
    }
}
