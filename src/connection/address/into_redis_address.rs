use super::redis_address::RedisAddress;
use crate::error::StoreError;

/// What says where Redis is: a [`RedisAddress`], or one of its URLs.
///
/// Implement it for the settings of your own service, if you like.
pub trait IntoRedisAddress {
    /// The address.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::store::StoreErrorKind::Configuration) if it makes no sense.
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
