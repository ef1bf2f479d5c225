//! Credentials that change, and who is asked for them before each attempt to connect.

use std::fmt;
use std::fs::Metadata;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::connection::reconnector::none_within;
use crate::in_flight_counter::InFlightCounter;
use crate::regular_file;

/// How long a closure may take. The rest of an attempt's two seconds is left for connecting.
const MAX_ASKED: Duration = Duration::from_millis(1_500);

/// How many readings of a file may hang. A later one may find another file, which answers.
const MAX_READINGS: usize = 4;
/// The largest file of a password.
const MAX_FILE: (u64, &str) = (64 * 1024, "64 KiB");

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
    /// A file system that does not answer keeps a few threads, and not one for each attempt.
    pub(super) fn from_file(path: &Path) -> Self {
        Self::from_read(path, |path| regular_file::read(path, MAX_FILE))
    }

    fn from_read(path: &Path, read: fn(&Path) -> std::io::Result<(String, Metadata)>) -> Self {
        let (path, reading) = (Arc::<Path>::from(path), InFlightCounter::default());
        Self::of(move || {
            let (path, place) = (Arc::clone(&path), reading.try_acquire(MAX_READINGS));
            async move {
                let wrong = |why: &str| format!("{}: {why}", path.display());
                let place = place.ok_or_else(|| wrong("the file system does not answer"))?;
                let file = Arc::clone(&path);
                let reading = spawn_blocking(move || (read(&file), place));
                let (read, _) = reading.await.map_err(|error| error.to_string())?;
                let (text, _) = read.map_err(|error| wrong(&error.to_string()))?;
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
        let provider = self.provider.as_ref();
        provider.is_some_and(|provider| provider.asking.number() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// As on a mount that does not answer, until another file is there.
    #[tokio::test(start_paused = true)]
    async fn a_reading_that_hangs_keeps_a_thread_and_no_later_reading() {
        static READINGS: AtomicUsize = AtomicUsize::new(0);
        static ANSWERS: AtomicBool = AtomicBool::new(false);
        let read = |path: &Path| {
            let number = READINGS.fetch_add(1, Ordering::Relaxed);
            while number != 2 && !ANSWERS.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(("right\n".to_owned(), path.metadata()?))
        };
        let provider = CredentialsProvider::from_read(Path::new("/"), read);
        let mut said = Vec::new();
        for number in 0..7 {
            // Paused time stands still while a reading goes on.
            let time_out = async {
                if ![2, 5, 6].contains(&number) {
                    tokio::task::yield_now().await;
                    tokio::time::advance(MAX_ASKED).await;
                }
            };
            let (credentials, ()) = tokio::join!(provider.credentials(), time_out);
            said.push(credentials.map_or_else(|error| error.to_string(), |it| it.password));
            while READINGS.load(Ordering::Relaxed) < (number + 1).min(5) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ANSWERS.store(true, Ordering::Relaxed);
        let is_late = |said: &String| said.contains("within 1.5");
        let late: Vec<_> = said.iter().map(is_late).collect();
        assert_eq!(
            late,
            [true, true, false, true, true, false, false],
            "{said:?}"
        );
        assert_eq!(said[2], "right");
        assert!(
            said[5].contains("/: the file system does not answer"),
            "{said:?}"
        );
        assert_eq!(READINGS.load(Ordering::Relaxed), 5);
    }
}
