use crate::algorithm::calendar::{Calendar, CalendarCount};
use crate::decision::{Decision, Receipt};
use crate::name::Name;
use crate::swept_map::SweptMap;

/// What was charged in periods of the calendar, by the names of the counts. Instants are of the
/// host's clock.
#[derive(Debug, Default)]
pub(super) struct Calendars(SweptMap<String, CalendarCount>);

/// A count of a period, and how it counts.
#[derive(Clone, Copy)]
pub(super) struct CalendarOf<'a> {
    pub(super) name: &'a Name,
    pub(super) spec: &'a Calendar,
    pub(super) now: u64,
}

impl Calendars {
    /// How many counts there are.
    pub(super) fn len(&mut self, now: u64) -> usize {
        self.0.retain(|_, count| is_kept(count, now));
        self.0.len()
    }

    /// Whether there is room for so many counts that are new.
    pub(super) fn has_room(&mut self, new: usize, now: u64, max: usize) -> bool {
        new == 0 || self.0.has_room(new, max, now, |count| is_kept(count, now))
    }

    /// How many units are used now.
    pub(super) fn used(&self, name: &Name, now: u64) -> u64 {
        self.count(name).1.at(now, || 0).used
    }

    pub(super) fn knows(&self, name: &Name) -> bool {
        self.0.contains_key(&name.plain())
    }

    /// Decides a take, for whose count there is room.
    pub(super) fn take(&mut self, of: CalendarOf<'_>, cost: u64) -> Decision {
        let (name, count) = self.count(of.name);
        let mut count = count.at(of.now, || of.spec.period.at(of.now).end);
        let decision = count.take(of.now, of.spec, cost);
        if decision.units() > 0 {
            self.keep(name, count, of.now);
        }
        decision
    }

    /// Charges units above max, and returns their number. There is room for the count.
    pub(super) fn owe(&mut self, of: CalendarOf<'_>, receipt: &Receipt, units: u64) -> u64 {
        let (name, count) = self.count(of.name);
        let mut count = count.at(of.now, || receipt.stamp());
        let charged = count.owe(of.now, of.spec, receipt, units);
        if charged > 0 {
            self.keep(name, count, of.now);
        }
        charged
    }

    /// Gives units back, and returns their number.
    pub(super) fn refund(&mut self, name: &Name, now: u64, receipt: &Receipt, units: u64) -> u64 {
        let count = self.0.get_mut(&name.plain());
        count.map_or(0, |count| count.refund(now, receipt, units))
    }

    /// Forgets what counts, and says whether anything did.
    pub(super) fn reset(&mut self, name: &Name, now: u64) -> bool {
        let count = self.0.get_mut(&name.plain());
        count.is_some_and(|count| count.reset(now))
    }

    fn count(&self, name: &Name) -> (String, CalendarCount) {
        let name = name.plain();
        let count = self.0.get(&name).copied().unwrap_or_default();
        (name, count)
    }

    fn keep(&mut self, name: String, count: CalendarCount, now: u64) {
        self.0.sweep(|count| is_kept(count, now));
        self.0.insert(name, count);
    }
}

/// Beyond its end, for a clock that is put back.
fn is_kept(count: &CalendarCount, now: u64) -> bool {
    let last = count.end.max(count.since);
    last.saturating_add(CalendarCount::KEPT_BEHIND) > now
}
