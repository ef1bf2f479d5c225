use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is in progress, and limits its number. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct InFlightCounter(Arc<AtomicUsize>);

/// What an [`InFlightCounter`] counts until this is dropped.
#[derive(Debug)]
#[must_use = "it is counted only until this is dropped"]
pub struct InFlight {
    counter: Arc<AtomicUsize>,
    number: usize,
}

impl InFlightCounter {
    /// How many are in progress.
    pub fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more, if fewer than `max` are in progress.
    pub fn try_acquire(&self, max: usize) -> Option<InFlight> {
        self.try_acquire_many(1, max)
    }

    /// Counts so many more, if they and those in progress are at most `max`.
    pub fn try_acquire_many(&self, number: usize, max: usize) -> Option<InFlight> {
        let relaxed = Ordering::Relaxed;
        let add = |used: usize| used.checked_add(number).filter(|sum| *sum <= max);
        let added = self.0.fetch_update(relaxed, relaxed, add);
        let counter = added.ok().map(|_| Arc::clone(&self.0))?;
        Some(InFlight { counter, number })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.number, Ordering::Relaxed);
    }
}
