//! Counts of permits, in questions and replies.

use crate::algorithm::spec::Permits;
use crate::decision::{Decision, QuotaState, Receipt, Source};

/// The decision about a permit, of which the reply says as units remaining how many are held.
pub(super) fn of_permits(
    permits: &Permits,
    cost: u64,
    found: &Decision,
    holder: Option<&Receipt>,
) -> Decision {
    let (held, only_looks) = (found.quotas().first(), cost == 0);
    let holder = holder.filter(|_| found.is_allowed() && !only_looks);
    let held = held.map_or(0, QuotaState::remaining);
    permits.decision(only_looks, Source::Redis, held, holder.cloned())
}
