//! When days, weeks and months begin, beside another library with data of its own.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Datelike, Days, LocalResult, Months, NaiveDate, TimeZone, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use tidegate::rule::{BeginningError, Period, Weekday};

/// A week, and a month, says nothing of where it begins, or has a weekday or a day.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Day,
    Week(Option<Weekday>),
    Month(Option<u8>),
}

const UNITS: [Unit; 3] = [Unit::Day, Unit::Week(None), Unit::Month(None)];

const WEEKDAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

impl Unit {
    /// From each weekday, and from each day of the month.
    fn with_beginnings() -> Vec<Self> {
        let weeks = WEEKDAYS.map(|weekday| Self::Week(Some(weekday)));
        let months = (1..=31).map(|day| Self::Month(Some(day)));
        weeks.into_iter().chain(months).collect()
    }

    fn ours(self) -> Period {
        match self {
            Self::Day => Period::DAY,
            Self::Week(None) => Period::WEEK,
            Self::Week(Some(weekday)) => Period::WEEK.from_weekday(weekday).expect("of a week"),
            Self::Month(None) => Period::MONTH,
            Self::Month(Some(day)) => Period::MONTH.from_day(day).expect("a day"),
        }
    }

    fn first(self, day: NaiveDate) -> NaiveDate {
        match self {
            Self::Day => day,
            Self::Week(weekday) => {
                let name = weekday.unwrap_or(Weekday::Monday).to_string();
                let weekday: chrono::Weekday = name.parse().expect("both know it");
                day.week(weekday).first_day()
            }
            Self::Month(from) => {
                let first = first_of_month(day, from);
                if first <= day {
                    first
                } else {
                    first_of_month(day - Months::new(1), from)
                }
            }
        }
    }

    /// The first day of the period that is so many behind that of `first`.
    fn behind(self, first: NaiveDate, number: i32) -> NaiveDate {
        let count = number.unsigned_abs();
        match self {
            Self::Month(from) if number < 0 => first_of_month(first - Months::new(count), from),
            Self::Month(from) => first_of_month(first + Months::new(count), from),
            _ => {
                let each = if matches!(self, Self::Week(_)) { 7 } else { 1 };
                let days = Days::new(each * u64::from(count));
                if number < 0 {
                    first - days
                } else {
                    first + days
                }
            }
        }
    }
}

/// This day in the month of `day`, or the last one that the month has.
fn first_of_month(day: NaiveDate, from: Option<u8>) -> NaiveDate {
    let mut days = (1..=from.unwrap_or(1)).rev();
    let first = days.find_map(|it| day.with_day(it.into()));
    first.expect("each month has a first")
}

/// The first instant of a day, in seconds.
fn start_of(zone: Tz, day: NaiveDate) -> i64 {
    let midnight = day.and_hms_opt(0, 0, 0).expect("a time");
    match zone.from_local_datetime(&midnight) {
        LocalResult::Single(start) | LocalResult::Ambiguous(start, _) => start.timestamp(),
        LocalResult::None => {
            let has_begun = |second: i64| date_at(zone, second) >= day;
            let around = midnight.and_utc().timestamp();
            let (mut before, mut behind) = (around - 30 * 3_600, around + 30 * 3_600);
            while behind - before > 1 {
                let middle = before.midpoint(behind);
                *if has_begun(middle) {
                    &mut behind
                } else {
                    &mut before
                } = middle;
            }
            behind
        }
    }
}

fn date_at(zone: Tz, second: i64) -> NaiveDate {
    let instant: DateTime<Utc> = DateTime::from_timestamp(second, 0).expect("a time");
    instant.with_timezone(&zone).date_naive()
}

/// The period of a second, and the end of the next one, in seconds.
fn expected(zone: Tz, unit: Unit, second: i64) -> [i64; 3] {
    let first = unit.first(date_at(zone, second));
    let starts = (-1..=5).map(|number| start_of(zone, unit.behind(first, number)));
    let mut starts: Vec<_> = starts.collect();
    starts.sort_unstable();
    starts.dedup();
    let end = starts.partition_point(|start| *start <= second);
    [starts[end - 1], starts[end], starts[end + 1]]
}

