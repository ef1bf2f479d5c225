//! Counts of the calendar, behind a count of windows or alone.

use proptest::prelude::{any, *};
use tidegate::{Algorithm, Quota};

use super::directed::{pass, play, rule, take, take_one};
use super::history::{
    Cost, History, KeyRows, MAX_NUMBER, Move, Number, RowNumbers, RuleNumbers, Step, write,
};

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

const fn few() -> MonthRow {
    MonthRow {
        max: 5,
        cost: 1,
        length: LENGTH,
        off: 0,
        is_alone: false,
    }
}

fn with_month(takes: u16, deadline: Option<i64>, month: MonthRow) -> Step {
    let row = RowNumbers {
        cost: Cost::Units(1),
        takes,
        deadline,
    };
    let of = KeyRows {
        key: 1,
        rule: 0,
        rows: vec![row],
        month: Some(month),
    };
    Step::Take(vec![of], false)
}

fn minute() -> RuleNumbers {
    rule(3, 9_000_000, 3, 4)
}

/// Histories in which no state is damaged: both counts deny in turn, and each number changes.
pub(super) fn sound() -> impl Iterator<Item = History> {
    let changes = [
        few(),
        MonthRow { max: 0, ..few() },
        MonthRow { max: 2, ..few() },
        MonthRow { cost: 0, ..few() },
        MonthRow { cost: 2, ..few() },
        MonthRow { cost: 6, ..few() },
        MonthRow { off: 1, ..few() },
        MonthRow { off: -2, ..few() },
        MonthRow {
            length: LENGTH / 3,
            ..few()
        },
    ];
    let alone = [false, true].into_iter();
    let in_turn = alone.flat_map(move |is_alone| {
        changes.clone().map(move |other| {
            let take = |takes, month| {
                let month = MonthRow { is_alone, ..month };
                with_month(takes, None, month)
            };
            let late = MonthRow { is_alone, ..few() };
            let steps = vec![
                take(1, few()),
                take(1, few()),
                pass(300_000),
                take(1, other.clone()),
                with_month(1, Some(-1), late),
                take(4, other.clone()),
                take(1, few()),
                pass(9_000_000),
                take(1, other.clone()),
                take(2, few()),
                Step::Reset(5),
                take(1, few()),
                take(1, few()),
                take_one(),
                Step::Clock(Move::By(LENGTH as i64)),
                take(2, other.clone()),
                take(9, few()),
                pass(-9_000_000),
                take(1, few()),
                // The bucket drains at another pace from its next charge on.
                Step::Rule(0, rule(6, 9_000_000, 6, 4)),
                take(1, MonthRow { cost: 5, ..few() }),
            ];
            play(minute(), steps)
        })
    });
    let beside = [None, Some(Step::List(1)), Some(Step::Set(1, vec![0]))];
    in_turn.chain(beside.into_iter().map(denied_beside))
}

/// Its count denies, and that of windows holds something else, or nothing.
fn denied_beside(other: Option<Step>) -> History {
    let mut steps = vec![with_month(1, None, few()), pass(12_000_000)];
    steps.extend(other);
    let none = MonthRow { cost: 5, ..few() };
    steps.extend([with_month(1, None, none.clone()), with_month(3, None, none)]);
    play(minute(), steps)
}

/// Each field of its state says something else.
pub(super) fn damaged() -> impl Iterator<Item = History> {
    let numbers = [
        Number::Is(0),
        Number::Is(1 << 51),
        Number::IsNow(0),
        Number::IsModulus(-1),
        Number::More(1),
    ];
    let fields = (0..3).flat_map(move |field| {
        let of = numbers.clone().into_iter();
        of.map(move |number| Step::Field(5, field, number))
    });
    let others = [
        Step::Flip(5, 0, 1),
        Step::Cut(5, 21),
        Step::Write(5, vec![254; 23]),
        Step::List(5),
    ];
    fields.chain(others).map(|damage| {
        let take = || with_month(1, None, few());
        let steps = vec![
            take(),
            take(),
            damage,
            take(),
            with_month(9, None, few()),
            self::take(Cost::Units(1)),
        ];
        play(minute(), steps)
    })
}
