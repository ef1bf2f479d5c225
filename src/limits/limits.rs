use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum_core::response::IntoResponse;
use http::Extensions;
use http::request::Parts;

use super::checks::Checks;
use super::paths::Paths;
use crate::callback::{DegradeCallback, Denied, ErrorCallback, Failed, Recovery, caught};
use crate::error::{KeyError, StoreError};
use crate::key::ip::PeerHook;
use crate::key::{Key, KeyExtractor};
use crate::layer::{Check, Defaults, Headers, Peek, RateLimitLayer, Settings, Warnings};
#[cfg(feature = "config")]
use crate::live::{FileWatcher, Reloads};
use crate::metrics::{NearLimit, Snapshot};
#[cfg(feature = "config")]
use crate::rule::ContentHash;
use crate::rule::{Rules, SharedRules};
#[cfg(doc)]
use crate::store::MemoryStore;
use crate::store::{RefundQueue, Store, Take, default_store, shared};
use crate::warning::{VerifyError, Warning, WarningKind};

/// From so many checked paths on, a path without a rule is not remembered, nor warned about.
const MAX_CHECKED_WITHOUT_RULE: usize = 1_000;

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
#[derive(Debug, Clone)]
pub struct Limits {
    rules: SharedRules,
    /// Filled when the first layer is made: a memory store takes time to start its clock.
    pub(super) store: Arc<OnceLock<Arc<dyn Store>>>,
    /// What the layers of that store give back.
    refunds: RefundQueue,
    pub(super) paths: Arc<Paths>,
    pub(super) defaults: Defaults,
    pub(super) checks: Arc<Checks>,
    #[cfg(feature = "metrics")]
    pub(super) publisher: Arc<crate::metrics::Publisher>,
    warnings: Arc<Warnings>,
    near_limit: NearLimit,
    #[cfg(feature = "config")]
    reloads: Arc<Reloads>,
    #[cfg(feature = "page")]
    pub(crate) monitor: Arc<super::monitor::Monitor>,
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
    #[must_use]
    pub fn new(rules: impl Into<Rules>) -> Self {
        Self::of(SharedRules::new(rules.into()))
    }

    fn of(rules: SharedRules) -> Self {
        Self {
            rules,
            store: Arc::default(),
            refunds: RefundQueue::default(),
            paths: Arc::default(),
            defaults: Defaults::default(),
            checks: Arc::default(),
            #[cfg(feature = "metrics")]
            publisher: Arc::default(),
            warnings: Arc::default(),
            near_limit: NearLimit::default(),
            #[cfg(feature = "config")]
            reloads: Arc::default(),
            #[cfg(feature = "page")]
            monitor: Arc::default(),
        }
    }

    /// The rules of a TOML file; see [`config`](crate::config) for what may stand in it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](crate::config::ConfigError) if the file cannot be read, or with the file,
    /// the line, the key and what was expected, if something in it is wrong.
    #[cfg(feature = "config")]
    pub fn from_file(
        path: impl AsRef<std::path::Path>,
    ) -> Result<Self, crate::config::ConfigError> {
        let (rules, text) = Rules::from_file_with_text(path.as_ref())?;
        Ok(Self::of_text(rules, &text))
    }

    /// The rules of a TOML text.
    ///
    /// # Errors
    ///
    /// As [`Limits::from_file`].
    #[cfg(feature = "config")]
    pub fn from_toml(text: &str) -> Result<Self, crate::config::ConfigError> {
        Ok(Self::of_text(Rules::from_toml(text)?, text))
    }

    #[cfg(feature = "config")]
    fn of_text(rules: Rules, text: &str) -> Self {
        Self::of(SharedRules::from_text(rules, ContentHash::of(text)))
    }

    /// Watches a file, and replaces all rules by those of the file whenever it changes, also in the
    /// layers that were made already. [`live`](crate::live) says what is guaranteed.
    ///
    /// The file is read by a task of the current tokio runtime: for the first time at once, but
    /// this call does not wait for it. The task ends with the runtime, with the last layer and the
    /// last clone of these limits, and when another file is watched. The file need not exist yet.
    ///
    /// ```no_run
    /// use tidegate::Limits;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// // Fails if something is wrong with the file now.
    /// let limits = Limits::from_file("limits.toml")?;
    /// limits.watch("limits.toml")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`WatchError`](crate::live::WatchError) outside of a tokio runtime, or if the runtime has no
    /// timer. Errors of the file are logged, and shown by [`status`](Limits::status).
    #[cfg(feature = "config")]
    pub fn watch(&self, path: impl AsRef<std::path::Path>) -> Result<(), crate::live::WatchError> {
        FileWatcher::start(&self.rules, &self.reloads, path.as_ref())
    }

