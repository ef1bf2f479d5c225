//! Calls of this service to a partner, paced for the whole fleet, which obey what it answers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::body::OutgoingBody;
use super::partner::wanted_pause;
use crate::callback::BoxFuture;
use crate::callback::grpc::GRPC_STATUS;
use crate::charge::spawn;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::layer::{Admitted, CallError, Refused};
use crate::limits::Limits;
use crate::log_on_change::LogOnChange;
#[cfg(doc)]
use crate::rule::Rule;
use crate::store::Ask;
use crate::take::Take;
use crate::trace;
use crate::warning::{Warning, WarningKind};

/// Tells of holds that were cut, and of holds that the store did not answer.
static CUT: LogOnChange = LogOnChange::new();
static FAILED: LogOnChange = LogOnChange::new();

impl Limits {
    /// Holds a key of an [outgoing](Rule::with_outgoing) rule for so long from now on, by the
    /// store's clock: until then calls of the key are denied in all processes, from the next
    /// decision on, whatever is left of the quotas. Returns for how long it is held now.
    ///
    /// A hold is never shortened, so a time of zero only asks; [`reset`](Self::reset) ends it.
    /// Longer ones than the rule's [`hold-at-most`](Rule::with_hold_at_most) are cut. Calls without
    /// a key are held by `Key::default()`; `""` is a key of its own. A fallback of this process
    /// obeys it, too, also if the store gives no answer. [`outgoing`](Self::outgoing) calls it by
    /// what a partner answers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?]);
    /// limits.hold("github", "our-token", Duration::from_secs(30)).await?;
    /// let refused = limits.check("github", "our-token").await.unwrap_err();
    /// assert!(refused.retry_after() > Some(Duration::from_secs(29)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer, and if the path has no outgoing rule.
    pub async fn hold(
        &self,
        path: &str,
        key: impl Into<Key>,
        time: Duration,
    ) -> Result<Duration, StoreError> {
        let rule = self.rules.guard().find(path).cloned();
        let Some(rule) = rule.filter(|rule| rule.is_outgoing()) else {
            let message = format!("{path:?} has no rule with outgoing = true, which a hold needs");
            return Err(StoreError::new(StoreErrorKind::Configuration, message));
        };
        self.hold_key_of(&Take::new(rule, key.into()), time).await
    }

    async fn hold_key_of(&self, take: &Take, time: Duration) -> Result<Duration, StoreError> {
        let (rule, path) = (take.rule(), take.rule().path());
        let at_most = rule.hold_at_most();
        if time > at_most && CUT.failed() {
            let (asked, held) = (time.as_secs(), at_most.as_secs());
            trace::event!(warn: path, asked, held, "a hold was cut to hold-at-most");
        }
        let store = self.shared_store();
        store.hold(take, time.min(at_most)).await
    }

