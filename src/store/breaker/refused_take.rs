use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::store::Take;

/// One of the takes that were refused, for the next probe.
///
/// The take that failed last may be of one broken key or node: it must not keep the breaker open
/// for all others.
#[derive(Debug, Default)]
pub(super) struct RefusedTake {
    /// Whether there is a take already, so that most threads only read.
    is_noted: AtomicBool,
    take: Mutex<Option<Take>>,
}

impl RefusedTake {
    pub(super) fn note(&self, take: &Take) {
        if self.is_noted.load(Ordering::Relaxed) || self.is_noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut noted = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(take.anew(0));
    }

    pub(super) fn take(&self) -> Option<Take> {
        let mut noted = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        let take = noted.take();
        if take.is_some() {
            self.is_noted.store(false, Ordering::Relaxed);
        }
        take
    }
}
