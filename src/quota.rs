use std::fmt;
use std::time::Duration;

/// The most quotas that one rule may have.
pub(crate) const MAX_QUOTAS: usize = 16;

/// A limit over a window: at most `max` units in any `window`.
///
/// A `Quota` is always valid: its constructors check it.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Quota;
///
/// let quota = Quota::new(Duration::from_secs(10), 5)?;
/// assert_eq!(quota.max(), 5);
/// assert_eq!(quota.window(), Duration::from_secs(10));
///
/// // A hundred in every second, not one in every hundredth of a second.
/// assert_eq!(Quota::per_second(100), Quota::new(Duration::from_secs(1), 100)?);
///
/// // Where a list of quotas is wanted, one quota is a list.
/// let rule = tidegate::Rule::new("login", Quota::per_minute(5))?;
/// assert_eq!(rule.quotas(), [Quota::per_minute(5)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    max: u64,
    /// Whole milliseconds, kept in microseconds: the unit of every store's clock.
    window: u64,
    /// Only GCRA reads it.
    burst: u64,
}

impl Quota {
    /// The largest `max`: 15 digits, the most that a `RateLimit-Policy` field may carry.
    pub const MAX_UNITS: u64 = 999_999_999_999_999;

    /// The longest window: ten years of 365.25 days, as a configuration file counts years.
    pub const MAX_WINDOW: Duration = Duration::from_secs(36_525 * 24 * 60 * 6);

    /// At most `max` units in any `window`.
    ///
    /// A `max` of 0 denies every request that costs anything. A window that is not a whole number
    /// of milliseconds is rounded up to one.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the window is zero or longer than [`Quota::MAX_WINDOW`], or if `max`
    /// is above [`Quota::MAX_UNITS`].
    pub fn new(window: Duration, max: u64) -> Result<Self, QuotaError> {
        if window.is_zero() {
            return Err(QuotaError::ZeroWindow);
        }
        if window > Self::MAX_WINDOW {
            return Err(QuotaError::WindowTooLong);
        }
        if max > Self::MAX_UNITS {
            return Err(QuotaError::MaxTooLarge);
        }
        let millis = window.as_nanos().div_ceil(1_000_000);
        let window = u64::try_from(millis).expect("ten years of milliseconds fit") * 1_000;
        Ok(Self::from_micros(max, window))
    }

    /// At most `burst` units together under [`Algorithm::Gcra`](crate::Algorithm::Gcra), however
    /// long no take came; other algorithms ignore it. Default: `max`.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the burst is 0 (use a `max` of 0 to deny every request), if it takes
    /// longer than [`Quota::MAX_WINDOW`] to come back, or if it is above [`Quota::MAX_UNITS`].
    pub fn with_burst(mut self, burst: u64) -> Result<Self, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::ZeroBurst);
        }
        self.burst = burst;
        let longest = Self::MAX_WINDOW.as_micros() * u128::from(self.max.max(1));
        if burst > Self::MAX_UNITS || u128::from(burst) * u128::from(self.window) > longest {
            return Err(QuotaError::BurstTooLarge);
        }
        Ok(self)
    }

    /// This quota without bursts: one unit at each turn, of which there are `max` in a window.
    ///
    /// A timer is late by a millisecond or two, and under a burst of 1 that delays all later turns.
    /// So turns of less than 100 ms that nobody took in time can be taken late: one, or those of the
    /// last 10 ms.
    #[cfg(feature = "config")]
    pub(crate) fn evenly(self) -> Result<Self, QuotaError> {
        const LATE: u64 = 10_000;
        let turn = self.window / self.max.max(1);
        self.with_burst(match turn {
            100_000.. => 1,
            turn => 1 + LATE.div_ceil(turn.max(1)),
        })
    }

    pub(crate) const fn without_burst(self) -> Self {
        Self::from_micros(self.max, self.window)
    }

    /// A quota with a valid window, in microseconds.
    pub(crate) const fn from_micros(max: u64, window: u64) -> Self {
        Self::from_parts(max, window, max)
    }

    /// A quota of valid parts.
    pub(crate) const fn from_parts(max: u64, window: u64, burst: u64) -> Self {
        Self { max, window, burst }
    }

    /// At most `max` units in any second. This and the next three take 32 bits, of which each number
    /// is a valid max, so that they need no error; [`new`](Self::new) takes more.
    #[must_use]
    pub const fn per_second(max: u32) -> Self {
        Self::per_seconds(max, 1)
    }

    /// At most `max` units in any minute.
    #[must_use]
    pub const fn per_minute(max: u32) -> Self {
        Self::per_seconds(max, 60)
    }

    /// At most `max` units in any hour.
    #[must_use]
    pub const fn per_hour(max: u32) -> Self {
        Self::per_seconds(max, 60 * 60)
    }

    /// At most `max` units in any 24 hours.
    #[must_use]
    pub const fn per_day(max: u32) -> Self {
        Self::per_seconds(max, 24 * 60 * 60)
    }

    const fn per_seconds(max: u32, seconds: u64) -> Self {
        Self::from_micros(max as u64, seconds * 1_000_000)
    }

    /// How many units fit into one window.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// How many units fit together under GCRA.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window)
    }

    /// The window in microseconds, a multiple of 1,000.
    pub(crate) const fn window_micros(&self) -> u64 {
        self.window
    }
}

