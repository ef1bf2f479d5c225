//! Counts of the calendar, in questions and replies.

use super::{CALENDAR, write};
use crate::algorithm::calendar::Calendar;
use crate::algorithm::period::PeriodBounds;

/// What a question says of a count of the calendar: its period now, the end of the next one, and
/// its max.
pub(super) fn write_calendar(of: &Calendar, bounds: PeriodBounds, into: &mut Vec<u8>) {
    into.push(CALENDAR);
    write(&[bounds.start, bounds.end, bounds.next_end, of.max()], into);
}
