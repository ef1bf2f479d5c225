use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, RwLock};

use axum_core::response::IntoResponse;
use http::Extensions;
use http::request::Parts;

use super::paths::Paths;
use crate::callback::{DegradeCallback, Denied, ErrorCallback, Failed, Form, Recovery};
use crate::charge::{PathOwner, RefundQueue};
use crate::error::KeyError;
use crate::fleet::{Member, OperatorKeys, Reports};
use crate::key::ip::PeerHook;
use crate::key::{Key, KeyExtractor};
use crate::layer::{Crossing, Crossings, Gate, Headers, LockedOut, Options};
use crate::layer::{RateLimitLayer, StoreLog, Warnings, on_lockout};
#[cfg(feature = "config")]
use crate::live::Reloads;
#[cfg(all(feature = "config", feature = "metrics"))]
use crate::metrics::publish_reloads;
use crate::metrics::{NearLimit, Snapshot};
#[cfg(feature = "metrics")]
use crate::metrics::{Publisher, publish_until};
use crate::rule::{Plan, Rules, SharedRules, WeakRules};
#[cfg(doc)]
use crate::store::MemoryStore;
use crate::store::{Store, default_store, shared};
use crate::warning::{Warning, WarningKind};

/// Rules by path and the store that they count in: makes the layers of an application.
///
/// Clones share the rules and the store.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate::Limits;
///
/// # #[cfg(feature = "config")] {
/// let limits = Limits::from_toml(
///     r#"
///     [rules.getId]
///     max-count = 5
///     window = "10s"
///     "#,
/// )?;
/// let app: Router = Router::new()
///     .route("/getId", get(|| async { "1" }).layer(limits.layer("getId")))
///     // There is no rule for this path, so it passes straight through.
///     .route("/about", get(|| async { "tidegate" }).layer(limits.layer("about")));
/// # let _ = app;
/// assert_eq!(limits.paths_without_rule(), ["about"]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What needs a feature of the crate is not found without it:
///
/// | feature | methods |
/// |---|---|
/// | `config`, a default one | `from_file`, `from_toml`, `watch`, `reload`, `status` |
/// | `page` | `page`, `process_name` |
/// | `metrics` | `publish_metrics`, `publish_metrics_every_second` |
/// | `macros` | the attribute `#[limited]`, which asks the [installed](Limits::install) limits |
#[derive(Debug, Clone)]
#[must_use = "limits do nothing until they make a layer or are asked"]
pub struct Limits {
    pub(crate) rules: SharedRules,
    /// Filled when the first layer is made: a memory store takes time to start its clock.
    pub(super) store: Arc<OnceLock<Arc<dyn Store>>>,
    /// What the layers of that store give back.
    pub(crate) refunds: RefundQueue,
    /// Logs how that store does.
    store_log: Arc<StoreLog>,
    pub(crate) paths: Arc<Paths>,
    /// What the layers made from now on begin with.
    pub(crate) defaults: Options,
    /// Keys that an operator lets through, blocks or raises, the same for all layers.
    pub(crate) operator_keys: Arc<OperatorKeys>,
    pub(crate) member: Arc<Member>,
    pub(crate) reports: Arc<Reports>,
    /// What checks ask with, by path: gates as those of layers.
    pub(super) checks: Arc<RwLock<HashMap<Box<str>, Arc<Gate>>>>,
    #[cfg(feature = "metrics")]
    publisher: Arc<Publisher>,
    pub(crate) warnings: Arc<Warnings>,
    near_limit: NearLimit,
    #[cfg(feature = "config")]
    pub(super) reloads: Arc<Reloads>,
}

