//! What this process tells pages and the fleet of itself.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Limits;
use super::fleet::SECOND;
use crate::activity::key_notes::LimitedKey;
use crate::fleet::process::{
    BreakerReport, Facts, LastError, MAX_LIMITED_KEYS, Process, longest_waits, short_name,
};
use crate::metrics::RuleSnapshot;
use crate::store::Store;
use crate::sync::lock;

impl Limits {
    /// What pages call this process, beside its number: of these limits and all their clones, also
    /// of those that were made before. Blanks around it are left out, and at most 64 characters are
    /// kept. An empty name is none. Default: the name of the host, which for a container is that of
    /// its pod: the environment variable `HOSTNAME`, else the text of `/etc/hostname`.
    ///
    /// ```
    /// use tidegate::{Limits, Rules};
    ///
    /// let limits = Limits::new(Rules::default()).process_name("checkout-2");
    /// # let _ = limits;
    /// ```
    pub fn process_name(self, name: impl AsRef<str>) -> Self {
        self.reports.state().name = Some(short_name(name.as_ref()));
        self.member.state().changes += 1;
        self
    }

    /// Begins to keep what a page shows.
    pub(crate) fn watch_for_page(&self) {
        if !self.reports.state().has_page {
            let counted = self.counted();
            let mut state = self.reports.state();
            let tick = state.second.tick;
            state.has_page = true;
            state.rates.begin(tick, &counted);
        }
        // A browser asks each second, and each search for a timer in vain prints a panic.
        if !self.reports.state().lacks_timer && !self.watch_process() {
            self.reports.state().lacks_timer = Handle::try_current().is_ok();
        }
    }

    /// A task begins to watch this process.
    pub(super) fn begin_reports(&self) {
        let counted = self.counted();
        let mut state = self.reports.state();
        self.paths.limited.set_now(state.second.tick);
        state.second.begin(&counted);
    }

    pub(super) async fn sample_each_second(&self) {
        // The task before this one may have ended with its runtime.
        let before = self.reports.state().second.tick;
        let began = Instant::now();
        let mut seconds = interval_at(began + SECOND, SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.paths.are_unused() {
            seconds.tick().await;
            self.sample(before.saturating_add(began.elapsed().as_secs()));
        }
    }

    /// What the layers of each path have counted, and whether there is a rule.
    fn counted(&self) -> Vec<(RuleSnapshot, bool)> {
        let (rules, paths) = (self.rules().guard(), lock(&self.paths.states));
        let counted = paths.iter();
        let counted = counted.map(|(path, it)| (it.numbers(path), rules.contains(path)));
        counted.collect()
    }

    /// Notes what was counted in the last second.
    fn sample(&self, tick: u64) {
        self.paths.limited.set_now(tick);
        let counted = self.counted();
        let mut state = self.reports.state();
        state.second.add(tick, &counted);
        if state.has_page {
            state.rates.add(tick, &counted);
        }
    }

    /// What this process tells the others.
    pub(super) fn report(&self) -> String {
        self.own_process().text()
    }

    /// Whether requests of this key, by its name, were denied lately.
    pub(super) fn was_denied(&self, path: &str, name: &str) -> bool {
        let is_it = |it: &LimitedKey| (&*it.path, &*it.key) == (path, name);
        self.most_limited().0.iter().any(is_it)
    }

    /// This process, for the fleet and for its own page.
    pub(crate) fn own_process(&self) -> Process {
        let second = self.reports.state().second.clone();
        let tick = second.tick;
        let applied = self.rules().applied();
        let breaker = match self.shared_store().condition().is_breaker_open {
            Some(true) => BreakerReport::Open,
            Some(false) => BreakerReport::Closed,
            None => BreakerReport::Unknown,
        };
        let last_error = second.last_error.map(|(kind, at)| LastError {
            kind: kind.name().to_owned(),
            ago_s: tick.saturating_sub(at) as f64,
        });
        let facts = Facts {
            name: self.reports.name(),
            seen_ago_s: 0.0,
            started_ago_s: tick as f64,
            version: applied.version,
            content_hash: applied.hash.map(|it| it.to_string()),
            reload_failing: self.is_reload_failing(),
            rules: self.rules().guard().iter().count(),
            breaker,
            fallback: second.fallback,
            allowed_per_s: second.allowed_per_s,
            denied_per_s: second.denied_per_s,
            last_error,
            warnings: self.warnings().iter().map(ToString::to_string).collect(),
        };
        let (limited, unreported) = self.paths.limited.most_denied(MAX_LIMITED_KEYS);
        let states = lock(&self.paths.states);
        let keys = states.iter().flat_map(|(path, state)| {
            let keys = state.open.queues().keys().into_iter();
            keys.map(|(key, time)| ((&**path).into(), key, 1, time.as_secs_f64()))
        });
        let own = Process {
            id: Arc::clone(&self.member.process),
            facts,
            limited,
            unreported,
            report_version: 1,
            waiting: longest_waits(keys, MAX_LIMITED_KEYS),
        };
        own.bounded()
    }

    /// The most denied keys of this process and of the others: see `Reports::most_limited`.
    pub(crate) fn most_limited(&self) -> (Vec<LimitedKey>, u64) {
        let own = self.own_process();
        self.reports.most_limited(&own, &self.operator_keys)
    }

    /// Whether the newest rules were refused.
    pub(crate) fn is_reload_failing(&self) -> bool {
        #[cfg(feature = "config")]
        return self.status().error.is_some();
        #[cfg(not(feature = "config"))]
        false
    }
}
