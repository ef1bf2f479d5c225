//! How many of something are in progress, with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the permits that are out. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightCounter(Arc<AtomicUsize>);

/// One of them, given back when it is dropped.
#[derive(Debug)]
#[must_use = "it is given back at once"]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl InFlightCounter {
    pub(crate) fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A permit, if fewer than `max` are out.
    pub(crate) fn try_acquire(&self, max: usize) -> Option<Permit> {
        let relaxed = Ordering::Relaxed;
        let add = |number| (number < max).then_some(number + 1);
        let added = self.0.fetch_update(relaxed, relaxed, add);
        added.is_ok().then(|| Permit(Arc::clone(&self.0)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
