use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is in progress by the permits that are in use, and limits their number. Clones share
/// the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightCounter(Arc<AtomicUsize>);

/// A permit of an [`InFlightCounter`]. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping the permit gives it back immediately"]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl InFlightCounter {
    /// The number of permits in use.
    pub(crate) fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A permit, if fewer than `max` are in use.
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
