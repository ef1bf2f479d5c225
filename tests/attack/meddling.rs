//! A store around another one that answers some takes by itself.

use std::fmt;
use std::sync::{Arc, Mutex};

use tidegate::decision::Receipt;
use tidegate::store::StoreFuture;
use tidegate::{Decision, Store, Take};

/// `None` leaves the answer to the inner store.
type Answer = dyn Fn(&Take) -> Option<StoreFuture<Decision>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Meddling {
    inner: Arc<dyn Store>,
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<Take>>>,
}

impl Meddling {
    pub(crate) fn new(
        inner: impl Store,
        answer: impl Fn(&Take) -> Option<StoreFuture<Decision>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(inner),
            answer: Arc::new(answer),
            asked: Arc::default(),
        }
    }

    /// Only remembers what it is asked.
    pub(crate) fn listening(inner: impl Store) -> Self {
        Self::new(inner, |_| None)
    }

    /// How many takes of this kind it was asked.
    pub(crate) fn asked(&self, is_meant: impl Fn(&Take) -> bool) -> usize {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|take| is_meant(take)).count()
    }
}

impl fmt::Debug for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

impl Store for Meddling {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.asked.lock().expect("no panic").push(take.clone());
        let inner = || self.inner.take(take);
        (self.answer)(take).unwrap_or_else(inner)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.inner.refund(take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        self.inner.reset(take)
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
