//! Attacks on `Lock`: holders and waiters that leave at every moment, owners in each other's way,
//! outages, foreign values, and settings at their ends.

mod aborts;
mod bad_state;
mod handover_fleet;
mod leases;
mod outages;
mod owners;
mod runtimes;
mod slow;
mod soak;
mod waiters;

use kit::Redis as Server;
use kit::prelude::*;
use tidegate::Redis;

/// More than any hiccup of a busy machine.
const HICCUP: Duration = millis(900);

/// Takes the lock within this time, and gives it back.
async fn is_free(lock: &Lock, within: Duration) {
    let began = Instant::now();
    let guard = timeout(within, lock.lock()).await;
    let guard = guard.unwrap_or_else(|_| panic!("not free after {within:?}"));
    let guard = guard.unwrap_or_else(|error| panic!("{error} after {:?}", began.elapsed()));
    frees(guard).await;
}

/// Nobody has the lock, or will have in a moment.
async fn becomes_free(lock: &Lock, within: Duration) {
    let began = Instant::now();
    while lock.is_taken().await {
        assert!(began.elapsed() < within, "locked after {within:?}");
        sleep(millis(10)).await;
    }
}
