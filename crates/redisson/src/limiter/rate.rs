use std::time::Duration;

use super::error::{LimiterError, LimiterErrorKind};

/// Whether all processes share one budget.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{Rate, RateType};
///
/// // Ten calls a second by all processes together, and not ten by each.
/// let rate = Rate::new(RateType::Overall, 10, Duration::from_secs(1))?;
/// assert_eq!(rate, Rate::overall(10, Duration::from_secs(1))?);
/// # Ok::<(), tidegate::limiter::LimiterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RateType {
    /// One budget for all processes together.
    #[default]
    Overall,
    /// One budget for each client. On Redis, a client is one connected `Redis` handle with its
    /// clones. In memory, there is one client.
    PerClient,
}

/// A rate: at most this many permits in any interval.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::Rate;
///
/// let rate = Rate::overall(10, Duration::from_secs(1))?;
/// assert_eq!(rate.permits(), 10);
/// // Forgotten an hour after the last grant.
/// let rate = rate.with_keep_alive(Duration::from_secs(3600))?;
/// # let _ = rate;
/// # Ok::<(), tidegate::limiter::LimiterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    rate_type: RateType,
    permits: u64,
    /// In milliseconds.
    interval: u64,
    /// In milliseconds; 0 if the rate is kept until it is deleted.
    pub(super) keep_alive: u64,
}

impl Rate {
    /// The largest number of permits in an interval: 2^32 - 1, because Redisson stores the permits
    /// of a grant in 4 bytes.
    pub const MAX_PERMITS: u64 = u32::MAX as u64;

    /// The longest interval, and the longest keep-alive time: 3650 days.
    pub const MAX_INTERVAL: Duration = Duration::from_secs(3650 * 86_400);

    /// A rate of at most `permits` in any `interval`.
    ///
    /// `permits` is 1 to [`MAX_PERMITS`](Self::MAX_PERMITS). `interval` is 1 ms to
    /// [`MAX_INTERVAL`](Self::MAX_INTERVAL), rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::InvalidRate`] outside of these ranges.
    pub fn new(
        rate_type: RateType,
        permits: u64,
        interval: Duration,
    ) -> Result<Self, LimiterError> {
        if permits == 0 || permits > Self::MAX_PERMITS {
            let max = Self::MAX_PERMITS;
            return Err(invalid(format!("{permits} permits, expected 1 to {max}")));
        }
        Ok(Self {
            rate_type,
            permits,
            interval: millis("an interval", interval)?,
            keep_alive: 0,
        })
    }

    /// [`Rate::new`] with [`RateType::Overall`].
    ///
    /// # Errors
    ///
    /// Those of [`Rate::new`].
    pub fn overall(permits: u64, interval: Duration) -> Result<Self, LimiterError> {
        Self::new(RateType::Overall, permits, interval)
    }

    /// [`Rate::new`] with [`RateType::PerClient`].
    ///
    /// # Errors
    ///
    /// Those of [`Rate::new`].
    pub fn per_client(permits: u64, interval: Duration) -> Result<Self, LimiterError> {
        Self::new(RateType::PerClient, permits, interval)
    }

    /// Lets the limiter forget the rate when nothing was granted for this long. Default: the rate
    /// is kept until it is deleted. Grants of Redisson before 3.38 do not count for this.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::KeepAliveTooShort`] if it is shorter than the interval, and
    /// [`LimiterErrorKind::InvalidRate`] if it is longer than
    /// [`MAX_INTERVAL`](Self::MAX_INTERVAL).
    pub fn with_keep_alive(mut self, keep_alive: Duration) -> Result<Self, LimiterError> {
        let interval = self.interval();
        if keep_alive < interval {
            let message = format!(
                "a keep-alive time of {keep_alive:?} is shorter than the interval of \
                 {interval:?}: permits would be forgotten while they count"
            );
            let kind = LimiterErrorKind::KeepAliveTooShort;
            return Err(LimiterError::of(kind, message));
        }
        self.keep_alive = millis("a keep-alive time", keep_alive)?;
        Ok(self)
    }

    /// Whether all processes share one budget.
    #[must_use]
    pub const fn rate_type(&self) -> RateType {
        self.rate_type
    }

    /// The permits in an interval.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// The interval.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.interval)
    }

    /// The time without a grant after which the rate is forgotten; `None` for never.
    #[must_use]
    pub const fn keep_alive(&self) -> Option<Duration> {
        match self.keep_alive {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    pub(super) const fn interval_millis(&self) -> u64 {
        self.interval
    }

    /// A rate as it is stored in Redis, perhaps by another program.
    #[cfg(feature = "redis")]
    pub(super) fn stored(
        rate_type: &str,
        permits: u64,
        interval: u64,
        keep_alive: u64,
    ) -> Option<Self> {
        let rate_type = match rate_type {
            "0" => RateType::Overall,
            "1" => RateType::PerClient,
            _ => return None,
        };
        (interval > 0).then_some(Self {
            rate_type,
            permits,
            interval,
            keep_alive,
        })
    }
}

fn millis(what: &str, duration: Duration) -> Result<u64, LimiterError> {
    let max = Rate::MAX_INTERVAL;
    if duration.is_zero() || duration > max {
        return Err(invalid(format!(
            "{what} of {duration:?}, expected a millisecond to {max:?}"
        )));
    }
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Ok(u64::try_from(millis).expect("it is not longer than ten years"))
}

fn invalid(message: String) -> LimiterError {
    LimiterError::of(LimiterErrorKind::InvalidRate, message)
}
