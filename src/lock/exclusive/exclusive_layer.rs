use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::exclusive::Exclusive;
use super::exclusive_settings::ExclusiveSettings;
use crate::callback::{DegradeCallback, ErrorCallback};
use crate::connection::Redis;
use crate::key::KeyExtractor;
use crate::layer::Responder;
use crate::lock::lock::Lock;

/// Limits the requests in flight to one, or to [another number](ExclusiveLayer::permits), in all
/// processes that use the same Redis: an export that must not run twice, a report that each user
/// may request once at a time.
///
/// A request acquires a permit before the handler runs. It holds the permit until the response's
/// body has ended or was dropped. The permit is free at once when the handler fails or panics, or
/// when the client goes away. It is free after the [lease](ExclusiveLayer::lease) when the process
/// is killed. A background task renews the lease meanwhile.
///
/// A response that switches protocols (101) has no body. Its permit is free when the handler has
/// returned it, and not when the upgraded connection ends. For a WebSocket that only one
/// client may have open, acquire a [`Lock`] in the task that serves it.
///
/// The permit is a lease, with the limits that the [module](crate::lock) describes. A process that
/// cannot reach Redis for longer than the lease goes on running handlers, and other processes may
/// hold their permits by then.
///
/// ```no_run
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate::{PeerIp, Redis};
/// use tidegate::lock::ExclusiveLayer;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let exclusive = ExclusiveLayer::new(&redis, "export")
///     .key(PeerIp::default())
///     .wait(Duration::from_secs(2));
/// let app: Router = Router::new().route("/export", get(|| async { "a,b,c" }).layer(exclusive));
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until a service is wrapped in it"]
pub struct ExclusiveLayer {
    settings: Arc<ExclusiveSettings>,
}

impl ExclusiveLayer {
    /// The default of [`ExclusiveLayer::prefix`].
    pub const DEFAULT_PREFIX: &'static str = "Exclusive:";

    /// Limits the requests of `path` to one at a time. The path is any non-empty name.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn new(redis: &Redis, path: &str) -> Self {
        let (prefix, lease) = (Self::DEFAULT_PREFIX, Lock::DEFAULT_LEASE);
        Self {
            settings: Arc::new(ExclusiveSettings::new(redis, path, prefix, lease)),
        }
    }

    /// How many requests may be in flight at a time. All processes must set the same number. With 0
    /// every request is denied at once. Default: 1.
    pub fn permits(mut self, permits: u32) -> Self {
        let settings = self.settings_mut();
        settings.permits = permits;
        settings.update_rule();
        self
    }

    /// Gives each key permits of its own. Default: all requests share the permits.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.responder().key = Some(Arc::new(key));
        self
    }

    /// How long a request may wait for a permit. Default: it does not wait.
    ///
    /// Within a process, requests wait in the order of their arrival; a new request asks once
    /// before it waits. A waiting request keeps no instance of the inner service ready.
    pub fn wait(mut self, max: Duration) -> Self {
        self.settings_mut().wait = max;
        self
    }

    /// After which time the permits of a killed process are free again. Default: 30 s.
    ///
    /// # Panics
    ///
    /// If it is shorter than [`Lock::MIN_LEASE`] or longer than [`Lock::MAX_LEASE`].
    pub fn lease(mut self, lease: Duration) -> Self {
        assert!(
            (Lock::MIN_LEASE..=Lock::MAX_LEASE).contains(&lease),
            "a lease of {lease:?}, expected 10 ms to 10 years"
        );
        let settings = self.settings_mut();
        settings.lease = lease;
        settings.update_rule();
        self
    }

    /// The prefix of all keys in Redis. End it with a separator. Default: `Exclusive:`.
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.settings_mut().prefix = prefix.into();
        self
    }

    /// Answers a request that got no permit. Default: [`Problem`](crate::callback::Problem), a 429.
    ///
    /// The callback's [`Decision`](crate::Decision) has one quota, of the permits, with 0
    /// remaining. Its retry-after and reset-after are the lease: a permit is free by then even if
    /// the process that holds it has just died, and usually much earlier. With 0 permits the
    /// verdict is [`Never`](crate::decision::Verdict::Never).
    ///
    /// The response gets `Retry-After: 1` unless the callback has set the field. That is an
    /// estimate, because nobody knows how long the requests in flight will take. The response gets
    /// no `RateLimit` fields.
    pub fn degrade(mut self, callback: impl DegradeCallback) -> Self {
        self.responder().degrade = Some(Arc::new(callback));
        self
    }

    /// Answers a request when Redis fails, when the request has no key, or when the inner service
    /// fails. Default: a 503 if Redis fails; a 400 or 500 without a key, by the
    /// [kind](crate::key::KeyErrorKind) of the error; errors of the inner service are returned.
    pub fn on_error(mut self, callback: impl ErrorCallback) -> Self {
        self.responder().on_error = Some(Arc::new(callback));
        self
    }

    fn settings_mut(&mut self) -> &mut ExclusiveSettings {
        Arc::make_mut(&mut self.settings)
    }

    fn responder(&mut self) -> &mut Responder {
        Arc::make_mut(&mut self.settings_mut().responder)
    }
}

impl<S> Layer<S> for ExclusiveLayer {
    type Service = Exclusive<S>;

    fn layer(&self, inner: S) -> Exclusive<S> {
        Exclusive::new(inner, Arc::clone(&self.settings))
    }
}
