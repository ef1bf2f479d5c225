//! Locks on real servers.

mod basics;
mod dropped;
mod handover;
mod neighbours;
mod network;
mod owners;
mod watchdog;

use kit::prelude::*;

/// More than any hiccup of a busy machine that the kernel does not count.
const HICCUP: Duration = millis(900);
const CHANNEL: &str = "redisson_lock__channel:{l}";

/// A server, and the lock `l` of a process.
async fn a_lock() -> (Redis, Lock) {
    let server = Redis::start();
    let lock = lock_of_another(&server).await;
    (server, lock)
}

/// The lock `l` of another process.
async fn lock_of_another(server: &Redis) -> Lock {
    Lock::new(&handle(&server.url).await, "l")
}

/// Somebody holds the lock `l`.
fn is_taken_by_somebody(server: &Redis) {
    run(server, "HSET l somebody:1 1");
}

/// Waits for the lock in a task.
fn waiting(lock: &Lock) -> JoinHandle<LockGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.holds().await })
}
