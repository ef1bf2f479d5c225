use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a number that this process has not used before: for an owner, a hold or a request.
pub(super) fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
