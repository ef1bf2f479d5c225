use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock of this process. It shows the microseconds since it was made.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The processor's time-stamp counter, or the system's monotonic clock where the counter is not
    /// reliable.
    Counter {
        /// The counter.
        clock: quanta::Clock,
        /// What the counter showed when the clock was made.
        epoch: u64,
    },
    /// Tokio's clock, which tests can pause.
    Tokio {
        /// What it showed when this clock was made.
        epoch: Instant,
        /// What the host's clock showed then.
        began: SystemTime,
    },
    /// A clock that tests set by hand.
    #[cfg(feature = "test-util")]
    Manual(ManualClock),
}

impl Clock {
    /// A clock that tests can pause with `tokio::time::pause`.
    pub fn tokio() -> Self {
        Self::Tokio {
            epoch: Instant::now(),
            began: SystemTime::now(),
        }
    }

    /// The time in microseconds.
    pub fn now(&self) -> u64 {
        match self {
            Self::Counter { clock, epoch } => clock.delta_as_nanos(*epoch, clock.raw()) / 1_000,
            Self::Tokio { epoch, .. } => micros(epoch.elapsed()),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.now(),
        }
    }

    /// The host's time in microseconds since 1970. Tokio's clock goes on from what that was when
    /// this clock was made; one that tests set by hand shows it itself.
    pub fn wall(&self) -> u64 {
        let time = match self {
            Self::Counter { .. } => SystemTime::now(),
            Self::Tokio { epoch, began } => *began + epoch.elapsed(),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => return clock.now(),
        };
        micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The time in nanoseconds.
    pub fn nanos(&self) -> u64 {
        match self {
            Self::Counter { clock, epoch } => clock.delta_as_nanos(*epoch, clock.raw()),
            Self::Tokio { epoch, .. } => nanos(epoch.elapsed()),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.now().saturating_mul(1_000),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros())
}

/// The nanoseconds of the longest durations do not fit: those are without an end.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        let epoch = clock.raw();
        Self::Counter { clock, epoch }
    }
}

/// A clock that tests set by hand. It begins at 0. Clones show the same time.
///
/// ```
/// use tidegate::test_util::ManualClock;
///
/// let clock = ManualClock::default();
/// let clone = clock.clone();
/// clock.set(1_500_000);
/// assert_eq!(clone.now(), 1_500_000);
/// ```
#[cfg(feature = "test-util")]
#[derive(Debug, Clone, Default)]
pub struct ManualClock(std::sync::Arc<AtomicU64>);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Sets the time, in microseconds since any instant.
    pub fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::Relaxed);
    }

    /// The time in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
