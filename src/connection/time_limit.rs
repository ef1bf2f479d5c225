use std::io;
use std::time::Duration;

use redis::{RedisError, RedisResult};

/// Awaits `work` for at most `limit`. After that it fails with a timeout error.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(no_connection_within(limit)))
}

/// A timeout error: no connection was made in this time.
pub(super) fn no_connection_within(limit: Duration) -> RedisError {
    let message = format!("no connection within {limit:?}");
    RedisError::from(io::Error::new(io::ErrorKind::TimedOut, message))
}
