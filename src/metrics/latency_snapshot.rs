use std::time::Duration;

/// How long a store took to answer, as a histogram.
///
/// Only answers that a request had to wait for are in it. A memory store has its answers at once,
/// and the clock is not read for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencySnapshot(Vec<LatencyBucket>);

/// The answers of a [`LatencySnapshot`] that took longer than the bucket before says, and at most
/// as long as this one says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyBucket {
    /// The longest time in this bucket; `None` for the last one, which has no bound.
    pub at_most: Option<Duration>,
    /// How many answers took so long. Answers in shorter buckets are not in it.
    pub count: u64,
    /// How long these answers took together.
    pub sum: Duration,
}

impl LatencySnapshot {
    pub(super) const fn new(buckets: Vec<LatencyBucket>) -> Self {
        Self(buckets)
    }

    /// The buckets, the shortest latencies first: 100 µs, 250 µs, 500 µs, and so on up to 1 s, and
    /// one without a bound.
    #[must_use]
    pub fn buckets(&self) -> &[LatencyBucket] {
        &self.0
    }

    /// How many answers there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).sum()
    }

    /// How long all of them took together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        let micros = self.0.iter().map(|bucket| bucket.sum.as_micros() as u64);
        Duration::from_micros(micros.fold(0, u64::saturating_add))
    }
}
