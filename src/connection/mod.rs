//! Redis: addresses, connections that are made anew when they break, and the flights in which
//! questions travel.
//!
//! A *node* is one server address: a [link](link) over the client's multiplexed connection, a
//! [reconnector] that renews it, one [queue] of questions and a [dispatcher](node) with a few
//! [flights](flight) in progress. A single server is one node; the master that sentinels name is a
//! node whose address changes; a cluster maps slots to nodes.
//!
//! ```text
//! Connection -> Cluster (slots) -> Node -> Queue -> Flight (one pipeline) -> Link -> server
//!                                   \-> Reconnector: connects, watches the silence, connects again
//! ```

mod address;
mod clock;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod errors;
mod flight;
pub(crate) mod handle;
pub(crate) mod hash_tag;
mod link;
mod node;
mod question;
mod queue;
mod reconnector;
mod script;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod take_call;
mod take_script;

pub use address::{IntoRedisAddress, RedisAddress};
pub(crate) use connection::Connection;
pub(crate) use handle::Redis;
#[cfg(feature = "lock")]
pub(crate) use link::Link;
pub(crate) use question::{AnswerFuture, TakeQuestion, late};
pub(crate) use script::Script;
pub(crate) use scripts::*;
pub(crate) use take_script::{read_refund, write_refund};
