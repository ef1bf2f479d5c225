//! Mistakes in the set-up that keep no request from being answered.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::rule::WeakRules;
use crate::sync::lock;

/// A mistake in the set-up, with its remedy: what [`Limits::warnings`](crate::Limits::warnings)
/// lists, and what is logged once.
///
/// It names a path, a setting or a header field, and never a value of a request, a key, a password
/// or a URL. Its text is the sentence that the log shows.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limits;
/// use tidegate::warning::WarningKind;
///
/// let limits = Limits::from_toml("[rules.login]\nmax-count = 5\nwindow = \"1m\"")?;
/// let _ = limits.layer("signin");
/// let warnings = limits.warnings();
/// assert_eq!(warnings[0].kind, WarningKind::NoRule);
/// assert_eq!(warnings[0].path.as_deref(), Some("signin"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Warning {
    /// What is wrong.
    pub kind: WarningKind,
    /// The path that it is about; `None` if it is about the store.
    pub path: Option<Arc<str>>,
    /// The header field or the setting that it is about.
    pub name: Option<Cow<'static, str>>,
}

/// The kinds of [`Warning`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// A layer was made for a path without a rule, so it limits nothing.
    NoRule,
    /// No layer uses a rule: shown from 10 s after the first request on.
    UnusedRule,
    /// The key is [`PeerIp`](crate::PeerIp), and a request came through a proxy.
    PeerIpBehindProxy,
    /// A request came through fewer proxies than
    /// [`ClientIp::behind_hops`](crate::ClientIp::behind_hops) says.
    FewerHops,
    /// A `max` above 10,000 under the sliding log, whose entries are as many.
    LargeLog,
    /// The keys in Redis begin with the default prefix, as those of other services may.
    DefaultPrefix,
    /// Redis evicts keys when its memory is full.
    RedisEvicts,
    /// A memory store has had 80 % of the keys that it may have.
    MemoryNearlyFull,
}

impl Warning {
    pub(crate) const fn new(kind: WarningKind) -> Self {
        Self {
            kind,
            path: None,
            name: None,
        }
    }

    /// About this header field or setting.
    pub(crate) const fn named(kind: WarningKind, name: &'static str) -> Self {
        Self {
            kind,
            path: None,
            name: Some(Cow::Borrowed(name)),
        }
    }

    pub(crate) fn log(&self) {
        #[cfg(feature = "tracing")]
        tracing::warn!("{self}");
    }

    pub(crate) fn about(mut self, path: &str) -> Self {
        self.path = Some(path.into());
        self
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or_default();
        match self.kind {
            WarningKind::NoRule => write!(
                f,
                "there is no rule for {path:?}, so its layer limits nothing: add a rule, or correct \
                 the path of the layer"
            ),
            WarningKind::UnusedRule => write!(
                f,
                "no layer uses the rule {path:?}, so it limits nothing: make a layer of this path, \
                 or correct the path of the rule"
            ),
            WarningKind::PeerIpBehindProxy => write!(
                f,
                "the key of {path:?} is PeerIp, but a request has the field {name}, as proxies write it: \
                 behind a proxy all clients share one limit; use ClientIp::behind with its networks"
            ),
            WarningKind::FewerHops => write!(
                f,
                "a request for {path:?} has fewer addresses in the field {name} than \
                 ClientIp::behind_hops says: it did not come through all proxies, and is counted by \
                 the address that sent it; correct the number, or close the way around the proxies"
            ),
            WarningKind::LargeLog => write!(
                f,
                "{path:?} has a max above 10,000 under the sliding log, which keeps up to so many \
                 entries for each key: use the algorithm \"sliding-window\" or \"gcra\""
            ),
            WarningKind::DefaultPrefix => f.write_str(
                "the keys in Redis have the default prefix, so other services with rules of the same \
                 name count together with this one: use Resilient::redis(url, \"name-of-the-service\") \
                 or RedisStore::prefix",
            ),
            WarningKind::RedisEvicts => f.write_str(
                "this Redis evicts keys when its memory is full, and an evicted count begins again at \
                 zero: set maxmemory-policy to noeviction",
            ),
            WarningKind::MemoryNearlyFull => f.write_str(
                "a memory store had 80 % of its keys: when all are taken and still count, a new key \
                 gets an error; make MemoryStore::with_max_keys larger than the number of clients in \
                 one window",
            ),
        }
    }
}

