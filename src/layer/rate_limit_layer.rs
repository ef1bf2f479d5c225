use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum_core::response::IntoResponse;
use http::request::Parts;
use http::response;
use tower_layer::Layer;

use super::decisions::RuleSource;
use super::gate::Gate;
use super::options::{Options, WithoutExtensions};
use super::{Headers, RateLimit};
use crate::callback::{DegradeCallback, Denied, ErrorCallback, Failed, Form, Recovery};
use crate::error::KeyError;
use crate::key::{Key, KeyExtractor};
use crate::metrics::RuleSnapshot;
use crate::quota::Quota;
use crate::rule::{Plan, Rule, SharedRules};
use crate::store::{Store, shared};

/// Wraps handlers so that a store is asked before they run.
///
/// On a router it counts all its routes together; on a route, that route alone. Layers of the same
/// path that use the same store count together wherever they are: in another router, and if the
/// store is Redis in another process. All services that a layer makes, and all clones of it, share
/// its state.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate::RateLimitLayer;
///
/// let limited = RateLimitLayer::new("getId", Duration::from_secs(10), 5);
/// let app: Router = Router::new()
///     .route("/getId", get(|| async { "1" }).layer(limited))
///     .route("/healthz", get(|| async { "ok" }));
/// # let _ = app;
/// ```
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until something is wrapped in it"]
pub struct RateLimitLayer {
    gate: Arc<Gate>,
}

impl RateLimitLayer {
    /// Limits `path`, any non-empty name of what is limited, to `max` requests in any `window`.
    ///
    /// Counts in a memory store of its own unless it gets [another one](RateLimitLayer::store).
    ///
    /// # Panics
    ///
    /// If the path is empty, or if there is no such [`Quota`]: a window of zero or of more than ten
    /// years, or a `max` of more than 15 digits. Use [`RateLimitLayer::from_rule`] where these are
    /// not constants.
    pub fn new(path: &str, window: Duration, max: u64) -> Self {
        let quota = Quota::new(window, max).unwrap_or_else(|error| panic!("{error}"));
        let rule = Rule::new(path, [quota]).unwrap_or_else(|error| panic!("{error}"));
        Self::from_rule(rule)
    }

    /// Limits what the rule says.
    pub fn from_rule(rule: Rule) -> Self {
        Self::from_gate(Gate::new(RuleSource::Fixed(Arc::new(rule))))
    }

