//! Counts of permits, in questions and replies. The scripts' side is `lua/include/permits.lua`.

use super::super::holder;
use super::{MAX_NUMBER, ReplyGroup, write};
use crate::algorithm::spec::Permits;
use crate::decision::{Decision, Receipt, Source, Verdict};

/// What a question says of such a count: no quota, the lease, the process that asks, and how many
/// permits there are.
pub(super) fn write_spec(permits: &Permits, into: &mut Vec<u8>) {
    let lease = u64::try_from(permits.lease.as_millis()).unwrap_or(MAX_NUMBER);
    let max = match permits.is_unlimited {
        true => MAX_NUMBER,
        false => permits.max(),
    };
    into.push(0);
    write(&[lease, holder::process(), max], into);
}

/// What a row says in place of a cost: the number of the holder, or 0 if the take only looks.
pub(super) fn in_place_of_cost(holder: Option<&Receipt>, cost: u64) -> u64 {
    match holder {
        Some(holder) if cost > 0 => holder.serial(),
        _ => cost,
    }
}

/// The decision on a take: the reply says as units remaining how many permits are held.
pub(super) fn decision(
    permits: &Permits,
    group: &ReplyGroup,
    holder: Option<&Receipt>,
) -> Decision {
    let only_looks = group.cost == 0;
    let holder = holder.filter(|_| group.verdict == Verdict::Allowed && !only_looks);
    let held = group.states[0].remaining;
    permits.decision(only_looks, Source::Redis, held, holder.cloned())
}
