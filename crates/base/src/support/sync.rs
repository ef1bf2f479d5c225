use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Locks a mutex, also after a panic: what this crate locks is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A background task, which is aborted when this is dropped.
#[derive(Debug)]
pub struct OwnedTask(pub AbortHandle);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