    /// Limits `path` as the rules say at each request; not at all while they have no rule for it.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn from_rules(rules: &SharedRules, path: &str, store: impl Store) -> Self {
        assert!(!path.is_empty(), "the path is empty");
        rules.mark_used(path);
        Self::from_gate(Gate::named(rules, path)).store(store)
    }

    pub(crate) fn from_gate(gate: Gate) -> Self {
        let gate = Arc::new(gate);
        Self { gate }
    }

    /// Where the counts are kept: a store, or an `Arc` of one that others use, too.
    /// Default: a [`MemoryStore`](crate::MemoryStore) of this layer's own, which all its clones and
    /// services share. With debug assertions the default store reads tokio's clock, so that tests
    /// may pause time.
    pub fn store(self, store: impl Store) -> Self {
        self.with(|gate| gate.decider.set_store(shared(store)))
    }

    /// Which requests are counted together: those with the same key, which this extractor makes. A
    /// closure that does not name its type goes to [`key_by`](Self::key_by). Default: the rule's
    /// key; without one, all requests of the path. The subjects of a [joint](Rule::joint) rule keep
    /// the keys that they have.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{PeerIp, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new("login", Duration::from_secs(60), 5).key(PeerIp);
    /// # let _ = layer;
    /// ```
    pub fn key(self, key: impl KeyExtractor) -> Self {
        let key: Arc<dyn KeyExtractor> = Arc::new(key);
        self.gate.decider.path.counters.add_extractor(&key);
        self.with_choice(|it| it.key = Some(key))
    }

    /// The key by a closure, whose types are inferred: [`key`](Self::key) needs the type of its
    /// argument.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::key::KeyError;
    /// use tidegate::{Key, RateLimitLayer};
    ///
    /// let tenants = ["acme", "globex"];
    /// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100).key_by(move |head| {
    ///     // As in `/acme/orders`. A host is a key of its own: `key::Host`.
    ///     let tenant = head.uri.path().split('/').nth(1).filter(|name| tenants.contains(name));
    ///     tenant.map(Key::from).ok_or_else(|| KeyError::malformed("an unknown tenant"))
    /// });
    /// # let _ = layer;
    /// ```
    pub fn key_by(
        self,
        key: impl Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.key(key)
    }

    /// What a request costs, in units, from its head: a request for a large export may cost more
    /// than one for a page. [0 is a cost as well](crate::Take::with_cost). A panic is answered with
    /// a 500. Default: the rule's cost, which is 1 by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100)
    ///     .cost(|head| if head.uri.path().starts_with("/export") { 10 } else { 1 });
    /// # let _ = layer;
    /// ```
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with_option(|it| it.cost = Some(Arc::new(cost)))
    }

    /// The plan of a request, which chooses among the [plans](Rule::with_plan) of the rule; `None`
    /// if it has none: the rule's own quotas apply, and nothing else is asked. A plan that the rule
    /// does not have counts as none, too: it is [counted](RuleSnapshot::unknown_plans), and logged
    /// once for each rule. A rule without plans does not ask. A panic is answered with a 500.
    /// Default: the closure of [`Limits`](crate::Limits::plan); without one, the name that the
    /// request's extensions hold, as a [`Plan`]. A plan by value is unused there: see
    /// [`plan_value`](Self::plan_value).
    ///
    /// Take the plan from what authentication has found out, and not from what a client may choose.
    /// Write the closure in place, or pass the name of a `fn`: of a closure that a variable holds
    /// the compiler does not see that what it returns is borrowed from the head.
    ///
    /// ```
    /// use tidegate::rule::Quotas;
    /// use tidegate::{Quota, RateLimitLayer, Rule};
    ///
    /// /// What authentication puts into the extensions of a request.
    /// #[derive(Clone)]
    /// struct Customer {
    ///     plan: String,
    /// }
    ///
    /// let rule = Rule::new("api", [Quota::per_minute(10)])?
    ///     .with_plan("pro", Quotas::new([Quota::per_minute(600)])?)?;
    /// let layer = RateLimitLayer::from_rule(rule)
    ///     .plan(|head| Some(head.extensions.get::<Customer>()?.plan.as_str()));
    /// # let _ = layer;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn plan(self, plan: impl Fn(&Parts) -> Option<&str> + Send + Sync + 'static) -> Self {
        self.with_choice(|it| it.plan = Some(Arc::new(plan)))
    }

    /// The [plan](Plan::of) of a request as a value, where what a customer bought stands elsewhere, as
    /// in a table. After `None` the next source is asked: [`plan`](Self::plan), else the name among
    /// the request's extensions, else it is the rule's own quotas. All else is the rule's: path,
    /// key, cost, algorithm. Quotas may be of any [subject](crate::rule::Subject) of the rule, have
    /// costs of their own, and limit requests [at a time](crate::rule::Policy::concurrent). A panic
    /// is answered with a 500. Default: the closure that [`Limits`](crate::Limits::plan_value) have
    /// for the path.
    ///
    /// A plan that does not fit the rule counts as none: it is
    /// [counted](RuleSnapshot::unknown_plans), and logged once for each rule.
    ///
    /// [`Rule::with_plan`] says how plans count together.
    ///
    /// Equal plans are one computed rule, of which 10,000 are kept, by use.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, RwLock};
    /// use tidegate::rule::Plan;
    /// use tidegate::{Header, Quota, RateLimitLayer, Rule};
    ///
    /// let tenants: Arc<RwLock<HashMap<String, Plan>>> = Arc::default();
    /// let known = Arc::clone(&tenants);
    /// let rule = Rule::new("api", [Quota::per_minute(10)])?.with_key(Header::new("x-tenant"));
    /// let layer = RateLimitLayer::from_rule(rule).plan_value(move |head| {
    ///     let name = head.headers.get("x-tenant")?.to_str().ok()?;
    ///     known.read().ok()?.get(name).cloned()
    /// });
    ///
    /// // From the next request on:
    /// let plan = Plan::of([Quota::per_minute(600)])?;
    /// tenants.write().expect("no panic").insert("acme".to_owned(), plan);
    /// # let _ = layer;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn plan_value(self, plan: impl Fn(&Parts) -> Option<Plan> + Send + Sync + 'static) -> Self {
        self.with_choice(|it| {
            it.listeners.crossings.iter().for_each(|it| it.expect());
            it.plan_value = Some(Arc::new(plan));
        })
    }

    /// Gives a request's charge back when this holds for the head of its response, beside what the
    /// rule's [outcomes](Rule::with_refund_on) say, and in the same way. It is also asked about
    /// responses of inner layers of this crate: [`Decision::from_extensions`] tells denials. A
    /// request stays charged after a panic of the closure, which is logged. Default: only what the
    /// rule says.
    ///
    /// [`Decision::from_extensions`]: crate::Decision::from_extensions
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    ///
    /// // What comes from a cache is free.
    /// let layer = RateLimitLayer::new("search", Duration::from_secs(1), 100)
    ///     .refund_if(|response| response.headers.get("x-cache").is_some_and(|it| it == "hit"));
    /// # let _ = layer;
    /// ```
    pub fn refund_if(
        self,
        condition: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with_option(|it| it.refund_if = Some(Arc::new(condition)))
    }

    /// Waits until nothing waits to be given back, and then until no callback about this path runs,
    /// for at most `bound`. Returns whether nothing waits and none runs any more: see
    /// [`Limits::flush`](crate::Limits::flush).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled.
    pub async fn flush(&self, bound: Duration) -> bool {
        let decider = &self.gate.decider;
        let (store, tellings) = (decider.store(), &decider.path.tellings);
        decider.refunds.flush(&**store, tellings, bound).await
    }

    /// Requests that pass without being limited: CORS preflights, for example. A panic is
    /// answered with a 500. Exemptions add up: those of a second call, those of
    /// [`Limits`](crate::Limits::exempt), and those of a file of rules. Default: none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::Method;
    /// use tidegate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100)
    ///     .exempt(|head| head.method == Method::OPTIONS);
    /// # let _ = layer;
    /// ```
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with_choice(|it| it.exempt.push(Arc::new(exempt)))
    }

    /// What answers a denied request. Default: [`Problem`](crate::callback::Problem), a 429, or for
    /// a gRPC request the status 8.
    pub fn degrade(self, callback: impl DegradeCallback) -> Self {
        self.with_option(|it| it.degrade = Some(Arc::new(callback)))
    }

    /// The degrade callback as a closure, whose types are inferred: [`degrade`](Self::degrade)
    /// needs the type of its argument. What the closure has captured is cloned in it for each
    /// answer.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    ///
    /// let last_report = Arc::<str>::from("the report of yesterday");
    /// let layer = RateLimitLayer::new("export", Duration::from_secs(60), 1)
    ///     .degrade_fn(move |denied| {
    ///         let report = Arc::clone(&last_report);
    ///         async move {
    ///             let wait = denied.decision.retry_after().unwrap_or_default();
    ///             format!("{report} (a new one in {} s)", wait.as_secs())
    ///         }
    ///     });
    /// # let _ = layer;
    /// ```
    ///
    /// An `async |denied| ..` cannot capture, since the answer would borrow from the closure:
    ///
    /// ```compile_fail
    /// # use std::time::Duration;
    /// # use tidegate::RateLimitLayer;
    /// let text = String::from("later");
    /// # let layer = RateLimitLayer::new("export", Duration::from_secs(60), 1);
    /// layer.degrade_fn(async move |_| text.clone());
    /// ```
    pub fn degrade_fn<A>(self, callback: impl Fn(Denied) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output: IntoResponse> + Send + 'static,
    {
        self.degrade(callback)
    }

    /// What answers a request for which no decision could be made, or whose handler failed.
    ///
    /// Default: a 503 if the store failed; a 400 or 500 if there is no key, by the
    /// [kind](crate::key::KeyErrorKind) of the error. A gRPC request gets
    /// [a status](crate::callback::Problem) in place of these. Errors of the handler go on.
    ///
    /// What the [rule](crate::Rule::with_on_error) says comes first: where a fallback has decided,
    /// or the rule [proceeds](crate::rule::OnError::Proceed), the callback is not called, unless it
    /// [wants to be](crate::ErrorCallback::also_with_fallback).
    pub fn on_error(self, callback: impl ErrorCallback) -> Self {
        self.with_option(|it| it.on_error = Some(Arc::new(callback)))
    }

    /// The error callback as a closure. It looks at what failed: it is asked, too, about a request
    /// without a key, which is the client's mistake, and about an error of the handler.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::StatusCode;
    /// use tidegate::callback::FailureKind;
    /// use tidegate::{Header, RateLimitLayer, Recovery};
    ///
    /// let layer = RateLimitLayer::new("search", Duration::from_secs(1), 100)
    ///     .key(Header::new("x-user"))
    ///     .on_error_fn(async |failed| match failed.kind() {
    ///         FailureKind::Store(_) => {
    ///             Recovery::from((StatusCode::SERVICE_UNAVAILABLE, "search is busy"))
    ///         }
    ///         // A client without `x-user` gets a 400 that says so.
    ///         _ => Recovery::Propagate,
    ///     });
    /// # let _ = layer;
    /// ```
    ///
    /// Its types are inferred: [`on_error`](Self::on_error) needs the type of its argument. What
    /// the closure has captured is cloned in it for each answer. It returns a response or a
    /// [`Recovery`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    /// use tidegate::{RateLimitLayer, Recovery};
    ///
    /// let failures = Arc::new(AtomicU64::new(0));
    /// let layer = RateLimitLayer::new("search", Duration::from_secs(1), 100)
    ///     .on_error_fn(move |failed| {
    ///         let failures = Arc::clone(&failures);
    ///         async move {
    ///             let number = failures.fetch_add(1, Ordering::Relaxed);
    ///             eprintln!("failure {number}: {failed}");
    ///             Recovery::Propagate
    ///         }
    ///     });
    /// # let _ = layer;
    /// ```
    pub fn on_error_fn<A>(self, callback: impl Fn(Failed) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output: Into<Recovery>> + Send + 'static,
    {
        self.on_error(callback)
    }

    /// Which fields the responses get. Default: what the rule's file says, else
    /// [`Headers::Draft11`].
    pub fn headers(self, headers: Headers) -> Self {
        self.with_option(|it| it.headers = Some(headers))
    }

    /// In which form this layer answers by itself. Default: [`Form::Problem`].
    pub fn form(self, form: Form) -> Self {
        self.with_option(|it| it.form = form)
    }

    /// Leaves out of an admitted request, of its response, or of both what this layer has decided
    /// and charged: for services where nobody reads it, which saves an allocation or two each.
    ///
    /// Without it in the request, handlers find no [`Decision`](crate::Decision) and no
    /// [`Charges`](crate::store::Charges) of this layer, and no inner layer can tell that it
    /// [charges the same key](crate::warning::WarningKind::ChargedTwice); under a rule whose handlers
    /// [settle](Rule::with_settling), or which [locks out](Rule::with_lockout), they find them all
    /// the same. Without it in the response,
    /// middleware around the layer finds none, and a layer of this crate around it replaces the
    /// [fields](Self::headers) that this one has written. What answers a denied request stays as it
    /// is. Default: both have it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100)
    ///     .without_extensions(true, true);
    /// # let _ = layer;
    /// ```
    pub fn without_extensions(self, request: bool, response: bool) -> Self {
        let without = WithoutExtensions { request, response };
        self.with_option(|it| it.without_extensions = without)
    }

    /// Leaves the body of a request unread that this layer answers itself: an HTTP/1 connection is
    /// closed, as the answer says (`connection: close`), and an HTTP/2 stream reset. For layers
    /// around a client, whose body nobody sends, and behind Apache Traffic Server. The rule's file
    /// may say it, too: `close-denied-uploads`.
    ///
    /// Default: the answer leaves at once, and a task reads on what the client still sends, for at
    /// most 2 seconds, 16 MiB at full speed and then together with all others 125 MiB a second, of
    /// at most 1,024 requests of the process at a time: a client that sends all before it reads gets
    /// its answer, and a [proxy](crate::guide::proxies) does not take the server for dead. Over
    /// HTTP/1 the answer to a `Content-Length` of at most 64 KiB leaves when the body is read to
    /// its end, or after 100 ms. Uploads that are longer, slower or too many are
    /// [counted](RuleSnapshot::closed_uploads), and closed.
    /// Over HTTP/1 the answer says `connection: close` beside a `Content-Length` above 16 MiB, and
    /// where nothing is read on, so that no proxy gives the connection to its next request: of too
    /// many uploads, and of a client that awaits a `100 Continue`. A `connection` field of a
    /// callback stays as it is.
    pub fn close_denied_uploads(self) -> Self {
        self.with_option(|it| it.closes_uploads = true)
    }

    /// Lets a request that does not fit yet wait for up to this long, instead of denying it.
    /// `Duration::MAX` means as long as it takes. Default: a request does not wait.
    ///
    /// Each request asks the store when it arrives. If it is denied it asks again after its
    /// retry-after, and at least once a second, and is denied for good once its retry-after leads
    /// past its time. Units that are free go to the caller that asks first: no queue stands in front
    /// of a request that has just come.
    ///
    /// Of the requests that wait for one count, one asks for all of this process: when the
    /// retry-after is over, at least once a second, and when this process gives something back
    /// there, or hears of a [permit](Rule::with_max_concurrent) that came back in any process. As
    /// many wake as fit, those that cost least first, and among these in the order of their arrival.
    /// What other processes give back is so found within a second. Before its question a request's
    /// key, cost, plan and rule are taken anew, so a reload holds for those that wait, too, within a
    /// second; the time goes on. Where a [bound](crate::Resilient::in_flight) says that the store is
    /// overloaded, a request that may wait asks again after 10 to 50 ms.
    ///
    /// A request is denied immediately if its retry-after leads past its time, unless what denies it
    /// may come back: the rule has [`refund-on`](Rule::with_refund_on), the layer has
    /// [`refund_if`](Self::refund_if), the rule says that handlers
    /// [settle](Rule::with_settling) (which quotas with a
    /// [cost of their own](crate::rule::Policy::with_cost) are not), or only a permit is missing. So
    /// it is where units come evenly, and those that it finds waiting, and that wait as long as it
    /// does, use them until its time is over: a raise later in that time comes too late for it.
    ///
    /// While it waits, a request keeps no instance of the inner service ready. Where several layers
    /// around a handler let a request wait, the bounds of inner layers begin when it began to wait
    /// in an outer one.
    ///
    /// Around a client that calls others, this paces its calls.
    ///
    /// What waits holds its connection: of a gateway's HTTP/2 connection that is one of 200 streams
    /// (hyper's default), which the gateway's other requests lack. There let at most 100
    /// [wait](Self::max_waiting). Over HTTP/1 nobody sees a client leave behind a body that was not
    /// read: in its turn the request is charged, and its handler runs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    ///
    /// let paced = RateLimitLayer::new("partner", Duration::from_secs(1), 10)
    ///     .wait(Duration::from_secs(5));
    /// # let _ = paced;
    /// ```
    pub fn wait(self, up_to: Duration) -> Self {
        self.with(|gate| {
            gate.decider.waiting.up_to = up_to;
            let turns = &gate.decider.path.turns;
            turns.may_wait.fetch_or(!up_to.is_zero(), Ordering::Relaxed);
        })
    }

    /// How many requests may [`wait`](Self::wait) at the same time, in all services and clones of
    /// this layer. One key takes at most a quarter of them, rounded down, but at least one. A
    /// request beyond either bound is denied immediately. Default: 1,024.
    pub fn max_waiting(self, max: usize) -> Self {
        self.with(|gate| gate.decider.waiting.max = max)
    }

    /// Between whom requests that [wait](Self::wait) take turns, as [`Rule::with_fair_by`], which
    /// comes after this.
    pub fn fair_by(self, key: impl KeyExtractor) -> Self {
        self.with(|gate| {
            gate.options.fair_by = Some(Arc::new(key));
            let turns = &gate.decider.path.turns;
            turns.has_fair_layer.store(true, Ordering::Relaxed);
        })
    }

    /// Adds the key's hash to the debug event of each denial: 128 bits of SHA-256, the same in all
    /// processes. Readers who can guess a key, as an address, can recognize it. Default: no keys.
    #[cfg(feature = "tracing")]
    pub fn trace_hashed_keys(self) -> Self {
        self.with(|gate| gate.decider.traces_keys = true)
    }

    /// What this layer's services have counted, together with those of all other layers that the
    /// same [`Limits`](crate::Limits) made for the path. `None` while the path has no rule.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::RateLimitLayer;
    /// use tidegate::metrics::DecisionOutcome;
    ///
    /// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5);
    /// let snapshot = layer.snapshot().expect("the rule is fixed");
    /// assert_eq!(snapshot.decisions(DecisionOutcome::Allowed), 0);
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Option<RuleSnapshot> {
        self.gate.snapshot()
    }

    fn with(mut self, change: impl FnOnce(&mut Gate)) -> Self {
        let gate = Arc::make_mut(&mut self.gate);
        change(gate);
        gate.decider.gives_back = gate.options.refund_if.is_some();
        gate.decider.recovers = gate.options.on_error.is_some();
        self
    }

    /// What says whom a request counts for, if at all, or its quotas: `Limits::usage` does not
    /// know.
    fn with_choice(self, change: impl FnOnce(&mut Options)) -> Self {
        if let RuleSource::Named { rules, path } = &self.gate.decider.rule {
            rules.mark_own_choice(path);
        }
        self.with_option(change)
    }

    fn with_option(self, change: impl FnOnce(&mut Options)) -> Self {
        self.with(|gate| change(&mut gate.options))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        // Made now, with its wrappers, so that no request has to wait for them.
        self.gate.decider.capabilities();
        let gate = Arc::clone(&self.gate);
        RateLimit { inner, gate }
    }
}
