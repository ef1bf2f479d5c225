//! Where Redis is: one server, a cluster, or a master that sentinels look after, and the URLs of
//! these.

#[cfg(feature = "tls")]
mod certificates;
mod from_url;
mod into_redis_address;
mod redis_address;
mod server_url;

pub use into_redis_address::IntoRedisAddress;
pub use redis_address::RedisAddress;
pub(super) use redis_address::Topology;
