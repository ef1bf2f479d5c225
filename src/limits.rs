use std::collections::BTreeMap;
use std::net::SocketAddr;
#[cfg(feature = "metrics")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
#[cfg(feature = "metrics")]
use std::{thread, time::Duration};

use http::Extensions;

use crate::callback::caught;
use crate::key::ip::PeerHook;
use crate::layer::{RateLimitLayer, Warnings};
#[cfg(feature = "config")]
use crate::live::{FileWatcher, Reloads};
use crate::metrics::{NearLimit, RuleCounters, Snapshot};
#[cfg(feature = "config")]
use crate::rule::ContentHash;
use crate::rule::{Rules, SharedRules};
#[cfg(doc)]
use crate::store::MemoryStore;
use crate::store::{Store, default_store, shared};
use crate::sync::lock;
use crate::warning::{VerifyError, Warning, WarningKind};

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
    store: Arc<OnceLock<Arc<dyn Store>>>,
    paths: Arc<Paths>,
    peer: Option<PeerHook>,
    #[cfg(feature = "metrics")]
    publisher: Arc<crate::metrics::Publisher>,
    warnings: Arc<Warnings>,
    near_limit: NearLimit,
    #[cfg(feature = "config")]
    reloads: Arc<Reloads>,
}

impl Limits {
    /// These rules, counted in a [`MemoryStore`] until [told otherwise](Limits::store).
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self::of(SharedRules::new(rules))
    }

    fn of(rules: SharedRules) -> Self {
        Self {
            rules,
            store: Arc::default(),
            paths: Arc::default(),
            peer: None,
            #[cfg(feature = "metrics")]
            publisher: Arc::default(),
            warnings: Arc::default(),
            near_limit: NearLimit::default(),
            #[cfg(feature = "config")]
            reloads: Arc::default(),
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
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Arc::new(OnceLock::from(shared(store)));
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
        mut self,
        hook: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.peer = Some(PeerHook::new(hook));
        self
    }

    /// A layer for a path. While there is no rule for it, requests pass straight through: the
    /// log is told so once (a warning, with the feature `tracing`), and
    /// [`paths_without_rule`](Limits::paths_without_rule) lists the path.
    ///
    /// # Panics
    ///
    /// If the path is empty.
    pub fn layer(&self, path: &str) -> RateLimitLayer {
        let store = self.store.get_or_init(default_store);
        let is_new = !self.rules.uses(path);
        let layer = RateLimitLayer::from_rules(&self.rules, path, Arc::clone(store));
        let counters = self.paths.add(path, self.near_limit);
        if is_new && !self.rules.peek().contains(path) {
            self.warnings
                .add(Warning::new(WarningKind::NoRule).about(path));
        }
        let layer = layer.counted_by(counters).warning(&self.warnings);
        layer.with_peer(self.peer.clone())
    }

    /// From which part of a quota on an allowed request is counted as
    /// [near the limit](crate::metrics::RuleSnapshot::near_limit): 0.0 to 1.0, in steps of a
    /// thousandth; for paths that no layer was made for yet. Default: 0.8.
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
    /// let limits = Limits::new([rule].into_iter().collect());
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

#[cfg(feature = "metrics")]
impl Limits {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Publishes what the layers have counted to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade: at once, and then once per second. The recorder
    /// may be installed later. It then gets the whole counts, and the durations from then on.
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
    /// let limits = Limits::new([rule].into_iter().collect());
    /// limits.publish_metrics_every_second();
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the system starts no thread, as [`std::thread::spawn`] does.
    pub fn publish_metrics_every_second(&self) {
        if self.publisher.set_periodic() {
            let limits = Self {
                // The thread keeps no connection to a store.
                store: Arc::default(),
                ..self.clone()
            };
            let thread = thread::Builder::new().name("tidegate-metrics".to_owned());
            let started = thread.spawn(move || limits.publish_until_unused());
            started.expect("a thread for metrics");
        }
    }

    /// Publishes what the layers have counted so far to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade. A handler that shows metrics may call it,
    /// instead of or beside [`publish_metrics_every_second`](Limits::publish_metrics_every_second):
    /// nothing is counted twice.
    pub fn publish_metrics(&self) {
        self.publisher.publish(|| self.snapshot());
        #[cfg(feature = "config")]
        publish_reloads(&self.status());
    }

    fn publish_until_unused(self) {
        loop {
            // Before the last publication, so that it misses nothing.
            let is_unused = self.paths.are_unused();
            // The recorder is user code, and its panic was printed.
            let _ = catch_unwind(AssertUnwindSafe(|| self.publish_metrics()));
            if is_unused {
                return;
            }
            thread::sleep(Self::INTERVAL);
        }
    }
}

/// Publishes which rules are in force, and whether reloading them fails.
#[cfg(all(feature = "config", feature = "metrics"))]
fn publish_reloads(status: &crate::live::ReloadStatus) {
    use crate::metrics::Metric;

    const VERSION: Metric = Metric::gauge(
        "tidegate_config_version",
        "The version of the rules in force: 1 at the start, one more for each change.",
    );
    const FAILING: Metric = Metric::gauge(
        "tidegate_config_reload_failing",
        "1 while the file is refused and the old rules stay in force, else 0.",
    );
    const RELOADS: Metric = Metric::counter(
        "tidegate_config_reloads_total",
        "How often a file's new rules were applied.",
    );
    const ERRORS: Metric = Metric::counter(
        "tidegate_config_reload_errors_total",
        "How often a file was refused.",
    );

    ::metrics::with_recorder(|recorder| {
        for metric in [VERSION, FAILING, RELOADS, ERRORS] {
            metric.describe(recorder);
        }
        VERSION.set(recorder, Vec::new(), status.version as f64);
        let is_failing = status.error.is_some();
        FAILING.set(recorder, Vec::new(), f64::from(u8::from(is_failing)));
        RELOADS.count(recorder, Vec::new(), status.reloads);
        ERRORS.count(recorder, Vec::new(), status.failures);
    });
}

/// More paths than an application has routes; paths beyond it are not remembered.
const MAX_PATHS: usize = 10_000;

/// What the layers count, by their paths.
#[derive(Debug, Default)]
struct Paths(Mutex<BTreeMap<Box<str>, Arc<RuleCounters>>>);

impl Paths {
    /// The counters that all layers of a path share; a path too many has counters that nobody
    /// reads.
    fn add(&self, path: &str, near_limit: NearLimit) -> Arc<RuleCounters> {
        let mut paths = lock(&self.0);
        if let Some(known) = paths.get(path) {
            return Arc::clone(known);
        }
        let counters = Arc::new(RuleCounters::new(near_limit));
        if paths.len() < MAX_PATHS {
            paths.insert(path.into(), Arc::clone(&counters));
        }
        counters
    }

    /// What the layers have counted under these rules.
    fn snapshot(&self, rules: &Rules) -> Snapshot {
        let paths = lock(&self.0);
        let counted = paths.iter().filter_map(|(path, counters)| {
            let rule = rules.find(path)?;
            Some(counters.snapshot(rule))
        });
        let unmatched = paths.values().map(|it| it.number_of_unmatched());
        Snapshot {
            rules: counted.collect(),
            unmatched: unmatched.sum(),
        }
    }

    /// Whether this is the last owner of the paths, and no layer of them is left.
    #[cfg(feature = "metrics")]
    fn are_unused(self: &Arc<Self>) -> bool {
        // Without another owner, no layer can be made any more.
        let is_only_owner = Arc::strong_count(self) == 1;
        is_only_owner && lock(&self.0).values().all(|it| Arc::strong_count(it) == 1)
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

    #[test]
    fn paths_are_bounded() {
        let paths = Paths::default();
        let add = |number: usize| paths.add(&number.to_string(), NearLimit::default());
        (0..2 * MAX_PATHS).for_each(|number| drop(add(number)));
        assert_eq!(lock(&paths.0).len(), MAX_PATHS);
        assert!(Arc::ptr_eq(&add(0), &add(0)), "layers of a path share them");
    }

    #[cfg(feature = "metrics")]
    #[test]
    fn the_thread_ends_with_the_last_layer() {
        const INTERVAL: Duration = Limits::INTERVAL;
        let limits = Limits::new(Rules::default());
        limits.publish_metrics_every_second();
        // Most services make their layers later.
        thread::sleep(INTERVAL / 10);
        let (clone, layer) = (limits.clone(), limits.layer("a"));
        clone.publish_metrics_every_second();
        let (paths, store) = (Arc::downgrade(&limits.paths), Arc::downgrade(&limits.store));
        assert_eq!(paths.strong_count(), 3, "one thread");

        drop((limits, clone));
        assert_eq!(store.strong_count(), 0, "the thread has no store");
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
