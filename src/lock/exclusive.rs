//! The middleware that limits the requests in flight in the whole fleet.

use std::iter::once;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::BoxError;
use axum_core::body::Body;
use axum_core::response::Response;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Request};
use http_body::Body as HttpBody;
use tower_layer::Layer;
use tower_service::Service;

use super::LockGuard;
use super::acquire::acquire;
use super::lease_request::{LeaseRequest, Resource, ResourceKind};
use super::lock::Lock;
use crate::callback::{Cause, DegradeCallback, ErrorCallback};
use crate::connection::Redis;
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::StoreError;
use crate::key::KeyExtractor;
use crate::layer::{Action, Gate, Options, Outcome, ResponseFuture, RuleSource, WriteFields};
use crate::quota::Quota;
use crate::rule::Rule;
use crate::store::Take;

/// Limits the requests in flight to one, or to [another number](ExclusiveLayer::permits), in all
/// processes that use the same Redis: an export that must not run twice, a report that each user
/// may request once at a time.
///
/// A request acquires a permit before the handler runs. It holds the permit until the response's
/// body has ended or was dropped. The permit is free immediately when the handler fails or panics,
/// or when the client goes away. It is free after the [lease](ExclusiveLayer::lease) when the
/// process is killed. A background task renews the lease meanwhile.
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
        let (permits, lease) = (1, Lock::DEFAULT_LEASE);
        let mut gate = Gate::new(rule(path, permits, lease));
        gate.options.write_fields = WriteFields(write_retry_after);
        Self {
            settings: Arc::new(ExclusiveSettings {
                redis: redis.clone(),
                path: path.into(),
                prefix: Self::DEFAULT_PREFIX.into(),
                permits,
                lease,
                wait: Duration::ZERO,
                gate: Arc::new(gate),
            }),
        }
    }

    /// How many requests may be in flight at a time. All processes must set the same number. With 0
    /// every request is denied immediately. Default: 1.
    pub fn permits(self, permits: u32) -> Self {
        self.with(|it| it.permits = permits)
    }

    /// Gives each key permits of its own. Default: all requests share the permits.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.with_option(|it| it.key = Some(Arc::new(key)))
    }

    /// How long a request may wait for a permit. Default: it does not wait.
    ///
    /// Within a process, requests wait in the order of their arrival; a new request asks once
    /// before it waits. A waiting request keeps no instance of the inner service ready.
    pub fn wait(self, max: Duration) -> Self {
        self.with(|it| it.wait = max)
    }

    /// After which time the permits of a killed process are free again. Default: 30 s.
    ///
    /// # Panics
    ///
    /// If it is shorter than [`Lock::MIN_LEASE`] or longer than [`Lock::MAX_LEASE`].
    pub fn lease(self, lease: Duration) -> Self {
        assert!(
            (Lock::MIN_LEASE..=Lock::MAX_LEASE).contains(&lease),
            "a lease of {lease:?}, expected 10 ms to 10 years"
        );
        self.with(|it| it.lease = lease)
    }

    /// The prefix of all keys in Redis. End it with a separator. Default: `Exclusive:`.
    pub fn prefix(self, prefix: impl Into<Arc<str>>) -> Self {
        self.with(|it| it.prefix = prefix.into())
    }

    /// Answers a request that got no permit. Default: [`Problem`](crate::callback::Problem), a 429,
    /// or for a gRPC request the status 8.
    ///
    /// The callback's [`Decision`](crate::Decision) has one quota, of the permits, with 0
    /// remaining. Its retry-after and reset-after are the lease: a permit is free by then even if
    /// the process that holds it has just died, and usually much earlier. With 0 permits the
    /// verdict is [`Never`](crate::decision::Verdict::Never).
    ///
    /// The response gets `Retry-After: 1` unless the callback has set the field. That is an
    /// estimate, because nobody knows how long the requests in flight will take. The response gets
    /// no `RateLimit` fields.
    pub fn degrade(self, callback: impl DegradeCallback) -> Self {
        self.with_option(|it| it.degrade = Some(Arc::new(callback)))
    }

    /// Answers a request when Redis fails, when the request has no key, or when the inner service
    /// fails. Default: a 503 if Redis fails; a 400 or 500 without a key, by the
    /// [kind](crate::key::KeyErrorKind) of the error; errors of the inner service are returned. A
    /// gRPC request gets [a status](crate::callback::Problem) in place of these.
    pub fn on_error(self, callback: impl ErrorCallback) -> Self {
        self.with_option(|it| it.on_error = Some(Arc::new(callback)))
    }

    fn with(mut self, change: impl FnOnce(&mut ExclusiveSettings)) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        change(settings);
        let rule = rule(&settings.path, settings.permits, settings.lease);
        Arc::make_mut(&mut settings.gate).rule = rule;
        self
    }

    fn with_option(self, change: impl FnOnce(&mut Options)) -> Self {
        self.with(|settings| change(&mut Arc::make_mut(&mut settings.gate).options))
    }
}

