use std::convert::Infallible;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, cmd};
use tokio::time::sleep;

use super::link::Link;
use super::reconnector::{MAX_ATTEMPT, within};
use crate::jitter;
use crate::trace::event;

/// The shortest time from one login over a connection to the next.
const MIN_PAUSE: Duration = Duration::from_secs(1);

impl Link {
    /// Logs in again whenever the credentials are about to end. The first failure in a row is
    /// logged: nobody hears of it before the server ends the connection.
    pub(super) async fn stay_logged_in(&self) -> Infallible {
        let (mut until, mut is_failing) = (self.inner.logged_in_until, false);
        while let Some(end) = until {
            sleep(pause(end.saturating_duration_since(Instant::now()))).await;
            let outcome = within(MAX_ATTEMPT, self.log_in_again()).await;
            let has_failed = outcome.is_err();
            match outcome {
                Ok(later) => until = later,
                Err(error) if !is_failing => log_failure(&error),
                Err(_) => {}
            }
            is_failing = has_failed;
        }
        std::future::pending().await
    }

    /// Logs in with the credentials of now. If the server refuses them, the connection stays as it
    /// is. Returns when they end.
    async fn log_in_again(&self) -> RedisResult<Option<Instant>> {
        let (info, until) = self.inner.server.with_credentials().await?;
        let settings = info.redis_settings();
        let mut auth = cmd("AUTH");
        auth.arg(settings.username()).arg(settings.password());
        self.query(auth).await?;
        Ok(until)
    }
}

/// Logs that a connection could not log in again.
fn log_failure(error: &RedisError) {
    let error = error.to_string();
    event!(warn: error, "a connection to Redis could not log in again before its credentials end");
}

/// The pause before the next login: three quarters of the time that is left, or a little longer. So
/// a failed one is tried again soon enough, and not by all processes of a fleet at the same time.
fn pause(left: Duration) -> Duration {
    (left / 4 * 3 + jitter::up_to(left / 8)).max(MIN_PAUSE)
}
