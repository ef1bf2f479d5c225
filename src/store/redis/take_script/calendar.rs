//! Counts of the calendar, in questions and replies. The scripts' side is
//! `lua/include/calendar.lua`, and `calendar_read.lua` and `calendar_charge.lua` in the usual case.

use super::ReplyGroup;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::constants::CALENDAR;
use crate::algorithm::period::PeriodBounds;
use crate::decision::{Decision, Receipt, Source};

/// What a question says of such a count: its period now, the end of the next one, and its max.
pub(super) fn write(of: &Calendar, bounds: PeriodBounds, into: &mut Vec<u8>) {
    into.push(CALENDAR);
    super::write(&[bounds.start, bounds.end, bounds.next_end, of.max()], into);
}

/// The same of units owed, which were reserved in the period that ends at `stamp`.
pub(super) fn write_owing(of: &Calendar, stamp: u64, into: &mut Vec<u8>) {
    write(of, PeriodBounds::until(stamp), into);
    super::write(&[of.limit_with_debt(), stamp], into);
}

/// The decision on a take before the last `later` units were charged.
pub(super) fn decision(of: &Calendar, group: &ReplyGroup, later: u64) -> Decision {
    let state = &group.states[0];
    let used = of.max().saturating_sub(state.remaining + later);
    // In place of an instant and a number, a receipt has the end of the period and its beginning.
    let receipt = group.receipt.as_ref().map(|last| {
        let end = last.stamp() + state.reset_after;
        Receipt::new(end, last.serial(), group.cost)
    });
    let counted = (group.cost, used, state.reset_after);
    of.decision(group.verdict, Source::Redis, counted, receipt)
}
