use super::latency::BOUNDS;
use super::latency_snapshot::LatencySnapshot;

/// Which of a rule's latencies were published.
#[derive(Debug, Default)]
pub(super) struct PublishedLatency {
    buckets: [PublishedBucket; BOUNDS.len() + 1],
}

#[derive(Debug, Clone, Copy, Default)]
struct PublishedBucket {
    count: u64,
    micros: u64,
}

impl PublishedLatency {
    /// Calls `record` with the latencies of a snapshot that were not published yet: for each bucket
    /// with their mean in seconds, and with their number. Returns how many these were, at most
    /// `max`. The rest is recorded the next time.
    pub(super) fn record_new(
        &mut self,
        latency: &LatencySnapshot,
        max: u64,
        mut record: impl FnMut(f64, usize),
    ) -> u64 {
        let (mut recorded, mut shortest) = (0, 0);
        for (bucket, published) in latency.buckets().iter().zip(&mut self.buckets) {
            let longest = bucket.at_most.map_or(u64::MAX, micros);
            let new = PublishedBucket {
                count: bucket.count.saturating_sub(published.count),
                micros: micros(bucket.sum).saturating_sub(published.micros),
            };
            let count = new.count.min(max - recorded);
            if count > 0 {
                // The sum and the number are read one after the other: the sum may be without a
                // request that the number has, or the other way round. It is made up for later.
                let mean = new.micros as f64 / new.count as f64;
                let mean = mean.clamp(shortest as f64, longest as f64);
                published.count += count;
                let micros = (mean * count as f64).round() as u64;
                published.micros = published.micros.saturating_add(micros);
                recorded += count;
                record(mean / 1e6, usize::try_from(count).unwrap_or(usize::MAX));
            }
            shortest = longest.saturating_add(1);
        }
        recorded
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::LATENCY_BUCKETS;
    use crate::metrics::latency::Latency;

    #[test]
    fn each_latency_is_recorded_once() {
        let (latency, mut published) = (Latency::default(), PublishedLatency::default());
        let mut new = |micros: &[u64]| {
            for micros in micros {
                latency.add(Duration::from_micros(*micros));
            }
            let mut recorded = Vec::new();
            published.record_new(&latency.snapshot(), 100, |mean, count| {
                recorded.push((mean, count));
            });
            recorded
        };
        assert_eq!(new(&[200, 240, 3_000]), [(0.000_22, 2), (0.003, 1)]);
        assert_eq!(new(&[]), []);
        assert_eq!(new(&[240]), [(0.000_24, 1)]);
        assert_eq!(new(&[3_000_000]), [(3.0, 1)]);
    }

    #[test]
    fn a_latency_stays_in_its_bucket() {
        for (at, bound) in LATENCY_BUCKETS.iter().copied().enumerate() {
            let (latency, mut published) = (Latency::default(), PublishedLatency::default());
            for _ in 0..3 {
                latency.add(Duration::from_secs_f64(bound));
            }
            published.record_new(&latency.snapshot(), 100, |mean, _| {
                assert_eq!(mean, bound, "the bound of bucket {at} is in it");
            });
        }
    }

    #[test]
    fn what_is_too_much_at_once_is_recorded_later() {
        let (latency, mut published) = (Latency::default(), PublishedLatency::default());
        for micros in [50, 50, 50, 50, 50, 800] {
            latency.add(Duration::from_micros(micros));
        }
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(published.record_new(&latency.snapshot(), 2, |mean, _| {
                assert!(mean == 0.000_05 || mean == 0.000_8, "{mean}");
            }));
        }
        assert_eq!(counts, [2, 2, 2, 0]);
    }

    /// The number and the sum are two numbers, and requests go on while they are read.
    #[test]
    fn a_sum_that_lags_behind_is_made_up_for() {
        let bucket = |count, micros| {
            let mut buckets = Latency::default().snapshot().buckets().to_vec();
            buckets[1].count = count;
            buckets[1].sum = Duration::from_micros(micros);
            LatencySnapshot::new(buckets)
        };
        let mut published = PublishedLatency::default();
        let mut recorded = Vec::new();
        for (count, micros) in [(1, 0), (2, 400), (2, 400)] {
            published.record_new(&bucket(count, micros), 100, |mean, count| {
                recorded.push((mean, count));
            });
        }
        assert_eq!(recorded, [(0.000_101, 1), (0.000_25, 1)]);
    }
}