fn time(second: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second.unsigned_abs())
}

fn check(zone: Tz, unit: Unit, second: i64) {
    let period = unit.ours().in_zone(zone.name()).expect("both know it");
    let Range { start, end } = period.around(time(second));
    let next_end = period.around(end).end;
    assert_eq!(
        [start, end, next_end],
        expected(zone, unit, second).map(time),
        "{period} at {second}"
    );
    // Its last microsecond is in it.
    let last = period.around(end - Duration::from_micros(1));
    assert_eq!(last, start..end, "{period} at {second}");
}

/// From 2000 to 2025: of other times, the data of both libraries differ for some zones.
const SECONDS: Range<i64> = 946_684_800..1_764_547_200;

#[test]
fn random_instants_and_zones() {
    let mut random = fastrand::Rng::with_seed(20_261_201);
    for _ in 0..20_000 {
        let zone = TZ_VARIANTS[random.usize(..TZ_VARIANTS.len())];
        check(zone, UNITS[random.usize(..3)], random.i64(SECONDS));
    }
}

/// From each weekday and each day that a month may begin on.
#[test]
fn random_instants_and_beginnings() {
    let mut random = fastrand::Rng::with_seed(20_270_115);
    let units = Unit::with_beginnings();
    for number in 0..20_000 {
        let zone = TZ_VARIANTS[random.usize(..TZ_VARIANTS.len())];
        check(zone, units[number % units.len()], random.i64(SECONDS));
    }
}

/// A period that would begin on a day which its zone skipped begins with the next one.
#[test]
fn beginnings_on_days_that_were_skipped() {
    let mut random = fastrand::Rng::with_seed(9);
    for (name, (year, month, day)) in [
        ("Pacific/Apia", (2011, 12, 30)),
        ("Pacific/Fakaofo", (2011, 12, 30)),
        ("Pacific/Kwajalein", (1993, 8, 21)),
        ("Pacific/Kiritimati", (1994, 12, 31)),
        ("Pacific/Enderbury", (1994, 12, 31)),
    ] {
        let zone: Tz = name.parse().expect("a zone");
        let skipped = NaiveDate::from_ymd_opt(year, month, day).expect("a day");
        let next = start_of(zone, skipped + Days::new(1));
        assert_eq!(start_of(zone, skipped), next, "{name}");
        let weekday = skipped.weekday().num_days_from_monday() as usize;
        let mut units = vec![Unit::Week(Some(WEEKDAYS[weekday]))];
        units.push(Unit::Month(u8::try_from(day).ok()));
        for unit in &units {
            let period = unit.ours().in_zone(name).expect("both know it");
            assert_eq!(period.around(time(next)).start, time(next), "{name}");
        }
        for unit in units.into_iter().chain(Unit::with_beginnings()) {
            for _ in 0..100 {
                check(zone, unit, next + random.i64(-70 * 86_400..70 * 86_400));
            }
        }
    }
}

/// Seconds around each midnight at which, or near which, clocks are put forward or back.
#[test]
fn changes_of_daylight_saving() {
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        // At midnight.
        "America/Sao_Paulo",
        "America/Havana",
        "Asia/Beirut",
        "America/Asuncion",
        // From a minute past midnight to the day before.
        "America/St_Johns",
        "Atlantic/Azores",
        // A day was skipped.
        "Pacific/Apia",
        "Australia/Lord_Howe",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let others = Unit::with_beginnings();
    for name in zones {
        let zone: Tz = name.parse().expect("a zone");
        let offset = |second: i64| {
            let there = DateTime::from_timestamp(second, 0).expect("a time");
            let there = there.with_timezone(&zone).naive_local();
            there.and_utc().timestamp() - second
        };
        let mut hours = SECONDS.step_by(3_600);
        let changes = hours
            .by_ref()
            .filter(|it| offset(*it) != offset(it + 3_600));
        let mut number = 0;
        for change in changes {
            number += 1;
            for _ in 0..10 {
                let around = change + random.i64(-90_000..90_000);
                UNITS.iter().for_each(|unit| check(zone, *unit, around));
                check(zone, others[random.usize(..others.len())], around);
            }
        }
        assert!(number > 2, "{name} has changes");
    }
}

