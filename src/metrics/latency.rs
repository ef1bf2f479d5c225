use std::time::Duration;

use super::rule_counters::AtomicCounter;
use super::rule_snapshot::{LatencyBucket, LatencySnapshot};

/// How long a store took to answer: a histogram with fixed buckets.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [LatencyCounters; BOUNDS.len() + 1],
}

#[derive(Debug, Default)]
struct LatencyCounters {
    count: AtomicCounter,
    micros: AtomicCounter,
}

/// The longest latency of each bucket but the last, in microseconds: from a call on loopback to the
/// longest time-out that is usual.
pub(super) const BOUNDS: [u64; 13] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// The bounds of the histogram of the store's answers, in seconds, as exporters of metrics want
/// them: those of [`LatencySnapshot::buckets`].
pub const LATENCY_BUCKETS: &[f64] = &{
    let mut seconds = [0.0; BOUNDS.len()];
    let mut at = 0;
    while at < BOUNDS.len() {
        seconds[at] = BOUNDS[at] as f64 / 1e6;
        at += 1;
    }
    seconds
};

impl Latency {
    pub(crate) fn add(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = &self.buckets[BOUNDS.partition_point(|bound| *bound < micros)];
        bucket.count.add(1);
        bucket.micros.add(micros);
    }

    pub(super) fn snapshot(&self) -> LatencySnapshot {
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        let buckets = bounds
            .zip(&self.buckets)
            .map(|(bound, bucket)| LatencyBucket {
                at_most: bound.map(Duration::from_micros),
                count: bucket.count.get(),
                sum: Duration::from_micros(bucket.micros.get()),
            });
        LatencySnapshot(buckets.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_first_bucket_that_holds_it() {
        let latency = Latency::default();
        for micros in [0, 100, 101, 1_000_000, 1_000_001] {
            latency.add(Duration::from_micros(micros));
        }
        latency.add(Duration::MAX);
        let snapshot = latency.snapshot();
        let counts: Vec<_> = snapshot
            .buckets()
            .iter()
            .map(|bucket| bucket.count)
            .collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(snapshot.count(), 6);
        assert_eq!(
            snapshot.buckets()[1].at_most,
            Some(Duration::from_micros(250))
        );
        assert_eq!(snapshot.buckets()[1].sum, Duration::from_micros(101));
    }
}
