//! How this process fares, for the fleet and for pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::{env, fs};

use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Limits;
use super::fleet::SECOND;
use crate::decision::Source;
use crate::error::StoreErrorKind;
use crate::fleet::process::{BreakerReport, Facts, LastError, MAX_ROWS, Process, short_name};
use crate::metrics::key_notes::{LimitedKey, RECENT};
use crate::metrics::rates::RateHistory;
use crate::metrics::{DecisionOutcome, RuleSnapshot};
use crate::store::{Fleet, OperatorKind, Store};
use crate::sync::lock;

/// Tells pages what is known of this process and of the others. Clones of [`Limits`] share it.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<ReportState>);

#[derive(Debug, Default)]
pub(crate) struct ReportState {
    /// Whether the last runtime that could have watched this process has no timer.
    lacks_timer: bool,
    /// Whether a page is there: without one, no rates are kept.
    has_page: bool,
    pub(crate) rates: RateHistory,
    pub(crate) second: LastSecond,
    /// What pages call this process; empty for no name. `None` before somebody asked.
    name: Option<String>,
    /// Before this second the other processes are asked for; 0 before somebody looks.
    fleet_wanted_until: u64,
    /// The processes of the fleet, as of the last second. `None` until they are
    /// [wanted](Reports::want_fleet).
    pub(crate) processes: Option<Arc<Vec<Process>>>,
}

/// What the counters of this process did in the last second.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastSecond {
    pub(crate) tick: u64,
    before: Sums,
    allowed_per_s: u64,
    denied_per_s: u64,
    fallback: bool,
    /// The last error of a store, and its second.
    last_error: Option<(StoreErrorKind, u64)>,
}

/// What all rules have counted together.
#[derive(Debug, Clone, Default)]
struct Sums {
    allowed: u64,
    denied: u64,
    by_fallback: u64,
    errors: [u64; StoreErrorKind::ALL.len()],
}

/// A view of the fleet is kept up to date for so many seconds after somebody looked.
const FLEET_WANTED_FOR: u64 = 11;

impl Reports {
    pub(crate) fn state(&self) -> MutexGuard<'_, ReportState> {
        lock(&self.0)
    }

    /// What pages call this process.
    pub(crate) fn name(&self) -> String {
        let mut state = self.state();
        let name = state.name.get_or_insert_with(|| short_name(&host_name()));
        name.clone()
    }

    /// Nothing is known of the others any more.
    pub(super) fn forget_others(&self) {
        self.state().processes = None;
    }

    /// Somebody looks at the fleet: the other processes are asked for, for some seconds.
    pub(crate) fn want_fleet(&self) {
        let mut state = self.state();
        state.fleet_wanted_until = state.second.tick + FLEET_WANTED_FOR;
    }
}

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
        // The last second shows nothing that was counted before this.
        state.second.before = sums(&counted);
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

    /// Asks what the others told. While nobody looks, nothing is known of them.
    pub(super) async fn ask_others(&self, fleet: &dyn Fleet) {
        let is_wanted = {
            let state = self.reports.state();
            state.second.tick < state.fleet_wanted_until
        };
        let mut processes = None;
        if is_wanted && let Ok(reports) = fleet.reports().await {
            processes = Some(Arc::new(reports.iter().filter_map(Process::read).collect()));
        }
        self.reports.state().processes = processes;
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
        let (limited, unreported) = self.paths.limited.most_denied(MAX_ROWS);
        let own = Process {
            id: Arc::clone(&self.member.process),
            facts,
            limited,
            unreported,
        };
        own.bounded()
    }

    /// The most denied keys of this process and of the others, with their denials together, those
    /// that are let through or blocked last, and how many denials may be missing: a process tells
    /// of its most denied keys only.
    pub(crate) fn most_limited(&self) -> (Vec<LimitedKey>, u64) {
        let others = self.reports.state().processes.clone().unwrap_or_default();
        let own = self.own_process();
        let others = others.iter().filter(|it| it.id != own.id);
        let all = std::iter::once(&own).chain(others);
        let mut rows: HashMap<(&str, &str), LimitedKey> = HashMap::new();
        for row in all.clone().flat_map(|process| &process.limited) {
            let known = rows.entry((&row.path, &row.key));
            known
                .and_modify(|known| {
                    // The plan is taken from the process that denies this key most now.
                    if row.recent > known.recent {
                        known.plan.clone_from(&row.plan);
                    }
                    known.recent = known.recent.saturating_add(row.recent);
                    known.denials = known.denials.saturating_add(row.denials);
                    known.error = known.error.saturating_add(row.error);
                    known.since_ago = known.since_ago.max(row.since_ago);
                    // What never fits has no end.
                    known.until_in = known.until_in.zip(row.until_in).map(|(a, b)| a.max(b));
                    known.is_busy &= row.is_busy;
                })
                .or_insert_with(|| row.clone());
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by(|one, other| {
            let order = other.denials.cmp(&one.denials);
            order.then_with(|| (&one.path, &one.key).cmp(&(&other.path, &other.key)))
        });
        // Somebody has taken care of these.
        let operated = &self.operator_keys;
        let is_raise = |(kind, _): &(OperatorKind, _)| kind.is_raise();
        // Of a key that was raised since, the end that its denial told is not true any more.
        let was_raised = |row: &LimitedKey| operated.find(&row.path, &row.key).iter().any(is_raise);
        let is_denied = |row: &LimitedKey| row.recent > 0 || row.since_ago <= RECENT as f64;
        rows.retain(|row| is_denied(row) || !was_raised(row));
        rows.sort_by_cached_key(|row| !operated.find(&row.path, &row.key).iter().all(is_raise));
        rows.truncate(MAX_ROWS);
        let unreported = all.clone().map(|process| process.unreported);
        let missing = match all.count() {
            1 => 0,
            _ => unreported.fold(0, u64::saturating_add),
        };
        (rows, missing)
    }

    /// Whether the newest rules were refused.
    pub(crate) fn is_reload_failing(&self) -> bool {
        #[cfg(feature = "config")]
        return self.status().error.is_some();
        #[cfg(not(feature = "config"))]
        false
    }
}

impl LastSecond {
    /// Takes what was counted by this second.
    fn add(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
        let (now, before) = (sums(counted), &self.before);
        let seconds = tick.saturating_sub(self.tick).max(1);
        self.allowed_per_s = now.allowed.saturating_sub(before.allowed) / seconds;
        self.denied_per_s = now.denied.saturating_sub(before.denied) / seconds;
        self.fallback = now.by_fallback > before.by_fallback;
        for kind in StoreErrorKind::ALL {
            if now.errors[kind as usize] > before.errors[kind as usize] {
                self.last_error = Some((kind, tick));
            }
        }
        (self.before, self.tick) = (now, tick);
    }
}

fn sums(counted: &[(RuleSnapshot, bool)]) -> Sums {
    use DecisionOutcome::{Allowed, Busy, Denied, Never};
    let mut sums = Sums::default();
    for (rule, _) in counted {
        sums.allowed += rule.decisions(Allowed);
        sums.denied += rule.denied();
        for outcome in [Allowed, Denied, Busy, Never] {
            sums.by_fallback += rule.decisions_by(outcome, Source::Fallback);
        }
        for kind in StoreErrorKind::ALL {
            sums.errors[kind as usize] += rule.store_errors(kind);
        }
    }
    sums
}

/// The name of this host; empty where it is not found.
fn host_name() -> String {
    let variable = env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let name = variable.or_else(|| fs::read_to_string("/etc/hostname").ok());
    name.unwrap_or_default()
}
