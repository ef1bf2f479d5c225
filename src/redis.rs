//! Redis: the addresses of servers, clusters and sentinels, and the connection of a process.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::redis::RedisAddress;
//! use tidegate::{Redis, RedisStore};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let address = RedisAddress::from_url("redis://:secret@10.0.0.7:6379/0")?;
//! let redis = Redis::connect(address).await?.timeout(Duration::from_millis(50));
//! // All stores, limiters and locks of one handle share its connection.
//! let store = RedisStore::of(&redis);
//! # let _ = store;
//! # Ok(())
//! # }
//! ```
//!
//! [`Redis`] is a process's handle to its connection. A [`RedisAddress`] says where
//! the servers are: one server, a cluster, or a master that sentinels look after. Wherever an
//! address is expected, its URL may be given, since both are [`IntoRedisAddress`]:
//!
//! ```
//! use tidegate::redis::RedisAddress;
//!
//! # fn main() -> Result<(), tidegate::StoreError> {
//! let address = RedisAddress::from_url("redis://gate:s3cret@limits.example/2")?;
//! assert_eq!(address.to_string(), "redis at limits.example:6379");
//!
//! let error = RedisAddress::from_url("redis//limits.example").unwrap_err();
//! assert_eq!(error.kind(), tidegate::store::StoreErrorKind::Configuration);
//! # Ok(())
//! # }
//! ```
//!
//! A connection that breaks is made again in the background. A question that had been sent by then
//! fails and is not sent again, because it may have been executed.

pub use crate::connection::{Credentials, IntoRedisAddress, Redis, RedisAddress};
