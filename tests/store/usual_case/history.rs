//! Random histories of script calls, and the bytes that they are played by.

use proptest::prelude::{any, *};
use tidegate::{Algorithm, Quota};

use super::months::{JOINT, MonthRow, month};

/// No deadline, and a cost that never fits.
pub(super) const MAX_NUMBER: u64 = 1 << 53;
const MODULUS: u64 = 1 << 52;
const MIN_SLICE: u64 = 1 << 20;
/// The kind of a call that asks for a lone take.
const LONE: u8 = 3;
/// Not far from the real time.
pub(super) const BEGINNING: u64 = 1_800_000_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct QuotaNumbers {
    pub(super) max: u64,
    /// In microseconds.
    pub(super) window: u64,
    pub(super) burst: u64,
    pub(super) sub_windows: u64,
}

#[derive(Debug, Clone)]
pub(super) struct RuleNumbers {
    /// Each with a window of its own.
    pub(super) quotas: Vec<QuotaNumbers>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Cost {
    Units(u64),
    /// The max of the rule's first quota, and so many units more.
    Max(i64),
}

#[derive(Debug, Clone)]
pub(super) struct RowNumbers {
    pub(super) cost: Cost,
    pub(super) takes: u16,
    /// How much later than now, in microseconds.
    pub(super) deadline: Option<i64>,
}

/// A question about a key: its number, and that of its rule.
#[derive(Debug, Clone)]
pub(super) struct KeyRows {
    pub(super) key: u8,
    pub(super) rule: usize,
    pub(super) rows: Vec<RowNumbers>,
    /// The take of its first row is of a count of the calendar, too.
    pub(super) month: Option<MonthRow>,
}

/// Where the clock goes.
#[derive(Debug, Clone)]
pub(super) enum Move {
    By(i64),
    /// To when the take before so many others leaves the window of the first rule, and so many
    /// microseconds more.
    Edge(usize, i64),
    /// To the next multiple of a slice, a sub-window or a millisecond, and so many more.
    Slice(i64),
    SubWindow(i64),
    Millisecond(i64),
}

/// A number that is written into a state.
#[derive(Debug, Clone)]
pub(super) enum Number {
    Is(i64),
    IsNow(i64),
    IsModulus(i64),
    More(i64),
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Clock(Move),
    /// One call; the flag says whether the mixed world skips the usual case.
    Take(Vec<KeyRows>, bool),
    /// Receipts of a key: how many are newer, and the most units to give back. The flag says
    /// whether they may be given back once more.
    Refund(u8, Vec<(u8, u64)>, bool),
    /// From now on another rule in this place.
    Rule(usize, RuleNumbers),
    Field(u8, usize, Number),
    /// What else is done to a key, as `play.lua` says.
    Change(&'static str, u8, Vec<u8>),
}

#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) rules: [RuleNumbers; 2],
    pub(super) steps: Vec<Step>,
}

fn quota() -> impl Strategy<Value = QuotaNumbers> {
    let millis = prop_oneof![
        6 => prop::sample::select(vec![1, 2, 10, 1_000, 1_000, 60_000, 3_600_000]),
        1 => 1..100_000_u64,
    ];
    let max = prop_oneof![
        6 => 1..12_u64,
        1 => Just(0),
        2 => 20..200_u64,
        2 => prop::sample::select(vec![Quota::MAX_UNITS, Quota::MAX_UNITS - 6]),
    ];
    let burst = prop_oneof![3 => Just(None), 2 => (1..20_u64).prop_map(Some)];
    let sub_windows = prop::sample::select(vec![1, 2, 7, 64, 64, 1_024]);
    (max, millis, burst, sub_windows).prop_map(|(max, millis, burst, sub_windows)| QuotaNumbers {
        max,
        window: millis * 1_000,
        burst: burst.unwrap_or(max),
        sub_windows,
    })
}

fn rule() -> impl Strategy<Value = RuleNumbers> {
    let quotas = prop_oneof![
        5 => prop::collection::vec(quota(), 1),
        1 => prop::collection::vec(quota(), 2..4),
    ];
    quotas.prop_map(|mut quotas| {
        quotas.sort_by_key(|quota| quota.window);
        quotas.dedup_by_key(|quota| quota.window);
        RuleNumbers { quotas }
    })
}

fn key() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(1_u8), 1 => 1..=4_u8]
}

/// Also one of the calendar.
fn any_key() -> impl Strategy<Value = u8> {
    prop_oneof![4 => key(), 1 => key().prop_map(|key| key + 4)]
}