    /// Paces the calls of all processes to a partner by an [outgoing](Rule::with_outgoing) rule,
    /// and obeys what the partner answers. These [hold](Self::hold) the key for as long as they
    /// say:
    ///
    /// - a 429, a 503, and statuses that the rule [holds on](Rule::with_hold_on); for a second where
    ///   no field is understood, which is a [warning](WarningKind::RefusalNotUnderstood);
    /// - a 403, and a 400 that the rule holds on, if a field says when to come again, or that nothing
    ///   is left;
    /// - the gRPC statuses 8 and 14 with a pushback, a `google.rpc.RetryInfo` or one of the fields, in
    ///   the head or in the trailers;
    /// - every other answer with `RateLimit` fields, of any draft, or `X-RateLimit-Remaining: 0`.
    ///
    /// The first field that is understood decides, of several lines the longest time:
    /// `Retry-After-Ms`, `Retry-After`, others with `retry-after` in their names, `RateLimit`,
    /// `X-RateLimit-Reset-After`, `X-RateLimit-Reset`, and for refusals others that name a limit with
    /// its reset or interval. They have seconds, or milliseconds if their name ends with `-ms` or
    /// `-milliseconds`, dates, instants or durations such as `6m0s`. Dates and instants count from
    /// the answer's own `Date`, and hold for a second where it has none.
    ///
    /// It is a tower layer for any client that is a service of HTTP requests, such as hyper-util's
    /// or tonic's `Channel`, and has [two calls](Outgoing::ready) for every other one. It never
    /// repeats a call, and never makes up a response.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?]);
    /// let github = limits.outgoing("github").wait(Duration::from_secs(10));
    ///
    /// let turn = github.ready("our-token").await?;
    /// // let answer = client.get("https://api.github.com/user").send().await?;
    /// # let mut answer = http::Response::new(());
    /// # *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    /// # answer.headers_mut().insert("retry-after", "7".parse()?);
    /// turn.heard(answer.status(), answer.headers());
    /// # tokio::task::yield_now().await;
    /// // It was a 429 with `Retry-After: 7`. With more patience it would wait.
    /// let github = github.wait(Duration::from_secs(5));
    /// assert!(github.ready("our-token").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn outgoing(&self, path: &str) -> Outgoing {
        self.declare_checks([path]);
        let rule = self.rules().load().get(path).cloned();
        if rule.is_some_and(|rule| !rule.is_outgoing()) {
            let warning = Warning::new(WarningKind::NotOutgoing).about(path);
            self.warnings.add(warning);
        }
        Outgoing {
            limits: Arc::new(self.clone()),
            path: path.into(),
            key: Arc::new(|_| Key::default()),
            wait: Duration::ZERO,
        }
    }
}

/// Calls to a partner: see [`Limits::outgoing`]. As a tower layer it makes an [`OutgoingService`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limits;
/// use tidegate::limits::Outgoing;
///
/// fn partner(limits: &Limits) -> Outgoing {
///     limits.outgoing("partner").wait(Duration::from_secs(10))
/// }
/// # let _ = partner(&Limits::new([]));
/// ```
#[derive(Clone)]
#[must_use = "it paces nothing until calls go through it"]
pub struct Outgoing {
    limits: Arc<Limits>,
    path: Arc<str>,
    key: Arc<dyn Fn(&Parts) -> Key + Send + Sync>,
    wait: Duration,
}

impl Outgoing {
    /// A partner usually has one key, for which a quarter of them may wait.
    const MAX_WAITING: usize = 65_536;