    /// Replaces all rules by those of a file, also in the layers that were made already. If
    /// something is wrong with the file, or if it has no rules, the rules stay as they are. A rule
    /// that a layer uses and that the file lacks stays, too: it is
    /// [listed](crate::live::ReloadStatus::kept_rules), and `enabled = false` in its table switches
    /// it off.
    ///
    /// The file is read once, and the call blocks meanwhile: call it when the file is complete.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](crate::config::ConfigError) as from [`Limits::from_file`]; also for what is
    /// not a regular file, for more than 16 MiB, and for a file without rules, unless it says
    /// `enabled = false`.
    #[cfg(feature = "config")]
    pub fn reload(
        &self,
        path: impl AsRef<std::path::Path>,
    ) -> Result<(), crate::config::ConfigError> {
        self.reloads.reload(&self.rules, path.as_ref())
    }

    /// Which rules are in force, since when, and why the last reload failed.
    #[cfg(feature = "config")]
    #[must_use]
    pub fn status(&self) -> crate::live::ReloadStatus {
        self.reloads.status(&self.rules)
    }

    /// Where the counts are kept: for layers made from now on. Default: a [`MemoryStore`], made
    /// with the first layer and shared with all clones. With debug assertions the default store
    /// reads tokio's clock, so that tests may pause time.
    ///
    /// A store that is shared with other code is given as an `Arc`.
    #[must_use]
    pub fn store(self, store: impl Store) -> Self {
        let mut limits = self.with("store", |_| {});
        limits.store = Arc::new(OnceLock::from(shared(store)));
        limits.refunds = RefundQueue::default();
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
    /// This setter and the ones below are for layers made from now on. One that is called after a
    /// layer was made is a [warning](WarningKind::SetTooLate).
    #[must_use]
    pub fn key(self, key: impl KeyExtractor) -> Self {
        self.with("key", |defaults| defaults.key = Some(Arc::new(key)))
    }

    /// The same with a closure, as [`RateLimitLayer::key_by`].
    #[must_use]
    pub fn key_by(
        self,
        key: impl Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.key(key)
    }

    /// What answers denied requests, as [`RateLimitLayer::degrade`]. A layer may have its own.
    #[must_use]
    pub fn degrade(self, callback: impl DegradeCallback) -> Self {
        self.with("degrade", |defaults| {
            defaults.degrade = Some(Arc::new(callback))
        })
    }

    /// The same with a closure, as [`RateLimitLayer::degrade_fn`].
    #[must_use]
    pub fn degrade_fn<Answer>(
        self,
        callback: impl Fn(Denied) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output: IntoResponse> + Send + 'static,
    {
        self.degrade(callback)
    }

    /// What answers requests without a decision, as [`RateLimitLayer::on_error`]. A layer may have
    /// its own.
    #[must_use]
    pub fn on_error(self, callback: impl ErrorCallback) -> Self {
        self.with("on_error", |defaults| {
            defaults.on_error = Some(Arc::new(callback))
        })
    }

    /// The same with a closure, as [`RateLimitLayer::on_error_fn`].
    #[must_use]
    pub fn on_error_fn<Answer>(
        self,
        callback: impl Fn(Failed) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output: Into<Recovery>> + Send + 'static,
    {
        self.on_error(callback)
    }

    /// Which fields the responses get. A layer may have its own. Default: [`Headers::Draft11`].
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with("headers", |defaults| defaults.headers = headers)
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
    #[must_use]
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with("exempt", |defaults| defaults.exempt.push(Arc::new(exempt)))
    }

    /// The plan of a request, as [`RateLimitLayer::plan`]. A layer may have its own. Default: the
    /// [`Plan`](crate::rule::Plan) among the request's extensions.
    #[must_use]
    pub fn plan(self, plan: impl Fn(&Parts) -> Option<&str> + Send + Sync + 'static) -> Self {
        self.with("plan", |defaults| defaults.plan = Some(Arc::new(plan)))
    }

    /// The same counters and rules, and no store.
    #[cfg(feature = "metrics")]
    pub(super) fn without_store(&self) -> Self {
        Self {
            store: Arc::default(),
            defaults: Defaults::default(),
            checks: Arc::default(),
            ..self.clone()
        }
    }

    /// The same limits with another default for the layers made from now on.
    fn with(mut self, setting: &'static str, change: impl FnOnce(&mut Defaults)) -> Self {
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
    #[must_use]
    pub fn peer(
        self,
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.with("peer", |defaults| defaults.peer = Some(PeerHook::new(hook)))
    }

    /// A layer for a path. While there is no rule for it, requests pass straight through: the
    /// log is told so once (a warning, with the feature `tracing`), and
    /// [`paths_without_rule`](Limits::paths_without_rule) lists the path.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn layer(&self, path: &str) -> RateLimitLayer {
        assert!(!path.is_empty(), "the path is empty");
        RateLimitLayer::of_limits(self.settings(path))
    }

    fn settings(&self, path: &str) -> Arc<Settings> {
        let is_new = !self.rules.uses(path);
        self.rules.mark_used(path);
        if is_new && !self.rules.peek().contains(path) {
            self.warnings
                .add(Warning::new(WarningKind::NoRule).about(path));
        }
        Arc::new(Settings::of_limits(
            &self.rules,
            path,
            Arc::clone(self.shared_store()),
            &self.refunds,
            self.paths.add(path, self.near_limit),
            &self.warnings,
            self.defaults.clone(),
        ))
    }

    /// Decides about a key by the rule of a path, for code that has no HTTP request to wrap: a
    /// message on a WebSocket, a job, a login whose user name is in the body.
    ///
    /// It decides as the path's layers do, and together with them: rule, store and fallback, shadow
    /// rules and candidates, counters, events and reloads are the same, and so are counts of equal
    /// keys. A path without a rule is admitted. What needs a request does not apply: key
    /// extractors, exemptions, costs by closure, waiting and callbacks. Of the policies for
    /// failures `on-error = "proceed"` applies.
    ///
    /// An extractor makes the key that it would find: `Header::new("x-user").key("alice")`. A path
    /// that only checks use is in use from its first check on; [`verify`](Self::verify) before that
    /// misses its layer.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    ///
    /// // For each message of a socket:
    /// match limits.check("chat", "alice").cost(3).await {
    ///     Ok(admitted) => assert_eq!(admitted.decision.map(|it| it.remaining()), Some(7)),
    ///     Err(refused) => eprintln!("{refused}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](crate::layer::Refused) if the store denied it, or gave no decision.
    pub fn check(&self, path: &str, key: impl Into<Key>) -> Check {
        let settings = self.checks.get(path).or_else(|| {
            // Clients may choose the paths: those without a rule must not take all places.
            let has_place =
                self.rules.peek().contains(path) || self.checks.len() < MAX_CHECKED_WITHOUT_RULE;
            has_place.then(|| self.checks.add(path, self.settings(path)))
        });
        if settings.is_none() {
            self.paths.count_unmatched();
        }
        Check::new(settings, key.into())
    }

    /// What a key has left by the rule of a path, without charging it. `None` if there is no rule.
    /// With [`plan`](Peek::plan) it is what is left of that plan's quotas.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// limits.check("chat", "alice").await?;
    /// let left = limits.peek("chat", "alice").await?.expect("there is a rule");
    /// assert_eq!(left.remaining(), 9);
    /// assert!(limits.reset("chat", "alice").await?, "there was a count");
    /// assert!(!limits.reset("chat", "alice").await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer.
    pub fn peek(&self, path: &str, key: impl Into<Key>) -> Peek {
        let rule = self.rules.peek().find(path).cloned();
        Peek::new(Arc::clone(self.shared_store()), rule, key.into())
    }

    /// Forgets what a key has used by the rule of a path. Says whether there was a count to forget;
    /// there is none without a rule.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer. Whether the count was forgotten is then
    /// unknown; it is safe to ask again.
    pub async fn reset(&self, path: &str, key: impl Into<Key>) -> Result<bool, StoreError> {
        let rule = self.rules.peek().find(path).cloned();
        match rule.map(|rule| Take::new(rule, key.into())) {
            None => Ok(false),
            Some(take) => self.shared_store().reset(&take).await,
        }
    }

    /// Waits until the store has answered all refunds [by outcome](crate::Rule::with_refund_on),
    /// for at most `bound`. Returns whether it has. Call it at the end of a graceful shutdown, when
    /// the last request has ended: what is not given back by then stays charged.
    ///
    /// It is about all layers of these limits and their clones.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("login", [Quota::per_minute(5)])?]);
    /// // axum::serve(listener, app).with_graceful_shutdown(signal).await?;
    /// assert!(limits.flush(Duration::from_secs(1)).await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self, bound: Duration) -> bool {
        self.refunds.flush(bound).await
    }

    /// From which part of a quota on an allowed request is counted as
    /// [near the limit](crate::metrics::RuleSnapshot::near_limit): 0.0 to 1.0, in steps of a
    /// thousandth; for paths that no layer was made for yet. Smaller values and NaN count as 0.0, larger
    /// ones as 1.0. Default: 0.8.
    #[must_use]
    pub fn near_limit_ratio(mut self, ratio: f64) -> Self {
        self.near_limit = NearLimit::new(ratio);
        self
    }

    /// What the layers have counted since they were made: see [`metrics`](crate::metrics). At most
    /// 10,000 paths are counted.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.paths.snapshot(&self.rules.peek())
    }

