//! Attacks on `Lock`: holders and waiters that leave at every moment, owners in each other's way,
//! faults, foreign values, and settings at their ends.

mod aborts;
mod bad_state;
mod faults;
mod leases;
mod owners;
mod runtimes;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::lock::Lock;
use tidegate::lock::LockGuard;
use tokio::time::{sleep, timeout};

/// Sees whether two have a lock at the same time, and whether the tokens rise.
#[derive(Clone, Default)]
struct Ledger {
    is_held: Arc<AtomicBool>,
    token: Arc<AtomicU64>,
    entries: Arc<AtomicU64>,
}

impl Ledger {
    fn enter(&self, guard: &LockGuard) {
        let was_held = self.is_held.swap(true, Ordering::SeqCst);
        assert!(!was_held, "two have it at the same time");
        let token = guard.fencing_token();
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "{token} after {before}");
        self.entries.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        assert!(self.is_held.swap(false, Ordering::SeqCst), "entered before");
    }

    fn entries(&self) -> u64 {
        self.entries.load(Ordering::SeqCst)
    }
}

/// Takes the lock within this time, and gives it back.
async fn is_free(lock: &Lock, within: Duration) {
    let began = Instant::now();
    let guard = timeout(within, lock.lock()).await;
    let guard = guard.unwrap_or_else(|_| panic!("not free after {within:?}"));
    let guard = guard.unwrap_or_else(|error| panic!("{error} after {:?}", began.elapsed()));
    guard.release().await.expect("held");
}

/// Nobody has the lock, or will have in a moment.
async fn becomes_free(lock: &Lock, within: Duration) {
    let began = Instant::now();
    while lock.is_locked().await.expect("an answer") {
        assert!(began.elapsed() < within, "locked after {within:?}");
        sleep(Duration::from_millis(10)).await;
    }
}