fn row() -> impl Strategy<Value = RowNumbers> {
    let cost = prop_oneof![
        10 => Just(Cost::Units(1)),
        4 => (0..8_u64).prop_map(Cost::Units),
        1 => (50..150_u64).prop_map(Cost::Units),
        2 => (-3..=1_i64).prop_map(Cost::Max),
        1 => Just(Cost::Units(Quota::MAX_UNITS / 3)),
        1 => Just(Cost::Units(MAX_NUMBER)),
    ];
    let takes = prop_oneof![4 => Just(1_u16), 2 => 2..4_u16, 1 => 2..40_u16];
    let deadline = prop_oneof![12 => Just(None), 1 => (-2..=1_i64).prop_map(Some)];
    (cost, takes, deadline).prop_map(|(cost, takes, deadline)| RowNumbers {
        cost,
        takes,
        deadline,
    })
}

fn take() -> impl Strategy<Value = Step> {
    let rows = || {
        prop_oneof![
            6 => prop::collection::vec(row(), 1),
            1 => prop::collection::vec(row(), 2..4),
        ]
    };
    let rules = || prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let months = || prop_oneof![2 => Just(None), 1 => month().prop_map(Some)];
    let of = |(key, rule, rows, month)| KeyRows {
        key,
        rule,
        rows,
        month,
    };
    let one = (key(), rules(), rows(), months()).prop_map(move |it| vec![of(it)]);
    let questions = prop::collection::vec((1..=4_u8, rules(), rows(), months()), 2..=4);
    let several = (questions, prop::bool::weighted(0.15)).prop_map(move |(questions, repeats)| {
        let mut keys: Vec<KeyRows> = Vec::new();
        for it in questions {
            if repeats || keys.iter().all(|before| before.key != it.0) {
                keys.push(of(it));
            }
        }
        keys
    });
    let keys = prop_oneof![3 => one, 1 => several];
    (keys, any::<bool>()).prop_map(|(keys, skips)| Step::Take(keys, skips))
}

fn clock() -> impl Strategy<Value = Step> {
    let near = || -1..=1_i64;
    let to = prop_oneof![
        8 => prop::sample::select(vec![0, 1, 300, 999, 1_000, 1_001]).prop_map(Move::By),
        4 => (1..5_000_i64).prop_map(Move::By),
        3 => (1..2_000_000_i64).prop_map(Move::By),
        8 => (0..12_usize, near()).prop_map(|(newer, by)| Move::Edge(newer, by)),
        2 => near().prop_map(Move::Slice),
        2 => near().prop_map(Move::SubWindow),
        2 => near().prop_map(Move::Millisecond),
        2 => prop_oneof![-3..0_i64, -5_000..0_i64, -2_000_000..0_i64].prop_map(Move::By),
        1 => (1..100_000_000_000_i64).prop_map(Move::By),
    ];
    to.prop_map(Step::Clock)
}

/// A value that no script would have written, or a state that was damaged.
fn meddle() -> impl Strategy<Value = Step> {
    let near = || prop_oneof![2 => -2..=2_i64, 1 => -3_000_000..3_000_000_i64];
    let number = prop_oneof![
        2 => prop_oneof![0..12_i64, Just(1_i64 << 51)].prop_map(Number::Is),
        2 => near().prop_map(Number::IsNow),
        1 => (-200..=-1_i64).prop_map(Number::IsModulus),
        4 => near().prop_map(Number::More),
    ];
    let marks = prop::sample::select(vec![0_u8, b'x', 247, 248, 249, 250, 251, 252, 253, 254]);
    let text = (marks, 0..120_usize, any::<u8>()).prop_map(|(mark, length, fill)| {
        let mut text = vec![mark];
        text.resize(length + 1, fill);
        text
    });
    let change = |what| move |(key, text)| Step::Change(what, key, text);
    let flip = (any::<u16>(), 1..=255_u8).prop_map(|(at, by)| format!("{at} {by}").into_bytes());
    let cut = (0..80_u16).prop_map(|length| length.to_string().into_bytes());
    let shift = (1..40_u64).prop_map(|less| (MODULUS - less).to_string().into_bytes());
    prop_oneof![
        2 => (any_key(), text.clone()).prop_map(change("write")),
        1 => (key(), text).prop_map(change("set")),
        1 => (any_key(), Just(b"x".to_vec())).prop_map(change("list")),
        3 => (any_key(), flip).prop_map(change("flip")),
        2 => (any_key(), cut).prop_map(change("cut")),
        9 => (any_key(), 0..11_usize, number).prop_map(|(key, at, to)| Step::Field(key, at, to)),
        2 => (key(), shift).prop_map(change("shift")),
    ]
}

fn step(meddles: u32) -> impl Strategy<Value = Step> {
    let receipts = prop::collection::vec((0..8_u8, prop_oneof![1..4_u64, Just(1 << 50)]), 1..4);
    prop_oneof![
        40 => take(),
        20 => clock(),
        5 => (any_key(), receipts, prop::bool::weighted(0.1))
            .prop_map(|(key, receipts, keeps)| Step::Refund(key, receipts, keeps)),
        1 => any_key().prop_map(|key| Step::Change("reset", key, Vec::new())),
        3 => (0..2_usize, rule()).prop_map(|(place, rule)| Step::Rule(place, rule)),
        meddles => meddle(),
    ]
}

