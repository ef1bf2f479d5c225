use std::error::Error;
use std::fmt;

use super::box_future::BoxFuture;
use super::error_callback::{ErrorCallback, Recovery};
use super::failed::Failed;

/// Error callbacks by type of error and priority.
///
/// The callback with the lowest priority number answers, among those whose type matches the error.
/// If several have the same number, the one that was added first answers. If none matches, the
/// error is not handled, as with [`Recovery::Propagate`].
///
/// ```
/// use http::StatusCode;
/// use tidegate::{ErrorCallbackChain, Failed, Recovery, StoreError};
/// use tidegate::key::KeyError;
///
/// let chain = ErrorCallbackChain::new()
///     .on::<KeyError>(async |_: Failed| (StatusCode::BAD_REQUEST, "who are you?"))
///     .on::<StoreError>(async |_: Failed| Recovery::Proceed)
///     .any_with_priority(9, async |_: Failed| StatusCode::BAD_GATEWAY);
/// # let _ = chain;
/// ```
#[derive(Default)]
pub struct ErrorCallbackChain {
    /// In the order in which they are tried.
    entries: Vec<Entry>,
}

struct Entry {
    priority: i32,
    matches: fn(&Failed) -> bool,
    callback: Box<dyn ErrorCallback>,
}

impl ErrorCallbackChain {
    /// The priority of callbacks that are added without one: 1.
    pub const DEFAULT_PRIORITY: i32 = 1;

    /// A chain without callbacks: it handles no error.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a callback for errors of the type `E`, with the priority 1. Its type matches as in
    /// [`Failed::downcast_ref`].
    #[must_use]
    pub fn on<E: Error + 'static>(self, callback: impl ErrorCallback) -> Self {
        self.on_with_priority::<E>(Self::DEFAULT_PRIORITY, callback)
    }

    /// Adds a callback for errors of the type `E`.
    #[must_use]
    pub fn on_with_priority<E: Error + 'static>(
        self,
        priority: i32,
        callback: impl ErrorCallback,
    ) -> Self {
        let matches = |failed: &Failed| failed.downcast_ref::<E>().is_some();
        self.with(priority, matches, callback)
    }

    /// Adds a callback for all errors, with the priority 1.
    #[must_use]
    pub fn any(self, callback: impl ErrorCallback) -> Self {
        self.any_with_priority(Self::DEFAULT_PRIORITY, callback)
    }

    /// Adds a callback for all errors.
    #[must_use]
    pub fn any_with_priority(self, priority: i32, callback: impl ErrorCallback) -> Self {
        self.with(priority, |_| true, callback)
    }

    fn with(
        mut self,
        priority: i32,
        matches: fn(&Failed) -> bool,
        callback: impl ErrorCallback,
    ) -> Self {
        let callback = Box::new(callback);
        let entries = &self.entries;
        let index = entries.partition_point(|entry| entry.priority <= priority);
        let entry = Entry {
            priority,
            matches,
            callback,
        };
        self.entries.insert(index, entry);
        self
    }
}

impl ErrorCallback for ErrorCallbackChain {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        match self.entries.iter().find(|entry| (entry.matches)(&failed)) {
            Some(entry) => entry.callback.recover(failed),
            None => Box::pin(std::future::ready(Recovery::Propagate)),
        }
    }
}

impl fmt::Debug for ErrorCallbackChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priorities = self.entries.iter().map(|entry| entry.priority);
        f.debug_list().entries(priorities).finish()
    }
}
