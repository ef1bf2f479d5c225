use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic: what this crate locks is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