/// Without a zone no library is asked.
#[test]
fn months_of_utc() {
    let units = Unit::with_beginnings();
    for second in SECONDS.step_by(3_600 * 7) {
        for unit in UNITS.iter().chain(&units) {
            let [start, end, _] = expected(Tz::UTC, *unit, second);
            assert_eq!(unit.ours().around(time(second)), time(start)..time(end));
        }
    }
    let february = |year| {
        let day = NaiveDate::from_ymd_opt(year, 2, 10).expect("a day");
        let noon = day.and_hms_opt(12, 0, 0).expect("a time").and_utc();
        let Range { start, end } = Period::MONTH.around(time(noon.timestamp()));
        end.duration_since(start).expect("it ends behind").as_secs() / 86_400
    };
    assert_eq!([2023, 2024, 2100, 2000].map(february), [28, 29, 28, 29]);
}

/// By Python's `calendar.monthrange` and `zoneinfo`: months that do not have the day, and days
/// without a midnight or that were skipped.
#[test]
fn last_days_of_months() {
    for (zone, from, second, period) in [
        ("UTC", 31, 1_803_729_600, 1_801_353_600..1_803_772_800),
        ("UTC", 31, 1_835_438_400, 1_835_395_200..1_838_073_600),
        ("UTC", 29, 1_803_902_400, 1_803_772_800..1_806_278_400),
        ("UTC", 30, 4_107_499_200, 4_107_456_000..4_110_048_000),
        (
            "Africa/Cairo",
            30,
            1_272_535_200,
            1_269_900_000..1_272_578_400,
        ),
        (
            "Africa/Cairo",
            31,
            1_272_618_000,
            1_272_578_400..1_275_253_200,
        ),
        (
            "Asia/Beirut",
            31,
            1_364_637_600,
            1_362_002_400..1_364_680_800,
        ),
        (
            "Asia/Beirut",
            31,
            1_364_720_400,
            1_364_680_800..1_367_269_200,
        ),
        (
            "Pacific/Apia",
            30,
            1_325_282_400,
            1_325_239_200..1_327_831_200,
        ),
        (
            "Pacific/Kiritimati",
            31,
            788_911_200,
            788_868_000..791_460_000,
        ),
    ] {
        let month = Period::MONTH.from_day(from).expect("a day");
        let month = month.in_zone(zone).expect("both know it");
        let expected = time(period.start)..time(period.end);
        assert_eq!(month.around(time(second)), expected, "{month}");
    }
}

#[test]
fn a_zone_that_is_none() {
    let unknown = Period::DAY.in_zone("Berlin").expect_err("no zone");
    assert_eq!(
        unknown.to_string(),
        "no time zone is named \"Berlin\", expected one such as \"Europe/Berlin\", or \"UTC\""
    );
}

#[test]
fn beginnings_that_are_none() {
    let told = |made: Result<Period, BeginningError>| made.expect_err("none").to_string();
    let days = "expected 1 to 31, in a shorter month its last day";
    for day in [0, 32, u8::MAX] {
        let expected = format!("a month from {day}, {days}");
        assert_eq!(told(Period::MONTH.from_day(day)), expected);
    }
    let expected = format!("a month from sunday, {days}");
    assert_eq!(told(Period::MONTH.from_weekday(Weekday::Sunday)), expected);
    let expected = "a week from 15, expected a weekday such as \"sunday\"";
    assert_eq!(told(Period::WEEK.from_day(15)), expected);
    let instead = "expected a time zone in place of it: a day of \"Etc/GMT+6\" begins at 06:00 UTC";
    assert_eq!(
        told(Period::DAY.from_day(6)),
        format!("a day from 6, {instead}")
    );
    let of_weekday = Period::DAY.from_weekday(Weekday::Monday);
    assert_eq!(told(of_weekday), format!("a day from monday, {instead}"));
    // And so it does.
    let day = Period::DAY.in_zone("Etc/GMT+6").expect("a zone");
    assert_eq!(day.around(time(7 * 3_600)).start, time(6 * 3_600));
}
