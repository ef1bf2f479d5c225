use redis::RedisError;

use super::link::Link;

/// Whether there is a connection to one server.
#[derive(Clone)]
pub(super) enum LinkState {
    Up(Link),
    /// The first attempt to connect, or the first attempt after a loss, is in progress. Questions
    /// wait for its outcome.
    Connecting,
    /// The last attempt failed. Questions get its error at once.
    Down(RedisError),
}
