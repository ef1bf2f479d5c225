//! How many are inside, and room for no more than some.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts those that are inside.
#[derive(Debug, Default)]
pub(crate) struct Crowd(AtomicUsize);

/// A place among them, given back when it is dropped.
#[derive(Debug)]
#[must_use = "it is given back at once"]
pub(crate) struct Place<'a>(&'a Crowd);

impl Crowd {
    pub(crate) fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A place, if fewer than `most` are taken.
    pub(crate) fn enter(&self, most: usize) -> Option<Place<'_>> {
        let relaxed = Ordering::Relaxed;
        let add = |number| (number < most).then_some(number + 1);
        let entered = self.0.fetch_update(relaxed, relaxed, add);
        entered.is_ok().then(|| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