/// With one value or state in so many steps that is damaged.
pub(super) fn history() -> impl Strategy<Value = History> {
    let steps = prop_oneof![
        2 => prop::collection::vec(step(1), 1..48),
        1 => prop::collection::vec(step(12), 1..24),
    ];
    (rule(), rule(), steps).prop_map(|(one, other, steps)| History {
        rules: [one, other],
        steps,
    })
}

impl QuotaNumbers {
    /// The pace of a bucket.
    fn pace(&self) -> (u64, u64) {
        let (mut divisor, mut rest) = (self.max.max(1), self.window);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        (self.max.max(1) / divisor, self.window / divisor)
    }

    /// How long a charge counts at most.
    fn life(&self, algorithm: Algorithm) -> u64 {
        if algorithm != Algorithm::Gcra {
            return self.window;
        }
        let (units, micros) = self.pace();
        let held = u128::from(self.max.max(self.burst)) * u128::from(micros);
        u64::try_from(held.div_ceil(units.into())).expect("at most twenty windows")
    }
}

impl RuleNumbers {
    fn life(&self, algorithm: Algorithm) -> u64 {
        let lives = self.quotas.iter().map(|quota| quota.life(algorithm));
        lives.max().expect("a quota")
    }

    fn slice(&self, algorithm: Algorithm) -> u64 {
        (self.life(algorithm) / 16).max(MIN_SLICE)
    }

    fn expiry(&self, algorithm: Algorithm) -> u64 {
        (self.life(algorithm) + 2 * self.slice(algorithm)).div_ceil(1_000)
    }

    /// Whether a lone take under it says so.
    fn is_lone(&self, algorithm: Algorithm) -> bool {
        let [quota] = &self.quotas[..] else {
            return false;
        };
        let (units, micros) = quota.pace();
        let product = u128::from(quota.burst + units) * u128::from(micros);
        quota.max > 0 && (algorithm != Algorithm::Gcra || product < MAX_NUMBER.into())
    }

    /// As `lua/formats.md` says.
    fn bytes(&self, algorithm: Algorithm) -> Vec<u8> {
        let mut bytes = vec![self.quotas.len() as u8];
        write(&[self.expiry(algorithm), self.slice(algorithm)], &mut bytes);
        for quota in &self.quotas {
            write(&[quota.max, quota.window], &mut bytes);
            let (units, micros) = quota.pace();
            match algorithm {
                Algorithm::SlidingWindow => write(&[quota.sub_windows], &mut bytes),
                Algorithm::Gcra => write(
                    &[quota.burst, quota.life(algorithm), units, micros],
                    &mut bytes,
                ),
                _ => {}
            }
        }
        bytes
    }
}

/// In 7 bytes each.
pub(super) fn write(numbers: &[u64], into: &mut Vec<u8>) {
    for number in numbers {
        into.extend_from_slice(&number.to_be_bytes()[1..]);
    }
}

/// The bytes of a call's questions at this instant.
pub(super) fn questions(
    algorithm: Algorithm,
    rules: &[RuleNumbers],
    keys: &[KeyRows],
    now: u64,
) -> Vec<u8> {
    let mut numbers: Vec<u8> = keys.iter().flat_map(|key| key.keys(algorithm)).collect();
    numbers.sort_unstable();
    let repeats = numbers.windows(2).any(|pair| pair[0] == pair[1]);
    let lone = match keys {
        [key] => Some(&rules[key.rule]).filter(|rule| key.is_lone() && rule.is_lone(algorithm)),
        _ => None,
    };
    let kind = if lone.is_some() { LONE } else { repeats.into() };
    // Behind the place of the records the id of the call.
    let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let mut places = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        places.push(u16::try_from(bytes.len() + 1).expect("short"));
        let mut of_windows = keys.iter().filter(|key| key.has_windows(algorithm));
        if of_windows.any(|key| key.rule == at) {
            bytes.extend(rule.bytes(algorithm));
        }
    }
    let mut months = Vec::new();
    for month in keys.iter().filter_map(|key| key.month.as_ref()) {
        months.push(u16::try_from(bytes.len() + 1).expect("short"));
        bytes.extend(month.rule(now));
    }
    let mut months = months.into_iter();
    let records = u16::try_from(bytes.len() + 1).expect("short");
    bytes[1..3].copy_from_slice(&records.to_be_bytes());
    let write_row = |key: &KeyRows, row: &RowNumbers, bytes: &mut Vec<u8>| {
        let cost = match row.cost {
            Cost::Units(units) => units,
            Cost::Max(more) => rules[key.rule].quotas[0].max.saturating_add_signed(more),
        };
        bytes.extend(row.takes.to_be_bytes());
        let deadline = row.deadline.map(|later| now.saturating_add_signed(later));
        write(&[cost, deadline.unwrap_or(MAX_NUMBER)], bytes);
    };
    for key in keys {
        let number = key.keys(algorithm).count() as u16;
        let flag = key.month.as_ref().map_or(0, |_| JOINT);
        if key.has_windows(algorithm) {
            let rows = key.month.as_ref().map_or(key.rows.len() as u16, |_| number);
            bytes.extend(places[key.rule].to_be_bytes());
            bytes.extend((flag + rows).to_be_bytes());
            write_row(key, &key.rows[0], &mut bytes);
        }
        if let Some(month) = &key.month {
            let row = RowNumbers {
                cost: Cost::Units(month.cost),
                ..key.rows[0].clone()
            };
            let first = if number == 1 { 1 } else { 0 };
            bytes.extend(months.next().expect("one for each").to_be_bytes());
            bytes.extend((flag + first).to_be_bytes());
            write_row(key, &row, &mut bytes);
        }
    }
    for key in keys.iter().filter(|key| key.month.is_none()) {
        for row in &key.rows[1..] {
            write_row(key, row, &mut bytes);
        }
    }
    if let Some(rule) = lone {
        bytes.extend(rule.expiry(algorithm).to_string().into_bytes());
    }
    bytes
}

