//! Histories made by hand, of `directed.txt`:
//!
//! ```text
//! == damaged gcra: a name       for this algorithm alone; no state is damaged in one that is sound
//! rule 5 1000 5 7               max, window in microseconds, burst and sub-windows of its rule
//! other 9 1000 9 7, 2 9 2 1     of its other rule, which is the same if nothing is said
//! each $to = 0 | now+2000       it is played with each of these
//! +300; next                    so many microseconds pass; until the last take leaves the window
//! take 2; take max+1; take      of so many units, of the rule's max and more, of one
//! take 1 1@-1; take-other       two rows, of which one is late; under the other rule
//! month cost=2 takes=9          of a count of the calendar, too
//! rule 6 1000 6 7; reset 5      from now on; 5 is the key of the calendar
//! 12 times take, refund
//! field 1 8 modulus-1           a field of a state is so many, or `+1` more
//! write 1 248x1 begin+0 7       bytes, and numbers of 7 bytes
//! ```

use std::fmt::Debug;
use std::str::FromStr;

use tidegate::Algorithm;

use super::history::{
    BEGINNING, Cost, History, KeyRows, Move, Number, QuotaNumbers, RowNumbers, RuleNumbers, Step,
    write,
};
use super::months::{FEW, MonthRow};

/// Histories in which no state is damaged.
pub(super) fn sound(algorithm: Algorithm) -> Vec<History> {
    histories("sound", algorithm)
}

pub(super) fn histories_of(algorithm: Algorithm) -> Vec<History> {
    [sound(algorithm), histories("damaged", algorithm)].concat()
}

pub(super) fn one_take() -> History {
    history("\nrule 1 1000 1 1\ntake")
}

fn histories(kind: &str, algorithm: Algorithm) -> Vec<History> {
    let cases = include_str!("directed.txt").split("\n== ").skip(1);
    let own = cases.filter(|case| {
        let (of, _) = case.split_once(": ").expect("a name");
        of == kind || of == format!("{kind} {}", algorithm.name())
    });
    own.flat_map(each).map(|case| history(&case)).collect()
}

/// The case with each of its values in turn.
fn each(case: &str) -> Vec<String> {
    let lines = case.lines();
    let each = lines.filter_map(|line| line.strip_prefix("each ")?.split_once(" = "));
    let mut all = vec![case.to_owned()];
    for (name, values) in each {
        let with = |text: String| values.split(" | ").map(move |it| text.replace(name, it));
        all = all.into_iter().flat_map(with).collect();
    }
    all
}

fn history(case: &str) -> History {
    let (mut rules, mut steps) = (Vec::new(), Vec::new());
    for line in case.lines().skip(1).filter(|line| !line.is_empty()) {
        match line.split_once(' ') {
            Some(("rule", numbers)) if steps.is_empty() => rules = vec![rule(numbers); 2],
            Some(("other", numbers)) => rules[1] = rule(numbers),
            Some(("each" | "#", _)) => {}
            _ => {
                for text in line.split("; ") {
                    let (times, some) = text.split_once(" times ").unwrap_or(("1", text));
                    let some: Vec<_> = some.split(", ").map(step).collect();
                    steps.extend(vec![some; parsed(times)].concat());
                }
            }
        }
    }
    let rules = rules.try_into().expect("two rules");
    History { rules, steps }
}

fn parsed<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error:?}"))
}

fn rule(text: &str) -> RuleNumbers {
    let quota = |text: &str| {
        let numbers: Vec<_> = text.split(' ').map(parsed).collect();
        let [max, window, burst, sub_windows] = numbers[..] else {
            panic!("no quota: {text}");
        };
        QuotaNumbers {
            max,
            window,
            burst,
            sub_windows,
        }
    };
    RuleNumbers {
        quotas: text.split(", ").map(quota).collect(),
    }
}

fn step(text: &str) -> Step {
    let words: Vec<_> = text.split(' ').collect();
    match words[..] {
        ["take", ref costs @ ..] => take(0, costs),
        ["take-other", ref costs @ ..] => take(1, costs),
        ["month", ref options @ ..] => month(options),
        ["refund"] => Step::Refund(1, vec![(0, 1)], false),
        ["rule", ..] => Step::Rule(0, rule(&text["rule ".len()..])),
        ["next"] => Step::Clock(Move::Edge(0, 0)),
        ["write", key, ref state @ ..] => Step::Change("write", parsed(key), bytes(state)),
        ["set", key, ref member @ ..] => Step::Change("set", parsed(key), bytes(member)),
        ["list", key] => Step::Change("list", parsed(key), b"x".to_vec()),
        ["reset", key] => Step::Change("reset", parsed(key), Vec::new()),
        ["flip", key] => Step::Change("flip", parsed(key), b"0 1".to_vec()),
        ["cut", key, length] => Step::Change("cut", parsed(key), length.into()),
        ["field", key, field, to] => Step::Field(parsed(key), parsed(field), number(to)),
        ["shift", key, by] => Step::Change("shift", parsed(key), by.into()),
        [micros] => Step::Clock(Move::By(parsed(micros))),
        _ => panic!("no step: {text}"),
    }
}

fn ask(rule: usize, rows: Vec<RowNumbers>, month: Option<MonthRow>) -> Step {
    let key = 1;
    let of = KeyRows {
        key,
        rule,
        rows,
        month,
    };
    Step::Take(vec![of], false)
}

fn row(text: &str) -> RowNumbers {
    let (cost, late) = text.split_once('@').unwrap_or((text, ""));
    RowNumbers {
        cost: match cost.strip_prefix("max") {
            Some(more) => Cost::Max(parsed(more)),
            None => Cost::Units(parsed(cost)),
        },
        takes: 1,
        deadline: (!late.is_empty()).then(|| parsed(late)),
    }
}

fn take(rule: usize, costs: &[&str]) -> Step {
    let costs = if costs.is_empty() { &["1"] } else { costs };
    ask(rule, costs.iter().map(|cost| row(cost)).collect(), None)
}

fn month(options: &[&str]) -> Step {
    let (mut month, mut row) = (FEW, row("1"));
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("max", max) => month.max = parsed(max),
            ("cost", cost) => month.cost = parsed(cost),
            ("length", micros) => month.length = parsed(micros),
            ("off", periods) => month.off = parsed(periods),
            ("takes", times) => row.takes = parsed(times),
            ("late", _) => row.deadline = Some(-1),
            ("alone" | "beside", _) => month.is_alone = *option == "alone",
            _ => panic!("no option: {option}"),
        }
    }
    ask(0, vec![row], Some(month))
}

fn number(text: &str) -> Number {
    let after = |begin: &str| Some(parsed(text.strip_prefix(begin)?));
    match (after("now"), after("modulus")) {
        (Some(later), _) => Number::IsNow(later),
        (_, Some(later)) => Number::IsModulus(later),
        _ if text.starts_with(['+', '-']) => Number::More(parsed(text)),
        _ => Number::Is(parsed(text)),
    }
}

fn bytes(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        match (word.split_once('x'), word.strip_prefix("begin")) {
            (Some((byte, times)), _) => bytes.extend(vec![parsed::<u8>(byte); parsed(times)]),
            (_, Some(later)) => {
                write(
                    &[BEGINNING.saturating_add_signed(parsed(later))],
                    &mut bytes,
                );
            }
            _ => write(&[parsed(word)], &mut bytes),
        }
    }
    bytes
}
