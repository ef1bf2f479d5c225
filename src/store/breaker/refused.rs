use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::store::Take;

/// One of the takes that did not get through, for a look after the store: what failed last may be about one key or one
/// node alone, and must not keep the breaker open for all others.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Whether one stands here, so that the many others only read.
    is_noted: AtomicBool,
    take: Mutex<Option<Take>>,
}

impl Refused {
    pub(super) fn note(&self, take: &Take) {
        if self.is_noted.load(Ordering::Relaxed) || self.is_noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut noted = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = Some(take.clone().cost(0));
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