impl KeyRows {
    /// Whether it is one take of one count of windows.
    fn is_lone(&self) -> bool {
        self.month.is_none() && matches!(self.rows[..], [RowNumbers { takes: 1, .. }])
    }
}

impl History {
    /// The arguments of `play.lua`.
    pub(super) fn arguments(&self, algorithm: Algorithm) -> Vec<Vec<u8>> {
        let (mut now, mut rules, mut takes) = (BEGINNING, self.rules.clone(), Vec::new());
        let mut arguments = Vec::new();
        for step in &self.steps {
            let (what, keys, text, flag) = match step {
                Step::Clock(to) => {
                    now = to.from(now, &rules[0], &takes, algorithm);
                    continue;
                }
                Step::Rule(place, rule) => {
                    rules[*place] = rule.clone();
                    continue;
                }
                Step::Take(keys, skips) => {
                    takes.push(now);
                    let numbers = keys.iter().flat_map(|key| key.keys(algorithm)).collect();
                    let text = questions(algorithm, &rules, keys, now);
                    ("take", numbers, text, *skips)
                }
                Step::Refund(key, receipts, keeps) => {
                    let parts = receipts
                        .iter()
                        .map(|(newer, most)| format!("{newer} {most}"));
                    let text = parts.collect::<Vec<_>>().join(",").into_bytes();
                    ("refund", vec![*key], text, *keeps)
                }
                Step::Change(what, key, text) => (*what, vec![*key], text.clone(), false),
                Step::Field(key, number, to) => {
                    // The entries of a sliding window stand behind a number of two bytes.
                    let is_entry = algorithm == Algorithm::SlidingWindow && *number > 7;
                    let at = match is_entry {
                        true => 60 + 7 * (number - 8),
                        false => 2 + 7 * number,
                    };
                    let to = match to {
                        Number::Is(number) => format!("={number}"),
                        Number::IsNow(later) => format!("={}", now.saturating_add_signed(*later)),
                        Number::IsModulus(later) => {
                            format!("={}", MODULUS.saturating_add_signed(*later))
                        }
                        Number::More(more) => format!("+{more}"),
                    };
                    let text = format!("{at} {to}").into_bytes();
                    ("field", vec![*key], text, false)
                }
            };
            let keys: String = keys.iter().map(u8::to_string).collect();
            let flag = if flag { "1" } else { "0" };
            let now = now.to_string();
            arguments.extend([what.into(), now.into(), keys.into(), text, flag.into()]);
        }
        arguments
    }
}

impl Move {
    fn from(&self, now: u64, rule: &RuleNumbers, takes: &[u64], algorithm: Algorithm) -> u64 {
        let quota = &rule.quotas[0];
        let next = |of: u64, by: i64| ((now / of + 1) * of).saturating_add_signed(by);
        match *self {
            Self::By(micros) => now.saturating_add_signed(micros),
            Self::Edge(newer, by) => match takes.iter().rev().nth(newer) {
                Some(at) => (at + quota.window).saturating_add_signed(by).max(now),
                None => now,
            },
            Self::Slice(by) => next(rule.slice(algorithm), by),
            Self::SubWindow(by) => next((quota.window / quota.sub_windows).max(1), by),
            Self::Millisecond(by) => next(1_000, by),
        }
    }
}
