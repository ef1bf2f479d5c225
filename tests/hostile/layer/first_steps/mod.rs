//! Attacks on what a new user meets first: warnings, the safe set-up, several layers, charges, and
//! jobs with a limiter that carries its rate.

mod charges;
mod jobs;
mod layers;
mod set_up;
mod warnings;

use kit::Redis as Server;
use kit::http::{send, text};

use crate::*;

/// The safe set-up in one line.
fn shop(url: &str) -> Resilient<RedisStore> {
    Resilient::redis(url, "shop").expect("an address")
}

/// The same, and it has a connection: the first one may take longer than a decision.
async fn connected(url: &str) -> Resilient<RedisStore> {
    shop(url).connect().await.expect("a running server")
}
