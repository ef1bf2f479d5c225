//! Credentials that change, and who is asked for them before each attempt to connect.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::connection::reconnector::none_within;
use crate::in_flight_counter::InFlightCounter;

/// How long a closure may take. The rest of an attempt's two seconds is left for connecting.
const MAX_ASKED: Duration = Duration::from_millis(1_500);

/// A password that changes, for [`RedisAddress::credentials`](super::RedisAddress::credentials).
///
/// `Debug` shows neither the user nor the password.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate::redis::Credentials;
///
/// let token = Credentials::new("a token")
///     .username("gate")
///     .until(Instant::now() + Duration::from_secs(15 * 60));
/// assert!(!format!("{token:?}").contains("token"));
/// ```
#[derive(Clone)]
pub struct Credentials {
    username: Option<String>,
    password: String,
    until: Option<Instant>,
}

impl Credentials {
    /// This password, with the user of the address. An empty one is refused: nothing is sent to a
    /// server.
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            username: None,
            password: password.into(),
            until: None,
        }
    }

    /// The user. Default: that of the address.
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// When the server ends connections with this password. After three quarters of the time until
    /// then, each connection asks for other credentials and logs in with them, beside the requests
    /// that it carries. If that fails it tries again, at most once a second, and goes on as it is.
    /// For passwords that last some seconds at least. Default: connections never log in again.
    #[must_use]
    pub const fn until(mut self, until: Instant) -> Self {
        self.until = Some(until);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Ask = dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;

/// Asks the user's code for the credentials of a server. Clones ask the same code.
#[derive(Clone)]
pub(super) struct CredentialsProvider {
    ask: Arc<Ask>,
    asking: InFlightCounter,
}

impl CredentialsProvider {
    pub(super) fn of<F, E>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let ask = move || ask().map(|asked| asked.map_err(Into::into)).boxed();
        Self {
            ask: Arc::new(ask),
            asking: InFlightCounter::default(),
        }
    }

    /// The password in a file, without the line feed behind it.
    ///
    /// A file system that does not answer keeps one thread, and not one for each attempt.
    pub(super) fn of_file(path: &Path) -> Self {
        let (path, reading) = (Arc::<Path>::from(path), Arc::<Mutex<()>>::default());
        Self::of(move || {
            let (path, reading) = (Arc::clone(&path), Arc::clone(&reading));
            async move {
                let reading = reading.lock_owned().await;
                let text = spawn_blocking(move || (std::fs::read_to_string(&path), path, reading));
                let (text, path, _) = text.await.map_err(|error| error.to_string())?;
                let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
                Ok::<_, String>(Credentials::new(text.trim_end_matches(['\r', '\n'])))
            }
        })
    }

    /// The credentials of now. No panic of the closure ends the task that connects.
    async fn credentials(&self) -> RedisResult<Credentials> {
        let _asking = self.asking.try_acquire(usize::MAX);
        let asked = AssertUnwindSafe(async { (self.ask)().await }).catch_unwind();
        let refused = |why: String| {
            let error = (ErrorKind::AuthenticationFailed, "no credentials", why);
            Err(RedisError::from(error))
        };
        match timeout(MAX_ASKED, asked).await {
            Ok(Ok(Ok(credentials))) if credentials.password.is_empty() => {
                refused("the password is empty".to_owned())
            }
            Ok(Ok(Ok(credentials))) => Ok(credentials),
            Ok(Ok(Err(error))) => refused(error.to_string()),
            Ok(Err(_)) => refused("the closure panicked".to_owned()),
            Err(_) => Err(none_within("credentials", MAX_ASKED)),
        }
    }
}

/// A server or a sentinel: how to connect to it, and who is asked for its credentials.
#[derive(Clone)]
pub(in crate::connection) struct Server {
    pub(in crate::connection) info: ConnectionInfo,
    pub(super) provider: Option<CredentialsProvider>,
}

impl Server {
    /// How to connect with the credentials of now, and when these end.
    pub(in crate::connection) async fn with_credentials(
        &self,
    ) -> RedisResult<(ConnectionInfo, Option<Instant>)> {
        let Some(provider) = &self.provider else {
            return Ok((self.info.clone(), None));
        };
        let credentials = provider.credentials().await?;
        let settings = self.info.redis_settings().clone();
        let mut settings = settings.set_password(credentials.password);
        if let Some(username) = credentials.username {
            settings = settings.set_username(username);
        }
        let info = self.info.clone().set_redis_settings(settings);
        Ok((info, credentials.until))
    }

    /// Whether somebody waits for credentials right now.
    pub(in crate::connection) fn is_asking(&self) -> bool {
        self.provider
            .as_ref()
            .is_some_and(|provider| provider.asking.number() > 0)
    }
}
