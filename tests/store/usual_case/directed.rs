//! Histories made by hand: what random ones find late.

use tidegate::{Algorithm, Quota};

use super::history::{
    BEGINNING, Cost, History, KeyRows, Move, Number, QuotaNumbers, RowNumbers, RuleNumbers, Step,
    write,
};
use super::months;

pub(super) fn rule(max: u64, window: u64, burst: u64, sub_windows: u64) -> RuleNumbers {
    RuleNumbers {
        quotas: vec![QuotaNumbers {
            max,
            window,
            burst,
            sub_windows,
        }],
    }
}

pub(super) fn take(cost: Cost) -> Step {
    let row = RowNumbers {
        cost,
        takes: 1,
        deadline: None,
    };
    take_rows(0, vec![row])
}

fn take_rows(rule: usize, rows: Vec<RowNumbers>) -> Step {
    let of = KeyRows {
        key: 1,
        rule,
        rows,
        month: None,
    };
    Step::Take(vec![of], false)
}

pub(super) fn take_one() -> Step {
    take(Cost::Units(1))
}

pub(super) fn pass(micros: i64) -> Step {
    Step::Clock(Move::By(micros))
}

pub(super) fn play(rule: RuleNumbers, steps: Vec<Step>) -> History {
    History {
        rules: [rule.clone(), rule],
        steps,
    }
}

pub(super) fn one_take() -> History {
    play(rule(1, 1_000, 1, 1), vec![take_one()])
}

/// Histories in which no state is damaged.
pub(super) fn sound(algorithm: Algorithm) -> Vec<History> {
    let mut histories = vec![unusual_questions(), refunded(), clock_goes_back()];
    histories.extend(reloads());
    histories.extend(months::sound());
    if algorithm == Algorithm::Gcra {
        histories.extend([rules_in_turn(), inexact_drain()]);
    }
    histories
}

pub(super) fn histories_of(algorithm: Algorithm) -> Vec<History> {
    let mut histories = sound(algorithm);
    histories.extend([large_totals(), totals_near_the_modulus(), another_mark()]);
    histories.extend(damaged_fields());
    histories.extend(months::damaged());
    match algorithm {
        Algorithm::Gcra => histories.extend([inexact_products(), damaged_burst()]),
        Algorithm::SlidingWindow => histories.push(entries_out_of_order()),
        Algorithm::SlidingLog => histories.extend(damaged_members()),
        Algorithm::FixedWindow => {}
        other => panic!("no histories of {other:?}"),
    }
    histories
}

/// Late takes, those that only look, and those that never fit.
fn unusual_questions() -> History {
    let costs = [Cost::Units(0), Cost::Max(1), Cost::Units(2)];
    let mut steps: Vec<_> = costs.into_iter().map(take).collect();
    let late = RowNumbers {
        cost: Cost::Units(1),
        takes: 1,
        deadline: Some(-1),
    };
    steps.push(take_rows(0, vec![late.clone()]));
    let usual = RowNumbers {
        deadline: None,
        ..late
    };
    let two_rows = vec![usual.clone(), usual];
    steps.extend([take_rows(0, two_rows.clone()), take_rows(1, two_rows)]);
    let mut history = play(rule(5, 1_000, 5, 7), steps);
    // The other rule has two quotas.
    history.rules[1].quotas = vec![rule(9, 1_000, 9, 7), rule(20, 9_000, 20, 7)]
        .into_iter()
        .flat_map(|rule| rule.quotas)
        .collect();
    history
}

/// Another max, and then a rule of another window at the very instant of the next take: that needs
/// a later expiry.
fn rules_in_turn() -> History {
    let (hour, other) = (3_600_000_000, rule(1, 1_000, 1, 1));
    let row = RowNumbers {
        cost: Cost::Units(1),
        takes: 1,
        deadline: None,
    };
    let mut steps = vec![take(Cost::Units(4)), Step::Rule(0, rule(20, hour, 20, 1))];
    steps.extend([take(Cost::Units(4)), pass(500_000_000)]);
    steps.extend([take_rows(1, vec![row]), take_one()]);
    let mut history = play(rule(2, hour, 4, 1), steps);
    history.rules[1] = other;
    history
}

/// What has drained under another max is a product that a double does not hold: a microsecond later
/// it would be a unit more.
fn inexact_drain() -> History {
    let (max, hour) = (9_999_997, 3_600_000_000);
    let to = Step::Rule(0, rule(10_000_000, hour, 10_000_000, 1));
    play(
        rule(max, hour, max, 1),
        vec![take(Cost::Max(0)), pass(1_156_666_667), to, take_one()],
    )
}

/// All that was charged is given back.
fn refunded() -> History {
    let refund = Step::Refund(1, vec![(0, 1)], false);
    let steps = [
        take_one(),
        refund.clone(),
        pass(2_000),
        take_one(),
        refund,
        take_one(),
    ];
    play(rule(5, 9_000, 5, 7), steps.into())
}

fn clock_goes_back() -> History {
    let steps = [
        take_one(),
        take_one(),
        pass(-300),
        take_one(),
        pass(600),
        take_one(),
    ];
    play(rule(5, 1_000, 5, 7), steps.into())
}

