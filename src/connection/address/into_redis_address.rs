use super::redis_address::RedisAddress;
use crate::error::StoreError;

/// A value that says where Redis is: a [`RedisAddress`], a URL, or a type of your own.
///
/// ```
/// use tidegate::StoreError;
/// use tidegate::redis::{IntoRedisAddress, RedisAddress};
///
/// struct Settings {
///     redis_url: String,
///     redis_password: String,
/// }
///
/// impl IntoRedisAddress for &Settings {
///     fn into_redis_address(self) -> Result<RedisAddress, StoreError> {
///         Ok(RedisAddress::from_url(&self.redis_url)?.password(&self.redis_password))
///     }
/// }
/// ```
pub trait IntoRedisAddress {
    /// The address.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the kind [`Configuration`](crate::store::StoreErrorKind::Configuration) if
    /// the value is no address.
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
