//! Where Redis is: one server, a cluster, or a master that sentinels look after, and the URLs of
//! these.
//!
//! An address is read and checked once, before anything connects. It holds logins and private keys,
//! so no error, `Debug` or `Display` shows more of it than hosts, ports and the name of a master.

#[cfg(feature = "tls")]
mod certificates;
mod from_url;
mod redis_address;
mod server_url;

pub(super) use redis_address::Topology;
pub use redis_address::{IntoRedisAddress, RedisAddress};
