use std::sync::Arc;
use std::time::Duration;

use crate::store::Store;

/// A store under test and its clock.
pub trait Context: Send + Sync {
    /// The store. It is empty when the context is new, and the same in every call.
    fn store(&self) -> Arc<dyn Store>;

    /// Moves the store's clock forward. Nothing else moves it, and all decisions read it.
    ///
    /// The suite moves it by some days altogether. It needs a resolution of one microsecond.
    fn advance(&self, by: Duration);
}
