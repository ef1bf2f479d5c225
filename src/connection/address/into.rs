use redis::ConnectionInfo;

use super::{RedisAddress, Topology};
use crate::error::StoreError;

/// What says where Redis is: a [`RedisAddress`], one of its URLs, or a [`ConnectionInfo`] of the Redis client.
///
/// Implement it for the settings of your own service, if you like.
pub trait IntoRedisAddress {
    /// The address.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::StoreErrorKind::Configuration) if it makes no sense.
    fn into_redis_address(self) -> Result<RedisAddress, StoreError>;
}

impl IntoRedisAddress for RedisAddress {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        Ok(self)
    }
}

impl IntoRedisAddress for &RedisAddress {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        Ok(self.clone())
    }
}

impl IntoRedisAddress for &str {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}

impl IntoRedisAddress for &String {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}

impl IntoRedisAddress for String {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        RedisAddress::from_url(self)
    }
}

/// One server.
impl IntoRedisAddress for ConnectionInfo {
    fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
        Ok(RedisAddress::of(Topology::Single, vec![self]))
    }
}
