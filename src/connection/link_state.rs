use redis::RedisError;

use super::link::Link;

/// Whether there is a connection to one server.
///
/// The reconnector is the only one that writes it. The dispatcher, the node and a cluster's watcher
/// read it.
///
/// ```text
///               an attempt succeeds
/// Connecting ------------------------> Up      (Up -> Up: another link has taken its place)
///   ^    |                             ^  |
///   |    | an attempt fails            |  |
///   |    +------------------> Down ----+  |    an attempt succeeds
///   |                           ^         |
///   |                           +---------+    silent, and attempts to replace the link fail
///   +-------------------------------------+    closed, or the master has moved
/// ```
///
/// `Down` goes straight to `Up`, and not through `Connecting`: after a failed attempt nobody waits
/// for the next one, since it may last for seconds.
#[derive(Clone)]
pub(super) enum LinkState {
    Up(Link),
    /// The first attempt to connect, or the first attempt after a loss, is in progress. Questions
    /// wait for its outcome.
    Connecting,
    /// The last attempt failed. Questions get its error at once.
    Down(RedisError),
}
