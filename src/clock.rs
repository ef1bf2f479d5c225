//! The time of this process.

use std::time::Duration;

use tokio::time::Instant;

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};

/// Microseconds since an epoch of its own.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The processor's time-stamp counter where that can be trusted.
    Counter {
        clock: quanta::Clock,
        /// As the counter stood.
        epoch: u64,
    },
    /// Tokio's, which tests can pause.
    Tokio { epoch: Instant },
    #[cfg(feature = "test-util")]
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio {
            epoch: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Counter { clock, epoch } => clock.delta_as_nanos(*epoch, clock.raw()) / 1_000,
            Self::Tokio { epoch } => micros(epoch.elapsed()),
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.now(),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros())
}

impl Default for Clock {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        let epoch = clock.raw();
        Self::Counter { clock, epoch }
    }
}

/// A clock that tests move by hand, in microseconds since any epoch.
///
/// Clones show the same time.
#[cfg(feature = "test-util")]
#[derive(Debug, Clone, Default)]
pub struct ManualClock(std::sync::Arc<AtomicU64>);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Sets the time.
    pub fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::Relaxed);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
