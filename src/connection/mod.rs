//! Connections to Redis: addresses, connections that are made again when they break, and the
//! flights in which questions travel.
//!
//! A *node* is one server address. It has a [link](link) over the client's multiplexed connection,
//! a [reconnector] that replaces a lost or silent link, a [queue] of questions, and a [dispatcher]
//! with a few [flights](flight) in progress. A single server is one node. The master that sentinels
//! name is a node whose address changes. A cluster has a node for each master.
//!
//! ```text
//! Connection -> Cluster -> Node -> Queue -> Dispatcher -> Flight (one pipeline) -> Link -> server
//!                               -> Reconnector: connects, watches the link, connects again
//! ```

mod activity;
mod address;
mod answer_future;
mod attempts;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod dispatcher;
mod endpoint;
mod errors;
mod flight;
mod handshake;
pub(crate) mod hash_tag;
mod includes;
mod link;
mod link_state;
mod node;
mod question;
mod queue;
mod reconnector;
pub(crate) mod redis;
mod reply;
mod script;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server_clock;
mod shortest_timeout;
mod take_call;
mod take_script;
mod target;
mod time_limit;

pub use address::{IntoRedisAddress, RedisAddress};
pub(crate) use answer_future::{AnswerFuture, no_answer_within};
pub(crate) use connection::Connection;
#[cfg(feature = "lock")]
pub(crate) use link::Link;
pub(crate) use question::TakeQuestion;
pub(crate) use redis::Redis;
#[cfg(feature = "limiter")]
pub(crate) use script::Script;
pub(crate) use scripts::*;
pub(crate) use take_script::{read_refund, write_refund};
