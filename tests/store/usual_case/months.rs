//! Counts of the calendar, behind a count of windows or alone.

use proptest::prelude::{any, *};
use tidegate::{Algorithm, Quota};

use super::history::{KeyRows, MAX_NUMBER, write};

/// Behind it, a record says how many counts its take is over.
pub(super) const JOINT: u16 = 32_768;
/// The first byte of a rule of the calendar.
const CALENDAR: u8 = 17;
/// The longest period: several windows of most rules.
const LENGTH: u64 = 60_000_000;

#[derive(Debug, Clone)]
pub(super) struct MonthRow {
    pub(super) max: u64,
    pub(super) cost: u64,
    /// Of each period, in microseconds: another zone has other ends.
    pub(super) length: u64,
    /// By how many periods the process's clock is off.
    pub(super) off: i64,
    /// In the place of the count of windows: of a log.
    pub(super) is_alone: bool,
}

pub(super) fn month() -> impl Strategy<Value = MonthRow> {
    let max = prop::sample::select(vec![0, 3, 3, 12, 12, 200, 200, Quota::MAX_UNITS]);
    let cost = prop_oneof![
        9 => Just(1),
        4 => 0..8_u64,
        1 => Just(Quota::MAX_UNITS / 3),
        1 => Just(MAX_NUMBER),
    ];
    let length = prop::sample::select(vec![LENGTH, LENGTH, LENGTH, LENGTH / 7, 3_600_000_000]);
    let off = prop_oneof![12 => Just(0), 1 => -2..=2_i64];
    let all = (max, cost, length, off, any::<bool>());
    all.prop_map(|(max, cost, length, off, is_alone)| MonthRow {
        max,
        cost,
        length,
        off,
        is_alone,
    })
}

impl MonthRow {
    /// As `lua/formats.md` says.
    pub(super) fn rule(&self, now: u64) -> Vec<u8> {
        let begin = (now - now % self.length).saturating_add_signed(self.off * self.length as i64);
        let (end, next_end) = (begin + self.length, begin + 2 * self.length);
        let mut bytes = vec![CALENDAR];
        write(&[begin, end, next_end, self.max], &mut bytes);
        bytes
    }
}

impl KeyRows {
    /// Whether its count of windows is charged: only of a log is a count of the calendar alone.
    pub(super) fn has_windows(&self, algorithm: Algorithm) -> bool {
        let is_log = algorithm == Algorithm::SlidingLog;
        !is_log || self.month.as_ref().is_none_or(|month| !month.is_alone)
    }

    /// The numbers of its keys: that of the calendar is another one.
    pub(super) fn keys(&self, algorithm: Algorithm) -> impl Iterator<Item = u8> {
        let windows = self.has_windows(algorithm).then_some(self.key);
        let month = self.month.as_ref().map(|_| self.key + 4);
        windows.into_iter().chain(month)
    }
}

/// What is asked where nothing else is said.
pub(super) const FEW: MonthRow = MonthRow {
    max: 5,
    cost: 1,
    length: LENGTH,
    off: 0,
    is_alone: false,
};
