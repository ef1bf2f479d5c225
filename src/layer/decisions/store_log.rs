use std::collections::BTreeSet;
use std::mem::take;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::Source;
use crate::error::StoreError;
use crate::log_on_change::LogOnChange;
use crate::summed_log::SummedLog;
use crate::sync::lock;
use crate::trace;

/// Logs how a store does, for all layers of one [`Limits`](crate::Limits) that ask it.
#[derive(Debug, Default)]
pub(crate) struct StoreLog {
    changes: LogOnChange,
    lags: SummedLog,
    /// By an outage.
    failed: Mutex<Affected>,
    /// By late answers since the last line.
    late: Mutex<Affected>,
}

/// The requests that something happened to, and since when, or for how long at most.
#[derive(Debug, Default)]
struct Affected {
    rules: BTreeSet<Arc<str>>,
    requests: u64,
    since: Option<Instant>,
    at_most: Duration,
}

impl Affected {
    fn add(&mut self, path: &Arc<str>, time: Duration) {
        self.rules.insert(Arc::clone(path));
        self.requests += 1;
        self.since = self.since.or_else(|| Some(Instant::now()));
        self.at_most = self.at_most.max(time);
    }
}

impl StoreLog {
    /// A request got no decision: `instead` says what becomes of it.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
    pub(super) fn failed(&self, path: &Arc<str>, error: &StoreError, instead: &str) {
        lock(&self.failed).add(path, Duration::ZERO);
        if self.changes.failed() {
            let (path, kind, error) = (&**path, error.kind().name(), error.to_string());
            trace::event!(warn: path, kind, error, "no decisions: {instead}");
        }
    }

    /// A decision came from this source.
    #[inline]
    pub(super) fn decided(&self, source: Source) {
        // The other sources decide without the store.
        let is_of_store = !matches!(source, Source::Cache | Source::Fallback | Source::Operator);
        if is_of_store && self.changes.is_failing() {
            self.recovered();
        }
    }

    #[cold]
    fn recovered(&self) {
        let failed = take(&mut *lock(&self.failed));
        if self.changes.worked() {
            let (rules, requests) = (failed.rules.len(), failed.requests);
            let seconds = failed.since.map_or(0.0, |it| it.elapsed().as_secs_f64());
            trace::event!(info: rules, requests, seconds, "the store decides again");
        }
    }

    /// An answer of the store was read so late.
    #[cold]
    pub(super) fn late(self: &Arc<Self>, path: &Arc<str>, late: Duration) {
        lock(&self.late).add(path, late);
        let this = Arc::clone(self);
        self.lags.happened(|| {
            move || {
                let late = take(&mut *lock(&this.late));
                let (rules, requests) = (late.rules.len(), late.requests);
                let late_ms = late.at_most.as_millis();
                if requests > 0 {
                    trace::event!(warn: rules, requests, late_ms,
                        "lag: this process read answers of the store late");
                }
                requests > 0
            }
        });
    }
}
