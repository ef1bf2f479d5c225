//! What locks promise: one holder at a time, and tokens that rise from holder to holder.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate::lock::LockGuard;

/// Sees whether two have a lock at the same time, and whether the tokens rise. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Entries>);

#[derive(Debug, Default)]
struct Entries {
    is_held: AtomicBool,
    token: AtomicU64,
    number: AtomicU64,
}

impl Ledger {
    pub fn enter(&self, guard: &LockGuard) {
        let was_held = self.0.is_held.swap(true, Ordering::SeqCst);
        assert!(!was_held, "two have it at the same time");
        let token = guard.fencing_token();
        let before = self.0.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "{token} after {before}");
        self.0.number.fetch_add(1, Ordering::SeqCst);
    }

    pub fn leave(&self) {
        assert!(
            self.0.is_held.swap(false, Ordering::SeqCst),
            "entered before"
        );
    }

    /// Enters, lets others come in if they can, and leaves.
    pub async fn pass(&self, guard: &LockGuard) {
        self.enter(guard);
        tokio::task::yield_now().await;
        self.leave();
    }

    pub fn entries(&self) -> u64 {
        self.0.number.load(Ordering::SeqCst)
    }
}

/// Holds of which two overlap: of each the name of the lock, and from when until when.
pub fn overlaps<N: Ord + Clone + Debug>(holds: &mut [(N, u64, u64)]) -> Vec<String> {
    holds.sort();
    let pairs = holds.windows(2);
    let two = pairs.filter(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2);
    two.map(|pair| format!("two holders: {pair:?}")).collect()
}