    /// As whom a request calls, for the layer: a token, a tenant. Default: all calls together.
    ///
    /// ```
    /// use tidegate::{Key, Limits};
    ///
    /// let tenants = Limits::new([]).outgoing("partner").key_by(|head| {
    ///     let tenant = head.headers.get("x-tenant").and_then(|it| it.to_str().ok());
    ///     Key::from(tenant.unwrap_or_default())
    /// });
    /// # let _ = tenants;
    /// ```
    pub fn key_by(mut self, key: impl Fn(&Parts) -> Key + Send + Sync + 'static) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// How long a call may wait for its turn: for room in the quotas, or for the end of a hold that
    /// is near enough. Of one key 16,384 calls of a process may wait, and four times as many in
    /// all; beyond that they are denied. Default: it does not wait.
    pub fn wait(mut self, up_to: Duration) -> Self {
        self.wait = up_to;
        self
    }

    /// Holds the key in a task, if this answer says so.
    pub(super) fn hear(self, key: Key, status: StatusCode, headers: &HeaderMap) {
        let Self { limits, path, .. } = self;
        let rule = limits.rules().load().get(&path).cloned();
        let Some(rule) = rule.filter(|rule| rule.is_outgoing()) else {
            return;
        };
        let Some((pause, unread)) = wanted_pause(status, headers, rule.refusals()) else {
            return;
        };
        if let Some(field) = unread {
            let field = format_args!("{:.64}", field.as_str());
            let warning = Warning::of(WarningKind::RefusalNotUnderstood, field);
            limits.warnings.add(warning.about(&path));
        }
        let mut take = Take::new(rule, key);
        take.ask = take.ask.unawaited(Ask::PATIENCE);
        let place = limits.refunds.waiting();
        spawn(place.until(async move {
            let (held, path) = (limits.hold_key_of(&take, pause).await, &*path);
            match held {
                Ok(_) if FAILED.worked() => {
                    trace::event!(warn: path, "holds are answered again");
                }
                Err(error) if FAILED.failed() => {
                    let error = error.to_string();
                    trace::event!(warn: path, error, "other processes do not know of a hold");
                }
                Ok(_) | Err(_) => {}
            }
        }));
    }

    /// Waits for the turn of a call with this key. The call follows, and then
    /// [`heard`](Turn::heard).
    ///
    /// # Errors
    ///
    /// [`Refused`] if there is no turn in time, or the store gives no decision.
    pub async fn ready(&self, key: impl Into<Key>) -> Result<Turn, Refused> {
        let key = key.into();
        let call = self.limits.call(&self.path).key(key.clone());
        let call = call.max_waiting(Self::MAX_WAITING);
        let admitted = call.wait(self.wait).await?;
        let outgoing = self.clone();
        Ok(Turn {
            outgoing,
            key,
            _admitted: admitted,
        })
    }
}

/// The turn of one call to a partner.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tidegate::Limits;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let partner = Limits::new([]).outgoing("partner");
/// let turn = partner.ready("our-token").await?;
/// turn.heard(StatusCode::OK, &HeaderMap::new());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "what the partner answers is not heard"]
pub struct Turn {
    outgoing: Outgoing,
    key: Key,
    _admitted: Admitted,
}

impl Turn {
    /// What the partner has answered. If it wants no calls for a while, the key is
    /// [held](Limits::hold), by a task of the current tokio runtime, for which [`Limits::flush`]
    /// waits. A turn that is dropped in place of that holds nothing. Of a gRPC answer whose status
    /// is in the trailers, these are the `headers`.
    pub fn heard(self, status: StatusCode, headers: &HeaderMap) {
        self.outgoing.hear(self.key, status, headers);
    }
}

impl<S> Layer<S> for Outgoing {
    type Service = OutgoingService<S>;

    fn layer(&self, client: S) -> OutgoingService<S> {
        OutgoingService {
            client,
            outgoing: self.clone(),
        }
    }
}

/// A client whose calls wait for their turns: see [`Limits::outgoing`].
///
/// The body of an answer is an [`OutgoingBody`], which hears the trailers of gRPC.
///
/// It is always ready: a call that waits keeps no connection of the client ready. A call that gets
/// no turn fails with [`CallError::Denied`] or [`CallError::Failed`], and what the client itself
/// fails with is a [`CallError::Inner`].
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tidegate::Limits;
/// use tidegate::limits::OutgoingService;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
/// let client: OutgoingService<_> = Limits::new([]).outgoing("partner").layer(client);
/// let body = client.oneshot(Request::new(())).await?.into_body();
/// assert_eq!(body.into_inner(), "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OutgoingService<S> {
    client: S,
    outgoing: Outgoing,
}

impl<S, B, R> Service<Request<B>> for OutgoingService<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    B: Send + 'static,
    R: Send,
{
    type Response = Response<OutgoingBody<R>>;
    type Error = CallError<S::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let key = (self.outgoing.key)(&head);
        let request = Request::from_parts(head, body);
        let (outgoing, mut client) = (self.outgoing.clone(), self.client.clone());
        Box::pin(async move {
            let turn = outgoing.ready(key).await?;
            let is_ready = poll_fn(|cx| client.poll_ready(cx)).await;
            is_ready.map_err(CallError::Inner)?;
            let answer = client.call(request).await.map_err(CallError::Inner)?;
            // A status of gRPC that is not in the head comes in the trailers.
            let is_open = !answer.headers().contains_key(GRPC_STATUS);
            let listener = is_open.then(|| (outgoing, turn.key.clone()));
            turn.heard(answer.status(), answer.headers());
            Ok(answer.map(|body| OutgoingBody { body, listener }))
        })
    }
}

crate::named::debug_fields!(Outgoing: path, wait);