impl Limits {
    /// These rules, counted in a [`MemoryStore`] until [told otherwise](Limits::store).
    ///
    /// ```
    /// use tidegate::{Limits, PeerIp, Quota, Rule};
    ///
    /// let login = Rule::new("login", [Quota::per_minute(5)])?;
    /// let limits = Limits::new([login]).key(PeerIp);
    /// let layer = limits.layer("login");
    /// # let _ = layer;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn new(rules: impl Into<Rules>) -> Self {
        Self::from_shared(SharedRules::new(rules.into()))
    }

    pub(super) fn from_shared(rules: SharedRules) -> Self {
        Self {
            rules,
            store: Arc::default(),
            refunds: RefundQueue::default(),
            store_log: Arc::default(),
            paths: Arc::default(),
            defaults: Options::default(),
            operator_keys: Arc::default(),
            member: Arc::default(),
            reports: Arc::default(),
            checks: Arc::default(),
            #[cfg(feature = "metrics")]
            publisher: Arc::default(),
            warnings: Arc::default(),
            near_limit: NearLimit::default(),
            #[cfg(feature = "config")]
            reloads: Arc::default(),
        }
    }

    /// Where the counts are kept: for layers made from now on. Default: a [`MemoryStore`], made
    /// with the first layer and shared with all clones. With debug assertions the default store
    /// reads tokio's clock, so that tests may pause time.
    ///
    /// A store that is shared with other code is given as an `Arc`.
    pub fn store(self, store: impl Store) -> Self {
        let mut limits = self.with("store", |_| {});
        limits.store = Arc::new(OnceLock::from(shared(store)));
        limits.refunds = RefundQueue::default();
        limits.store_log = Arc::default();
        limits
    }

    /// The store of these limits, for code that asks it by itself.
    #[must_use]
    pub fn shared_store(&self) -> &Arc<dyn Store> {
        self.store.get_or_init(default_store)
    }

    /// Which requests are counted together, for layers and rules without a key of their own: a
    /// layer's key comes first, then the rule's, then this one. Default: all requests of a path
    /// are counted together.
    ///
    /// A limit for all clients together says so by its own key: [`Everyone`](crate::key::Everyone),
    /// or `key = "everyone"` in a file. Without one it becomes a limit for each key, and where
    /// nothing says a key there is a [warning](WarningKind::NoKey).
    ///
    /// ```
    /// use tidegate::key::Everyone;
    /// use tidegate::{Header, Limits, Quota, Rule};
    ///
    /// // Each user has 10 searches a minute, and all users together have 100 exports an hour.
    /// let search = Rule::new("search", [Quota::per_minute(10)])?;
    /// let export = Rule::new("export", [Quota::per_hour(100)])?.with_key(Everyone);
    /// let limits = Limits::new([search, export]).key(Header::new("x-user"));
    /// # let _ = limits;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// This setter and the ones below are for layers made from now on. One that is called after a
    /// layer was made is a [warning](WarningKind::SetTooLate).
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.with("key", |it| it.default_key = Some(Arc::new(key)))
    }

    /// The [key](Self::key) by a closure, as [`RateLimitLayer::key_by`] takes it.
    pub fn key_by(
        self,
        key: impl Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.key(key)
    }

    /// What answers denied requests, as [`RateLimitLayer::degrade`]. A layer may have its own.
    pub fn degrade(self, callback: impl DegradeCallback) -> Self {
        self.with("degrade", |it| it.degrade = Some(Arc::new(callback)))
    }

    /// The [degrade callback](Self::degrade) as a closure, as [`RateLimitLayer::degrade_fn`] takes
    /// it.
    pub fn degrade_fn<A>(self, callback: impl Fn(Denied) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output: IntoResponse> + Send + 'static,
    {
        self.degrade(callback)
    }

    /// What answers requests without a decision, as [`RateLimitLayer::on_error`]. A layer may have
    /// its own.
    pub fn on_error(self, callback: impl ErrorCallback) -> Self {
        self.with("on_error", |it| it.on_error = Some(Arc::new(callback)))
    }

    /// The [error callback](Self::on_error) as a closure, as [`RateLimitLayer::on_error_fn`] takes
    /// it.
    pub fn on_error_fn<A>(self, callback: impl Fn(Failed) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output: Into<Recovery>> + Send + 'static,
    {
        self.on_error(callback)
    }

    /// Calls code once in a period when a key has used one of these shares of a
    /// [calendar quota](crate::rule::Policy::calendar), such as 0.8: more than 0 and at most 1,
    /// rounded to thousandths, at least one. Default: no code is called.
    ///
    /// It is called after an answer, a denial as well, by which at least that share is used, and
    /// outside of the request. What other requests of this process may still give back or settle is
    /// not used yet, nor is what this one may, where its rule [settles](crate::Rule::with_settling)
    /// or refunds by outcome. The store is asked again once that is over, and behind a settlement
    /// that charges more than was reserved. What is reserved in other processes counts as used. Of
    /// the processes that share a Redis one calls, and none does if it ends in between. In memory,
    /// and with a store of your own, each process calls. Another max, as of another plan or a
    /// raise, is another crossing.
    ///
    /// Where requests reserve more than is left, all are denied, and no answer shows that 1.0 is
    /// used. So if 1.0 is among the shares, a denial by the quota tells of it once, as soon as the
    /// largest share below it is used, or 0.8 where none is watched: [`Crossing::is_denial`] says
    /// so. The crossing itself is told as well, if it comes. A request that asks for more than the
    /// max tells nothing.
    ///
    /// A panic is logged. Up to 1,024 calls run at a time; the log says of those beyond, and of
    /// those that Redis does not answer for minutes, that they are lost, and once, if Redis
    /// refuses, which [permissions](crate::guide::security) it needs. A fallback, a peek and a key
    /// that is let through make no call; of a rule in shadow the crossing says so.
    ///
    /// ```
    /// use tidegate::rule::{Period, Policy};
    /// use tidegate::{Limits, Rule};
    ///
    /// let chat = Rule::with_policies("chat", [Policy::calendar(Period::MONTH, 10_000)])?;
    /// let limits = Limits::new([chat]).on_crossing([0.8, 1.0], async |crossing| {
    ///     println!("{}: {} of {}", crossing.key.as_str(), crossing.used, crossing.max);
    /// });
    /// # let _ = limits;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no share, or one that is not more than 0 and at most 1.
    #[track_caller]
    pub fn on_crossing<F: Future<Output = ()> + Send + 'static>(
        self,
        shares: impl IntoIterator<Item = f64>,
        callback: impl Fn(Crossing) -> F + Send + Sync + 'static,
    ) -> Self {
        let crossings = Arc::new(Crossings::new(shares, callback));
        self.with("on_crossing", |it| it.listeners.crossings = Some(crossings))
    }

    /// Calls code once for each hold when failures [lock a key out](crate::Rule::with_lockout),
    /// such as to send a mail. Default: no code is called, and the log says it.
    ///
    /// It is called outside of the request, and the hold is logged in the same place: in the
    /// process whose failure has begun the hold, so that no store has to keep who called. No code
    /// is called if that process ends in between, if a failover of Redis loses the hold, or if
    /// Redis gives no answer until the hold is over or [`within`](crate::rule::Lockout::within) has
    /// passed. A fallback counts failures of its process alone, which calls for its holds. A panic
    /// is logged. Up to 1,024 calls run at a time; the log says that those beyond are lost. Of a
    /// rule in shadow it says so.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::rule::Lockout;
    /// use tidegate::{Header, Limits, Quota, Rule};
    ///
    /// let lockout = Lockout::after(5).hold([Duration::from_secs(900)]).on(["401"]);
    /// let login = Rule::new("login", [Quota::per_minute(10)])?.with_lockout(lockout)?;
    /// let limits = Limits::new([login.with_key(Header::new("x-account"))]);
    /// let limits = limits.on_lockout(async |it| {
    ///     println!("mail to {}: locked out, for the {}. time", it.key.as_str(), it.step);
    /// });
    /// # let _ = limits;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn on_lockout<F: Future<Output = ()> + Send + 'static>(
        self,
        callback: impl Fn(LockedOut) -> F + Send + Sync + 'static,
    ) -> Self {
        let callback = Some(on_lockout(callback));
        self.with("on_lockout", |it| it.listeners.on_lockout = callback)
    }

    /// Which fields the responses get. A layer may have its own. Default: what the file says, else
    /// [`Headers::Draft11`].
    pub fn headers(self, headers: Headers) -> Self {
        self.with("headers", |it| it.headers = Some(headers))
    }

    /// In which form its layers answer by themselves, and what a handler answers with a
    /// [`Refused`](crate::layer::Refused). A layer may have its own. Default: [`Form::Problem`].
    pub fn form(self, form: Form) -> Self {
        self.with("form", |it| it.form = form)
    }

    /// Closes the connections of denied uploads, as [`RateLimitLayer::close_denied_uploads`].
    /// Default: a task reads on what their clients still send.
    pub fn close_denied_uploads(self) -> Self {
        self.with("close_denied_uploads", |it| it.closes_uploads = true)
    }

    /// Requests that pass without being limited, as [`RateLimitLayer::exempt`]. Exemptions add up:
    /// those of a second call, those of a layer, and those of the file.
    ///
    /// ```
    /// use http::Method;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let limits = Limits::new([Rule::new("api", [Quota::per_second(100)])?])
    ///     .exempt(|head| head.method == Method::OPTIONS);
    /// # let _ = limits;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with("exempt", |it| it.exempt.push(Arc::new(exempt)))
    }

    /// The plan of a request by its name, as [`RateLimitLayer::plan`]. A layer may have its own.
    /// Default: the name in the request's extensions, as a [`Plan`](crate::rule::Plan).
    pub fn plan(self, plan: impl Fn(&Parts) -> Option<&str> + Send + Sync + 'static) -> Self {
        self.with("plan", |it| it.plan = Some(Arc::new(plan)))
    }

    /// The plan of a request of this path as a value, as [`RateLimitLayer::plan_value`], for its
    /// layers, [`usage`](Self::usage) and the page. Other paths keep the quotas of their rules. Of
    /// several closures for a path the last one counts. A layer may have its own. Default, and
    /// after `None`: that of [`plan`](Self::plan).
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use tidegate::rule::Plan;
    /// use tidegate::{Header, Limits, Quota, Rule};
    ///
    /// let tenants = HashMap::from([("acme".to_owned(), Plan::of([Quota::per_minute(600)])?)]);
    /// let rules = ["api", "login"].map(|path| Rule::new(path, [Quota::per_minute(10)]));
    /// let limits = Limits::new(rules.into_iter().collect::<Result<Vec<_>, _>>()?)
    ///     .key(Header::new("x-tenant"))
    ///     .plan_value("api", move |head| {
    ///         tenants.get(head.headers.get("x-tenant")?.to_str().ok()?).cloned()
    ///     });
    /// # let _ = limits;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    pub fn plan_value(
        self,
        path: &str,
        plan: impl Fn(&Parts) -> Option<Plan> + Send + Sync + 'static,
    ) -> Self {
        if self.rules.load().find(path).is_none() {
            // `verify` names a path that is misspelt.
            self.rules.mark_used(path);
        }
        self.with("plan_value", |it| {
            it.plan_values.insert(path.into(), Arc::new(plan));
        })
    }

    /// These limits with the same counters and rules, and without a store.
    #[cfg(feature = "metrics")]
    fn without_store(&self) -> Self {
        Self {
            store: Arc::default(),
            defaults: Options::default(),
            ..self.for_watcher()
        }
    }

    /// These limits for a task that ends with the last layer: checks own counters as layers do.
    pub(super) fn for_watcher(&self) -> Self {
        Self {
            checks: Arc::default(),
            ..self.clone()
        }
    }

    /// These limits with another default for the layers made from now on.
    fn with(mut self, setting: &'static str, change: impl FnOnce(&mut Options)) -> Self {
        if !self.paths.is_empty() {
            self.warnings
                .add(Warning::named(WarningKind::SetTooLate, setting));
        }
        change(&mut self.defaults);
        self.checks = Arc::default();
        self
    }

    /// Where the addresses of the peers are that `peer-ip` and `client-ip` count by, on a server
    /// that is not axum's: the hook finds a request's in its extensions. For layers made from now
    /// on, and whatever rules they get later. Default: in a [`PeerAddr`](crate::key::PeerAddr), or
    /// in axum's `ConnectInfo<SocketAddr>`.
    ///
    /// What the hook finds is put into the request's extensions as a `PeerAddr`, in place of one
    /// that is there. If it finds none, the address comes from where it usually does. A panic is
    /// answered with a 500. No hook is called for a rule that needs no address.
    ///
    /// For tonic's server that is
    /// `limits.peer(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr())`.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use tidegate::{Limits, Rules};
    ///
    /// /// What the server puts into the extensions of each request.
    /// #[derive(Clone)]
    /// struct Connection {
    ///     remote: SocketAddr,
    /// }
    ///
    /// let limits = Limits::new(Rules::default())
    ///     .peer(|extensions| Some(extensions.get::<Connection>()?.remote));
    /// # let _ = limits;
    /// ```
    pub fn peer(
        self,
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.with("peer", |it| it.peer = Some(PeerHook::new(hook)))
    }

    /// A layer for a path. While there is no rule for it, requests pass straight through: the
    /// log says so once (a warning, with the feature `tracing`), and
    /// [`paths_without_rule`](Limits::paths_without_rule) lists the path.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn layer(&self, path: &str) -> RateLimitLayer {
        assert!(!path.is_empty(), "the path is empty");
        let gate = self.gate(path);
        let turns = &gate.decider.path.turns;
        turns.has_layer.store(true, Ordering::Relaxed);
        RateLimitLayer::from_gate(gate)
    }

    /// A gate of the path, for a layer or for checks. All gates of a path share its counters.
    pub(super) fn gate(&self, path: &str) -> Gate {
        if !self.rules.knows(path) {
            self.warnings
                .add(Warning::new(WarningKind::NoRule).about(path));
        }
        self.rules.mark_used(path);
        let mut gate = self.uncounted_gate(path);
        gate.decider.refunds = self.refunds.clone();
        gate.decider.path = self.paths.add(path, self.near_limit);
        let (warnings, member) = (Arc::clone(&self.warnings), Arc::clone(&self.member));
        let owner = || Box::new(Owner(self.rules.downgrade(), warnings, member)) as Box<_>;
        gate.decider.path.owner.get_or_init(owner);
        gate
    }

    /// The gate of a path for a handler that only looks: the path counts as no more used than
    /// before.
    pub(super) fn uncounted_gate(&self, path: &str) -> Gate {
        let mut gate = Gate::named(&self.rules, path);
        gate.options = self.defaults.clone();
        gate.options.plan_value = self.defaults.plan_values.get(path).cloned();
        // The store is made now, so that no request has to wait for it.
        self.store.get_or_init(default_store);
        let decider = &mut gate.decider;
        decider.listeners = self.defaults.listeners.shared();
        decider.recovers = self.defaults.on_error.is_some();
        decider.store = Arc::clone(&self.store);
        decider.store_log = Arc::clone(&self.store_log);
        decider.warnings = Arc::clone(&self.warnings);
        decider.operator_keys = Arc::clone(&self.operator_keys);
        gate
    }

    /// From which part of a quota on an allowed request is counted as
    /// [near the limit](crate::metrics::RuleSnapshot::near_limit): 0.0 to 1.0, in steps of a
    /// thousandth; for paths that no layer was made for yet. Smaller values and NaN count as 0.0,
    /// larger ones as 1.0. Default: 0.8.
    pub fn near_limit_ratio(mut self, ratio: f64) -> Self {
        self.near_limit = NearLimit::new(ratio);
        self
    }

    /// What the layers have counted since they were made: see [`metrics`](crate::metrics). At most
    /// 10,000 paths are counted.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.paths.snapshot(&self.rules.guard())
    }

    /// Publishes what the layers have counted to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade: immediately, and then once per second. The
    /// recorder may be installed later, and then gets all that was counted before it.
    ///
    /// A thread publishes, so this needs no runtime, and no request waits for a recorder. The
    /// thread ends within a second after all clones of these limits and all layers that they made
    /// were dropped; it publishes their last counts. A panic of the recorder does not end it.
    /// Calling this again, also on a clone, changes nothing.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let rule = Rule::new("getId", [Quota::per_second(5)])?;
    /// let limits = Limits::new([rule]);
    /// limits.publish_metrics_every_second();
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the system starts no thread, as [`std::thread::spawn`] does.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics_every_second(&self) {
        if self.publisher.set_periodic() {
            // The thread keeps no connection to a store.
            let limits = self.without_store();
            limits.paths.add_watcher();
            let thread = std::thread::Builder::new().name("tidegate-metrics".to_owned());
            let started = thread.spawn(move || {
                publish_until(|| limits.paths.are_unused(), || limits.publish_metrics());
                limits.paths.remove_watcher();
            });
            started.expect("a thread for metrics");
        }
    }

    /// Publishes what the layers have counted so far to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade. A handler that shows metrics may call it,
    /// instead of or beside [`publish_metrics_every_second`](Limits::publish_metrics_every_second):
    /// nothing is counted twice. A counter grows by what was counted since the last publication. A
    /// recorder without a field (of size 0) counts as none.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        // Where there is none, the facade has one of this size, which drops all that it is told.
        if metrics::with_recorder(|it| size_of_val(it)) == 0 {
            return;
        }
        self.publisher.publish(|| self.snapshot());
        let unused = self.rules.paths_without_layer();
        self.publisher.publish_unused(unused);
        #[cfg(feature = "config")]
        {
            let it = self.status();
            let is_failing = it.error.is_some().into();
            let numbers = [it.version, is_failing, it.reloads, it.failures];
            publish_reloads(&self.publisher, numbers);
        }
    }

    /// The rules, to look at or to replace while requests run.
    #[must_use]
    pub const fn rules(&self) -> &SharedRules {
        &self.rules
    }
}

