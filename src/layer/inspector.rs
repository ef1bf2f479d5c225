use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::rule::WeakRules;
use crate::sync::lock;
use crate::warning::{Warning, WarningKind};

/// The warnings that the layers of one application have found.
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
