//! Locks on real servers.

mod basics;
mod dropped;
mod handover;
mod handover_fleet;
mod mute;
mod neighbours;
mod network;
mod outages;
mod owners;
mod soak;
mod watchdog;

use std::time::Duration;

use kit::Redis;
use tidegate::Redis as Handle;
use tidegate::lock::Lock;

/// More than any hiccup of a busy machine.
const HICCUP: Duration = Duration::from_millis(900);

/// A process of its own, as far as Redis can tell.
async fn process(server: &Redis) -> Handle {
    at(&server.url).await
}

async fn at(url: &str) -> Handle {
    Handle::connect(url)
        .await
        .expect("a running server")
        .timeout(Duration::from_secs(5))
}

/// Polls until it is so.
async fn eventually(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn is_free_soon(lock: &Lock) {
    eventually("the lock is free", Duration::from_secs(1), async || {
        !lock.is_locked().await.expect("an answer")
    })
    .await;
}
