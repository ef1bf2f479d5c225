use std::time::Duration;

use super::{LimiterError, LimiterErrorKind};

/// Whether all share one budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RateType {
    /// One budget for all processes together.
    #[default]
    Overall,
    /// One budget for each process: for each `Redis` handle that was connected. In memory there is one
    /// process.
    PerClient,
}

/// At most so many permits in any interval.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::Rate;
///
/// let rate = Rate::overall(10, Duration::from_secs(1))?;
/// assert_eq!(rate.permits(), 10);
/// // Forgotten an hour after the last grant.
/// let rate = rate.keep_alive(Duration::from_secs(3600))?;
/// # let _ = rate;
/// # Ok::<(), tidegate::limiter::LimiterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    kind: RateType,
    permits: u64,
    interval: u64,
    keep_alive: u64,
}

impl Rate {
    /// The largest number of permits in an interval: 2^32 - 1, since Redisson keeps a grant's permits in 4 bytes.
    pub const LARGEST: u64 = u32::MAX as u64;

    /// The longest interval and keep-alive time: 3650 days. The shortest is a millisecond.
    pub const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

    /// At most `permits`, 1 to [`LARGEST`](Self::LARGEST), in any `interval`, a millisecond to
    /// [`LONGEST`](Self::LONGEST) in whole milliseconds; what is less is rounded up.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::InvalidRate`] for other numbers.
    pub fn new(kind: RateType, permits: u64, interval: Duration) -> Result<Self, LimiterError> {
        if permits == 0 || permits > Self::LARGEST {
            let largest = Self::LARGEST;
            return Err(invalid(format!(
                "{permits} permits, expected 1 to {largest}"
            )));
        }
        Ok(Self {
            kind,
            permits,
            interval: millis("an interval", interval)?,
            keep_alive: 0,
        })
    }

    /// [`Rate::new`] of [`RateType::Overall`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn overall(permits: u64, interval: Duration) -> Result<Self, LimiterError> {
        Self::new(RateType::Overall, permits, interval)
    }

    /// [`Rate::new`] of [`RateType::PerClient`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn per_client(permits: u64, interval: Duration) -> Result<Self, LimiterError> {
        Self::new(RateType::PerClient, permits, interval)
    }

    /// The rate is forgotten when nothing was granted for so long, at least the interval. Default: it is kept until
    /// it is deleted.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::KeepAliveTooShort`] if it is shorter than the interval, and
    /// [`LimiterErrorKind::InvalidRate`] if it is longer than [`LONGEST`](Self::LONGEST).
    pub fn keep_alive(mut self, keep_alive: Duration) -> Result<Self, LimiterError> {
        if keep_alive < self.interval() {
            let interval = self.interval();
            let message = format!(
                "a keep-alive time of {keep_alive:?} is shorter than the interval of {interval:?}: permits would be forgotten while they count"
            );
            return Err(LimiterError::new(
                LimiterErrorKind::KeepAliveTooShort,
                message,
            ));
        }
        self.keep_alive = millis("a keep-alive time", keep_alive)?;
        Ok(self)
    }

    /// Whether all share one budget.
    #[must_use]
    pub const fn rate_type(&self) -> RateType {
        self.kind
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

    /// After how long without a grant the rate is forgotten, if ever.
    #[must_use]
    pub const fn kept_alive_for(&self) -> Option<Duration> {
        match self.keep_alive {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    pub(super) const fn interval_millis(&self) -> u64 {
        self.interval
    }

    #[cfg(feature = "redis")]
    pub(super) const fn keep_alive_millis(&self) -> u64 {
        self.keep_alive
    }

    /// What was kept in Redis, by whomever.
    #[cfg(feature = "redis")]
    pub(super) fn kept(kind: &str, permits: u64, interval: u64, keep_alive: u64) -> Option<Self> {
        let kind = match kind {
            "0" => RateType::Overall,
            "1" => RateType::PerClient,
            _ => return None,
        };
        (interval > 0).then_some(Self {
            kind,
            permits,
            interval,
            keep_alive,
        })
    }
}

fn millis(what: &str, duration: Duration) -> Result<u64, LimiterError> {
    let longest = Rate::LONGEST;
    if duration.is_zero() || duration > longest {
        return Err(invalid(format!(
            "{what} of {duration:?}, expected a millisecond to {longest:?}"
        )));
    }
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Ok(u64::try_from(millis).expect("it is not longer than ten years"))
}

fn invalid(message: String) -> LimiterError {
    LimiterError::new(LimiterErrorKind::InvalidRate, message)
}
