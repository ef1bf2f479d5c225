use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is in progress by the permits that are in use, and limits their number. Clones share
/// the count.
#[derive(Debug, Clone, Default)]
pub struct InFlightCounter(Arc<AtomicUsize>);

/// A permit of an [`InFlightCounter`]. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the permit gives it back immediately"]
pub struct Permit {
    counter: Arc<AtomicUsize>,
    number: usize,
}

impl InFlightCounter {
    /// The number of permits in use.
    pub fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A permit, if fewer than `max` are in use.
    pub fn try_acquire(&self, max: usize) -> Option<Permit> {
        self.try_acquire_many(1, max)
    }

    /// So many permits as one, if they and those in use are at most `max`.
    pub fn try_acquire_many(&self, number: usize, max: usize) -> Option<Permit> {
        let relaxed = Ordering::Relaxed;
        let add = |used: usize| used.checked_add(number).filter(|sum| *sum <= max);
        let added = self.0.fetch_update(relaxed, relaxed, add);
        let counter = added.ok().map(|_| Arc::clone(&self.0))?;
        Some(Permit { counter, number })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.number, Ordering::Relaxed);
    }
}
