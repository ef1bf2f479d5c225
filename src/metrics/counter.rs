use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads add to. Its readers see every addition, in no particular order.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, number: u64) {
        // What counting costs is measured against a build with this flag: `benches/counters.sh`.
        if !cfg!(tidegate_uncounted) {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn subtract(&self, number: u64) {
        if !cfg!(tidegate_uncounted) {
            self.0.fetch_sub(number, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
