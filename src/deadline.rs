use std::time::Duration;

use tokio::time::Instant;

/// Until when an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    /// The time-out that ends then.
    #[cfg_attr(not(feature = "redis"), expect(dead_code))]
    pub(crate) timeout: Duration,
}

impl Deadline {
    /// Longer time-outs are cut to this one, so that every deadline is an instant that the clock
    /// can show.
    const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    pub(crate) fn after(timeout: Duration) -> Self {
        let timeout = timeout.min(Self::MAX_TIMEOUT);
        let at = Instant::now() + timeout;
        Self { at, timeout }
    }

    /// This one or the other, whichever is earlier.
    pub(crate) fn or_earlier(self, other: Option<Self>) -> Self {
        other.filter(|other| other.at < self.at).unwrap_or(self)
    }
}