/// More units than a double counts exactly.
fn large_totals() -> History {
    let next_window = Step::Clock(Move::Edge(0, 0));
    let mut steps = vec![[take(Cost::Max(0)), next_window]; 12].concat();
    steps.extend([take_one(), take_one(), take(Cost::Units(3)), take_one()]);
    play(rule(Quota::MAX_UNITS, 1_000, Quota::MAX_UNITS, 7), steps)
}

fn totals_near_the_modulus() -> History {
    let three = take(Cost::Units(3));
    let steps = vec![
        take_one(),
        Step::Shift(1, (1 << 52) - 3),
        three.clone(),
        pass(1_000),
        three,
    ];
    play(rule(9, 9_000, 9, 7), steps)
}

fn another_mark() -> History {
    play(
        rule(1, 10_000, 1, 7),
        vec![take_one(), Step::Flip(1, 0, 1), take_one()],
    )
}

/// Each number of a quota changes.
fn reloads() -> impl Iterator<Item = History> {
    let rules = [
        rule(7, 10_000, 4, 4),
        rule(4, 14_000, 4, 4),
        rule(4, 10_000, 6, 4),
        rule(4, 10_000, 4, 5),
    ];
    rules.into_iter().map(|other| {
        let steps = vec![
            take_one(),
            pass(3_000),
            take_one(),
            Step::Rule(0, other),
            take_one(),
            pass(4_000),
            take_one(),
            take(Cost::Units(3)),
            pass(4_000),
            take_one(),
        ];
        play(rule(4, 10_000, 4, 4), steps)
    })
}

/// Each field of a state says something else.
fn damaged_fields() -> impl Iterator<Item = History> {
    let numbers = [
        Number::Is(0),
        Number::Is(1 << 51),
        Number::IsNow(2_000),
        Number::IsNow(2_000_000),
        Number::IsModulus(-1),
        Number::More(1),
        Number::More(-1),
    ];
    (0..11).flat_map(move |field| {
        numbers.clone().map(|number| {
            let steps = vec![
                take_one(),
                pass(1_500),
                take_one(),
                Step::Field(1, field, number),
                take_one(),
                pass(300),
                take_one(),
                Step::Refund(1, vec![(0, 1)], false),
            ];
            play(rule(3, 5_000, 3, 4), steps)
        })
    })
}

/// A bucket that is so full that products of its units are not exact.
fn inexact_products() -> History {
    let mut steps = vec![take_one(), Step::Field(1, 8, Number::Is(1 << 41))];
    steps.extend(vec![[Step::Field(1, 8, Number::More(1)), take_one()]; 20].concat());
    play(rule(3, 7_000, 3, 1), steps)
}

/// A burst that no quota may have, in a bucket of another max.
fn damaged_burst() -> History {
    let burst = Step::Field(1, 4, Number::Is(1 << 51));
    let other = Step::Rule(0, rule(5, 5_000, 3, 4));
    let steps = vec![take_one(), burst, other, take_one()];
    play(rule(3, 5_000, 3, 4), steps)
}

/// The older one of two entries has the larger total, and has left the window.
fn entries_out_of_order() -> History {
    let (max, window, now) = (3, 4_000, BEGINNING);
    // Serial number, last charge, max, window, needed until, refundable since, sub-window, base.
    let head = [
        2,
        now - 1_000,
        max,
        window,
        now + 3_000,
        now - 9_000,
        1_000,
        0,
    ];
    // Stamp and total.
    let entries = [now - 5_000, 1 << 51, now - 1_000, 2];
    let mut state = vec![248];
    write(&head, &mut state);
    state.extend(2_u16.to_be_bytes());
    write(&entries, &mut state);
    play(
        rule(max, window, max, 4),
        vec![Step::Write(1, state), take_one()],
    )
}

/// The oldest member of a log inside of the window is no entry, or says what cannot be; or there is
/// none.
fn damaged_members() -> impl Iterator<Item = History> {
    let mut impossible = vec![247];
    let numbers = [0, 1 << 51, 0, BEGINNING, BEGINNING, 5_000, 3, 1];
    write(&numbers, &mut impossible);
    let mut other_mark = vec![246];
    write(
        &[1, 1, 0, BEGINNING, BEGINNING, 5_000, 3, 1],
        &mut other_mark,
    );
    let members = [b"short".to_vec(), other_mark, impossible];
    let middle = members.into_iter().map(|member| {
        let steps = vec![
            take_one(),
            pass(2_000),
            take_one(),
            // Before the newest entry, which has the same score.
            Step::Set(1, member),
            pass(4_000),
            take_one(),
            take_one(),
        ];
        play(rule(3, 5_000, 3, 1), steps)
    });
    let newest_left = vec![
        take_one(),
        pass(2_000),
        take_one(),
        pass(6_000),
        Step::Field(1, 4, Number::IsNow(0)),
        take_one(),
    ];
    let newest_unknown = vec![
        take_one(),
        pass(2_000),
        take_one(),
        pass(2_000),
        take_one(),
        Step::Flip(1, 0, 1),
        pass(2_000),
        take_one(),
    ];
    // Its stamps are no longer those of its score.
    let newest_ended = vec![
        take_one(),
        pass(2_000),
        Step::Field(1, 3, Number::IsNow(-9_000)),
        Step::Field(1, 4, Number::IsNow(-9_000)),
        take(Cost::Units(3)),
    ];
    let newest = [newest_left, newest_unknown, newest_ended];
    middle.chain(newest.map(|steps| play(rule(3, 5_000, 3, 1), steps)))
}
