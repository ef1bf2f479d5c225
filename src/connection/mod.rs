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
//!
//! # The life of a question
//!
//! - [`Connection`] makes a [question](question) with a deadline and puts it into the queue of the
//!   node that serves its slot. The caller gets an [`AnswerFuture`], which fails at the deadline
//!   whatever happens to the question.
//! - The dispatcher takes what waits and groups it into a flight: takes of many keys into a few
//!   script calls, everything else into a call of its own. Questions whose caller has left are
//!   dropped, and never charged.
//! - The flight is one pipeline. Each take carries its deadline in the server's time: a server that
//!   was paused refuses what is late instead of charging it.
//! - Each reply answers the questions of its call.
//!
//! # What happens when something fails
//!
//! | failure | the question |
//! |---|---|
//! | an attempt to connect failed | gets that error at once |
//! | the connection broke after it was sent | gets an error and is not sent again: it may have been executed |
//! | a reply belongs to another call | gets an error, and the connection is closed |
//! | the server does not know the script | is sent again with the script's text |
//! | a call with several keys was refused because of one key | is sent again in a call of its own |
//! | `MOVED`, `ASK`, `TRYAGAIN` | is sent again, to the node that was named |
//! | late by the server's clock, not by this process's | is sent again, with the corrected clock |
//! | the queue is full | gets the error `Overloaded` at once |
//!
//! Only refused calls are sent again: nothing of them was executed.

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
mod flight_call;
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
mod sort_key;
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
#[cfg(any(feature = "limiter", feature = "lock"))]
pub(crate) use script::Script;
pub(crate) use scripts::*;
pub(crate) use take_script::{read_refund, write_refund};