/// What was found by the layers of one application.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    found: Mutex<Vec<Warning>>,
    first_request: OnceLock<Instant>,
    /// Waits until the application has started.
    task: OnceLock<AbortHandle>,
}

impl Warnings {
    pub(crate) const MAX: usize = 1_000;
    /// By then an application has made its layers.
    const STARTED_AFTER: Duration = Duration::from_secs(10);

    /// Logs a warning of a new kind or path, and remembers it.
    pub(crate) fn add(&self, warning: Warning) {
        let is_known = |known: &Warning| (known.kind, &known.path) == (warning.kind, &warning.path);
        let mut found = lock(&self.found);
        if found.len() < Self::MAX && !found.iter().any(is_known) {
            found.push(warning.clone());
            drop(found);
            warning.log();
        }
    }

    /// What requests have shown so far.
    pub(crate) fn found(&self) -> Vec<Warning> {
        lock(&self.found).clone()
    }

    /// Whether requests have come for so long that all layers are made.
    pub(crate) fn has_started(&self) -> bool {
        let first = self.first_request.get();
        first.is_some_and(|first| first.elapsed() >= Self::STARTED_AFTER)
    }

    /// Notes the first request. When the application has started, it is logged which of these
    /// rules no layer uses.
    fn begin(self: &Arc<Self>, rules: Option<WeakRules>) {
        let mut is_first = false;
        self.first_request.get_or_init(|| {
            is_first = true;
            Instant::now()
        });
        let Some(rules) = rules.filter(|_| is_first) else {
            return;
        };
        let warnings = Arc::downgrade(self);
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(async move {
                sleep(Self::STARTED_AFTER).await;
                if let Some(warnings) = warnings.upgrade() {
                    warnings.log_unused(&rules);
                }
            });
            let _ = self.task.set(task.abort_handle());
        }
    }
}

impl Warnings {
    fn log_unused(&self, rules: &WeakRules) {
        let rules = rules.upgrade();
        let paths = rules.map(|rules| rules.paths_without_layer());
        for path in paths.unwrap_or_default() {
            self.add(Warning::new(WarningKind::UnusedRule).about(&path));
        }
    }
}

impl Drop for Warnings {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Decides which requests of a layer are looked at for mistakes in the set-up.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    requests: AtomicU32,
    pub(crate) warnings: Arc<Warnings>,
}

impl Inspector {
    /// The first requests, which are all looked at.
    const ALL: u32 = 100;
    /// From then on one of so many is,
    const EVERY: u32 = 64;
    /// and none after so many.
    const LAST: u32 = 10_000;

    pub(crate) fn new(warnings: &Arc<Warnings>) -> Self {
        Self {
            requests: AtomicU32::new(0),
            warnings: Arc::clone(warnings),
        }
    }

    /// Whether to look at the request that has just arrived.
    #[inline]
    pub(crate) fn is_due(&self, rules: impl FnOnce() -> Option<WeakRules>) -> bool {
        self.requests.load(Ordering::Relaxed) < Self::LAST && self.is_due_among_first(rules)
    }

    #[cold]
    fn is_due_among_first(&self, rules: impl FnOnce() -> Option<WeakRules>) -> bool {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            self.warnings.begin(rules());
            return true;
        }
        let is_due = number < Self::ALL || number.is_multiple_of(Self::EVERY);
        // The runtime that waited may have ended.
        if is_due
            && self.warnings.has_started()
            && let Some(rules) = rules()
        {
            self.warnings.log_unused(&rules);
        }
        is_due
    }
}

/// Paths of layers and rules that do not fit together: what
/// [`Limits::verify`](crate::Limits::verify) finds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyError {
    /// Layers without a rule: they limit nothing. In alphabetical order.
    pub paths_without_rule: Vec<String>,
    /// Rules without a layer: they limit nothing, either. In alphabetical order.
    pub paths_without_layer: Vec<String>,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("layers without a rule", &self.paths_without_rule),
            ("rules without a layer", &self.paths_without_layer),
        ];
        let lists = lists.into_iter().filter(|(_, paths)| !paths.is_empty());
        let lists = lists.map(|(what, paths)| format!("{what}: {paths:?}"));
        f.write_str(&lists.collect::<Vec<_>>().join("; "))
    }
}

impl std::error::Error for VerifyError {}
