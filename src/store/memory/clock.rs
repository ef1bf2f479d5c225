use tokio::time::Instant;

/// Microseconds since an epoch of its own.
#[derive(Debug)]
pub(super) enum Clock {
    Monotonic {
        epoch: Instant,
    },
    #[cfg(feature = "test-util")]
    Manual(ManualClock),
}

impl Clock {
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Monotonic { epoch } => {
                let elapsed = epoch.elapsed();
                elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros())
            }
            #[cfg(feature = "test-util")]
            Self::Manual(clock) => clock.now(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::Monotonic {
            epoch: Instant::now(),
        }
    }
}

/// A clock that tests move by hand, in microseconds since any epoch.
///
/// Clones show the same time.
#[cfg(feature = "test-util")]
#[derive(Debug, Clone, Default)]
pub struct ManualClock(std::sync::Arc<std::sync::atomic::AtomicU64>);

#[cfg(feature = "test-util")]
impl ManualClock {
    /// Sets the time.
    pub fn set(&self, micros: u64) {
        self.0.store(micros, std::sync::atomic::Ordering::Relaxed);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