/// What charges of a path ask.
#[derive(Debug)]
struct Owner(WeakRules, Arc<Warnings>, Arc<Member>);

impl PathOwner for Owner {
    fn name(&self, path: &str, key: &str) -> Option<String> {
        let (shown, row) = self.2.named_key(path, key);
        self.2.shown.get().map(|_| shown.unwrap_or(row))
    }

    fn knows(&self, path: &str) -> bool {
        self.0.upgrade().is_none_or(|it| it.knows(path))
    }

    fn warn_of_charges(&self, path: &str) {
        let warning = Warning::new(WarningKind::NoCharges);
        self.1.add(warning.about(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    /// A memory store that is replaced immediately would have started its clock for nothing.
    #[test]
    fn the_default_store_is_made_with_the_first_layer() {
        let limits = Limits::new(Rules::default());
        let clone = limits.clone();
        assert!(limits.store.get().is_none());
        let _ = limits.layer("a");
        let made = limits.store.get().expect("a store");
        let of_clone = clone.store.get().expect("the same store");
        assert!(Arc::ptr_eq(made, of_clone));

        let other = clone.store(MemoryStore::new());
        let told = other.store.get().expect("the store that was given");
        assert!(!Arc::ptr_eq(made, told), "the clone has a store of its own");
    }

    #[test]
    fn a_shared_store_is_not_wrapped_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let limits = Limits::new(Rules::default()).store(Arc::clone(&store));
        let kept = limits.store.get().expect("the store that was given");
        assert!(Arc::ptr_eq(kept, &store));
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn the_thread_ends_with_the_last_layer() {
        use std::thread;

        use crate::metrics::INTERVAL;

        let limits = Limits::new(Rules::default());
        limits.publish_metrics_every_second();
        // Most services make their layers later.
        thread::sleep(INTERVAL / 10);
        let (clone, layer) = (limits.clone(), limits.layer("a"));
        clone.publish_metrics_every_second();
        let (paths, store) = (Arc::downgrade(&limits.paths), Arc::downgrade(&limits.store));
        assert_eq!(paths.strong_count(), 3, "one thread");

        drop((limits, clone));
        assert_eq!(store.strong_count(), 1, "the layer alone has the store");
        thread::sleep(INTERVAL * 2);
        assert_eq!(paths.strong_count(), 1, "a layer is there");
        drop(layer);
        let dropped = std::time::Instant::now();
        while paths.strong_count() > 0 {
            assert!(dropped.elapsed() < INTERVAL * 20, "the thread never ends");
            thread::sleep(INTERVAL / 10);
        }
    }
}
