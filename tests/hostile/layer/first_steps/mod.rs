//! Attacks on what a new user meets first: warnings, the safe set-up, several layers, charges,
//! gRPC answers, and jobs with a limiter that carries its rate.

mod answers;
mod charges;
mod jobs;
mod layers;
mod set_up;
mod warnings;

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Waits until this holds, for as long as a busy machine may need.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(120), "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