    /// The paths that layers were made for and that have no rule now, in alphabetical order. To
    /// find misspelt names when a service starts, or after a reload.
    ///
    /// Clones share the list. It does not depend on whether limiting is
    /// [enabled](Rules::enabled), and remembers at most 10,000 paths.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let rule = Rule::new("getId", [Quota::per_second(5)])?;
    /// let limits = Limits::new([rule]);
    /// let _ = (limits.layer("getId"), limits.layer("getid"));
    /// assert_eq!(limits.paths_without_rule(), ["getid"]);
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn paths_without_rule(&self) -> Vec<String> {
        self.rules.paths_without_rule()
    }

    /// Mistakes in the set-up that show so far, each with its remedy: see
    /// [`warning`](crate::warning). Those of the rules and of the store are those of now. What
    /// requests show is remembered: the first 100 requests of a layer are looked at, and then one
    /// of 64 until there were 10,000. One for each kind and path, at most 1,000, and in the order
    /// of their kinds.
    ///
    /// Each is logged once, with the feature `tracing`.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let of_rules = |kind| [WarningKind::NoRule, WarningKind::UnusedRule].contains(&kind);
        let mut all = self.warnings.found();
        all.retain(|warning| !of_rules(warning.kind));
        let about = |kind| move |path: String| Warning::new(kind).about(&path);
        let without_rule = self.rules.paths_without_rule();
        all.extend(without_rule.into_iter().map(about(WarningKind::NoRule)));
        if self.warnings.has_started() {
            let unused = self.rules.paths_without_layer();
            all.extend(unused.into_iter().map(about(WarningKind::UnusedRule)));
        }
        if let Some(store) = self.store.get() {
            all.extend(caught("store", "", || store.warnings()).unwrap_or_default());
        }
        all.sort();
        all.dedup_by(|a, b| (a.kind, &a.path) == (b.kind, &b.path));
        all.truncate(Warnings::MAX);
        all
    }

    /// Checks that layers and rules fit together, once all layers are made.
    ///
    /// A rule that the file loses later stays in force, so what was verified stays so.
    ///
    /// ```
    /// use tidegate::Limits;
    ///
    /// let limits = Limits::from_toml("[rules.login]\nmax-count = 5\nwindow = \"1m\"")?;
    /// let layer = limits.layer("login");
    /// limits.verify()?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`VerifyError`] with all paths that have a layer and no rule, and all that
    /// have a rule and no layer. Rules that are switched off need no layer.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let paths_without_rule = self.rules.paths_without_rule();
        let paths_without_layer = self.rules.paths_without_layer();
        match paths_without_rule.is_empty() && paths_without_layer.is_empty() {
            true => Ok(()),
            false => Err(VerifyError {
                paths_without_rule,
                paths_without_layer,
            }),
        }
    }

    /// The rules, to look at or to replace while requests run.
    #[must_use]
    pub const fn rules(&self) -> &SharedRules {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    /// A memory store that is replaced at once would have started its clock for nothing.
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
}