/// One quota where a list of them is wanted.
impl IntoIterator for Quota {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.max, ShortWindow(self))
    }
}

/// The window as people write it: the largest unit that divides it, such as `10s` or `500ms`.
pub(crate) struct ShortWindow<'a>(pub(crate) &'a Quota);

impl fmt::Display for ShortWindow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
            (1, "ms"),
        ];
        let millis = self.0.window / 1_000;
        let (unit, name) = UNITS
            .into_iter()
            .find(|(unit, _)| millis.is_multiple_of(*unit))
            .expect("every number is a multiple of one");
        write!(f, "{}{name}", millis / unit)
    }
}

/// Why a [`Quota`] cannot be.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The window is zero.
    #[error("the window is zero, expected at least 1 ms")]
    ZeroWindow,
    /// The window is longer than [`Quota::MAX_WINDOW`].
    #[error("the window is too long, expected at most ten years (3652.5 days)")]
    WindowTooLong,
    /// The count is above [`Quota::MAX_UNITS`].
    #[error("the max count is too large, expected at most {}", Quota::MAX_UNITS)]
    MaxTooLarge,
    /// The burst is zero.
    #[error("the burst is zero and would deny every request, expected at least 1")]
    ZeroBurst,
    /// The burst is above [`Quota::MAX_UNITS`], or drains in more than [`Quota::MAX_WINDOW`].
    #[error("the burst is too large, expected what comes back in at most ten years (3652.5 days)")]
    BurstTooLarge,
}

crate::error::debug_as_message!(QuotaError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let second = Duration::from_secs(1);
        assert_eq!(Quota::new(Duration::ZERO, 1), Err(QuotaError::ZeroWindow));
        assert_eq!(Quota::new(Duration::MAX, 1), Err(QuotaError::WindowTooLong));
        assert_eq!(Quota::new(second, u64::MAX), Err(QuotaError::MaxTooLarge));
        assert!(Quota::new(Quota::MAX_WINDOW, Quota::MAX_UNITS).is_ok());
        assert!(Quota::new(second, 0).is_ok());
        let burst = |max, burst| Quota::per_second(max).with_burst(burst);
        assert_eq!(burst(5, 0), Err(QuotaError::ZeroBurst));
        assert_eq!(burst(0, 0), Err(QuotaError::ZeroBurst));
        assert_eq!(burst(5, 1).map(|quota| quota.burst()), Ok(1));
        assert_eq!(burst(5, u64::MAX), Err(QuotaError::BurstTooLarge));
    }

    #[test]
    fn windows_round_up_to_milliseconds() {
        let rounded = |nanos| {
            Quota::new(Duration::from_nanos(nanos), 1)
                .map(|quota| quota.window_micros())
                .ok()
        };
        assert_eq!(rounded(1), Some(1_000));
        assert_eq!(rounded(1_000_000), Some(1_000));
        assert_eq!(rounded(1_000_001), Some(2_000));
    }

    #[test]
    fn shown_in_the_largest_unit() {
        let shown = |millis| {
            let quota = Quota::new(Duration::from_millis(millis), 5).expect("valid");
            quota.to_string()
        };
        assert_eq!(shown(10_000), "5 per 10s");
        assert_eq!(shown(90_000), "5 per 90s");
        assert_eq!(shown(86_400_000), "5 per 1d");
        assert_eq!(shown(1), "5 per 1ms");
    }
}
