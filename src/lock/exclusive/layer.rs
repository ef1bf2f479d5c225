use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Exclusive;
use super::settings::{Settings, rule, write_retry_after};
use crate::admission::Options;
use crate::callback::{DegradeCallback, ErrorCallback};
use crate::connection::Redis;
use crate::key::KeyExtractor;
use crate::lock::Lock;

/// Wraps handlers so that at most one request is in flight at a time, or [another
/// number](ExclusiveLayer::permits), in all processes that use the same Redis: an export that must
/// not run twice, a report that each user may request once at a time.
///
/// A request gets a permit before the handler runs, and holds it until the body of the response has
/// ended or was dropped. The permit is free at once when the handler fails or panics, or when the
/// client goes away; it is free after the [lease](ExclusiveLayer::lease) when the process is
/// killed. Meanwhile it is renewed in the background.
///
/// A response that switches protocols (101) has no body, so its permit is free as soon as the
/// handler has returned it, and not when the upgraded connection ends. For a WebSocket that others
/// must not open at the same time, take a [`Lock`] in the task that serves it.
///
/// The permit is a lease, with the limits of one: see the [module](crate::lock). A process that
/// cannot reach Redis for longer than the lease keeps running handlers whose permits others may
/// have by then.
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
#[must_use = "a layer does nothing until something is wrapped in it"]
pub struct ExclusiveLayer {
    settings: Arc<Settings>,
}

impl ExclusiveLayer {
    /// The default of [`ExclusiveLayer::prefix`].
    pub const DEFAULT_PREFIX: &'static str = "Exclusive:";

    /// One request at a time of `path`, any non-empty name of what must not run twice.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn new(redis: &Redis, path: &str) -> Self {
        let (permits, lease) = (1, Lock::DEFAULT_LEASE);
        let settings = Settings {
            redis: redis.clone(),
            rule: rule(path, permits, lease),
            prefix: Self::DEFAULT_PREFIX.into(),
            permits,
            lease,
            wait: Duration::ZERO,
            options: Options::new(Arc::new(write_retry_after)),
        };
        Self {
            settings: Arc::new(settings),
        }
    }

    /// How many requests may be in flight at a time. All processes must say the same. With 0 every
    /// request is denied at once. Default: 1.
    pub fn permits(mut self, permits: u32) -> Self {
        let settings = self.change();
        settings.permits = permits;
        settings.rule = rule(settings.rule.path(), permits, settings.lease);
        self
    }

    /// Gives each key permits of its own. Default: all requests share them.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.change().options.key = Some(Arc::new(key));
        self
    }

    /// How long a request may wait for a permit, in the order of arrival within a process; a
    /// request that has just arrived asks once before it waits. Meanwhile it keeps no instance of
    /// the inner service ready. Default: not at all.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.change().wait = at_most;
        self
    }

    /// How long after a process was killed its permits are free again. Default: 30 s.
    ///
    /// # Panics
    ///
    /// If it is shorter than [`Lock::MIN_LEASE`] or longer than [`Lock::MAX_LEASE`].
    pub fn lease(mut self, lease: Duration) -> Self {
        let possible = Lock::MIN_LEASE..=Lock::MAX_LEASE;
        assert!(
            possible.contains(&lease),
            "a lease of {lease:?}, expected 10 ms to 10 years"
        );
        let settings = self.change();
        settings.lease = lease;
        settings.rule = rule(settings.rule.path(), settings.permits, lease);
        self
    }

    /// What the names in Redis begin with. End it with a separator. Default: `Exclusive:`.
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.change().prefix = prefix.into();
        self
    }

    /// What answers a request for which there is no permit. Default:
    /// [`Problem`](crate::callback::Problem), a 429.
    ///
    /// The callback's [`Decision`](crate::Decision) has one quota, of the permits, with none
    /// remaining. Its retry-after and reset-after are the lease: a permit is free by then even if
    /// the process that holds it has just died, and mostly much earlier. With no permits at all the
    /// verdict is [`Never`](crate::decision::Verdict::Never).
    ///
    /// The response gets `Retry-After: 1` unless the callback set the field itself. That is an
    /// estimate: how long the requests in flight will take is not known. It gets no `RateLimit`
    /// fields.
    pub fn degrade(mut self, callback: impl DegradeCallback) -> Self {
        self.change().options.degrade = Some(Arc::new(callback));
        self
    }

    /// What answers a request when Redis cannot be asked, when there is no key, or whose handler
    /// failed. Default: a 503 without Redis; a 400 or 500 without a key, by the
    /// [kind](crate::key::KeyErrorKind) of the error; errors of the handler go on.
    pub fn on_error(mut self, callback: impl ErrorCallback) -> Self {
        self.change().options.on_error = Some(Arc::new(callback));
        self
    }

    fn change(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<S> Layer<S> for ExclusiveLayer {
    type Service = Exclusive<S>;

    fn layer(&self, inner: S) -> Exclusive<S> {
        Exclusive::new(inner, Arc::clone(&self.settings))
    }
}