impl<S> Layer<S> for ExclusiveLayer {
    type Service = Exclusive<S>;

    fn layer(&self, inner: S) -> Exclusive<S> {
        let settings = Arc::clone(&self.settings);
        Exclusive { inner, settings }
    }
}

/// The service that an [`ExclusiveLayer`](ExclusiveLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner
/// service's body is.
///
/// ```
/// use axum::body::Body;
/// use http::{Request, Response};
/// use tidegate::Redis;
/// use tidegate::lock::{Exclusive, ExclusiveLayer};
/// use tower::{Layer, service_fn};
///
/// # fn run(redis: &Redis) {
/// let handler = service_fn(async |_: Request<Body>| {
///     Ok::<_, std::io::Error>(Response::new(Body::from("the report")))
/// });
/// let one_at_a_time: Exclusive<_> = ExclusiveLayer::new(redis, "report").layer(handler);
/// # let _ = one_at_a_time;
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Exclusive<S> {
    inner: S,
    settings: Arc<ExclusiveSettings>,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Exclusive<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S::Error: Send + Sync + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> ResponseFuture<S, ReqBody> {
        let (settings, gate) = (&self.settings, &self.settings.gate);
        let Some(rule) = gate.rule() else {
            return ResponseFuture::new(Action::Pass, &mut self.inner, request, gate);
        };
        let (take, request) = gate.take_for(rule, request);
        let action = match take {
            Ok(take) => Action::Wait(Box::pin(Arc::clone(settings).decide(take))),
            Err(action) => *action,
        };
        ResponseFuture::new(action, &mut self.inner, request, gate)
    }
}

/// The settings of an [`ExclusiveLayer`](ExclusiveLayer), shared by all its services.
#[derive(Debug, Clone)]
struct ExclusiveSettings {
    redis: Redis,
    path: Arc<str>,
    prefix: Arc<str>,
    permits: u32,
    lease: Duration,
    wait: Duration,
    /// With the rule that callbacks and problem documents see.
    gate: Arc<Gate>,
}

impl ExclusiveSettings {
    /// Acquires a permit for a request with this take, and says what becomes of the request.
    async fn decide(self: Arc<Self>, take: Take) -> Action {
        match self.acquire(&take).await {
            Ok(Some(permit)) => {
                let mut admitted = self.gate.admit(Arc::clone(take.rule()));
                admitted.permit = Some(Box::new(permit));
                Action::Admit(admitted)
            }
            Ok(None) => self.gate.act(Outcome::Denied(take, self.denial())),
            Err(error) => {
                let cause = Cause::Store(error, None);
                self.gate
                    .act(Outcome::Failed(Arc::clone(take.rule()), cause))
            }
        }
    }

    async fn acquire(&self, take: &Take) -> Result<Option<LockGuard>, StoreError> {
        let (permits, prefix, id) = (self.permits, &self.prefix, take.rule().id());
        let name = match take.key() {
            key if key.is_empty() => format!("{prefix}{id}"),
            key => format!("{prefix}{id}:{key}"),
        };
        let resource = Resource::new(&self.redis, ResourceKind::Semaphore { permits }, &name);
        let request = LeaseRequest::new(&resource, None, self.lease);
        let wait = match permits {
            // No permit is ever released, so waiting cannot succeed.
            0 => Duration::ZERO,
            _ => self.wait,
        };
        let lease = acquire(&self.redis, request, Some(wait)).await?;
        Ok(lease.map(LockGuard::with_renewal))
    }

    /// A permit is free after one lease, even if the process that holds it has just died.
    fn denial(&self) -> Decision {
        let retry_after = self.lease;
        let verdict = match self.permits {
            0 => Verdict::Never,
            _ => Verdict::Denied { retry_after },
        };
        let state = QuotaState::new(0, retry_after);
        Decision::new(verdict, Source::Redis, 1, once(state))
    }
}

/// One second is an estimate, because nobody knows how long the requests in flight will take.
fn write_retry_after(_: &Rule, decision: &Decision, fields: &mut HeaderMap) {
    if decision.retry_after().is_some() {
        let second = HeaderValue::from_static("1");
        fields.entry(RETRY_AFTER).or_insert(second);
    }
}

/// A rule with one quota of the permits over one lease.
///
/// # Panics
///
/// If the path is empty.
fn rule(path: &str, permits: u32, lease: Duration) -> RuleSource {
    let quota = Quota::new(lease.min(Quota::MAX_WINDOW), permits.into());
    let quota = quota.expect("the lease is checked, and a quota may have more units than u32::MAX");
    let rule = Rule::new(path, [quota]).unwrap_or_else(|error| panic!("{error}"));
    RuleSource::Fixed(Arc::new(rule))
}
