use std::time::Duration;

use super::Store;
use super::wrapper::{Wrapped, Wrapper};

/// Bounds the time of a store's answers.
///
/// After that time the answer is a [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout).
/// A `RedisStore` inside, through whatever other wrappers, has its server refuse what is later. It
/// has a time-out of its own, too; the earlier one counts.
///
/// It needs a tokio runtime with its timer enabled, unless the store inside answers immediately.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, Store};
/// use tidegate::store::Timeout;
///
/// let store = Timeout::new(MemoryStore::new(), Duration::from_millis(20));
/// assert_eq!(store.name(), "memory");
/// ```
#[derive(Debug, Clone)]
pub struct Timeout<S>(Wrapped<S>);

impl<S: Store> Timeout<S> {
    /// Answers of `inner` within `bound`, or an error.
    #[must_use]
    pub fn new(inner: S, bound: Duration) -> Self {
        Self(Wrapped {
            timeout: Some(bound),
            ..Wrapped::bare(inner)
        })
    }
}

impl<S: Store> Wrapper for Timeout<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.0
    }
}
