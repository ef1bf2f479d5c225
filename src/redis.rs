//! Where Redis is, and how the stores, limiters and locks of a process reach it.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::redis::RedisAddress;
//! use tidegate::{Redis, RedisStore};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let address = RedisAddress::from_url("redis://:secret@10.0.0.7:6379/0")?;
//! let redis = Redis::connect(address).await?.timeout(Duration::from_millis(50));
//! // Stores, limiters and locks made of one handle share its connection.
//! let store = RedisStore::of(&redis);
//! # let _ = store;
//! # Ok(())
//! # }
//! ```
//!
//! [`Redis`](crate::Redis) is the handle, a [`RedisAddress`] one server, a cluster, or a master that
//! sentinels look after.

pub use crate::connection::{IntoRedisAddress, RedisAddress};
