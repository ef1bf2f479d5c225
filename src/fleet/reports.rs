//! How this process fares, and what the others told of themselves, for pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::{env, fs};

use super::OperatorKeys;
use super::process::{MAX_LIMITED_KEYS, Process, WaitingKey, longest_waits, short_name};
use crate::activity::key_notes::{LimitedKey, RECENT};
use crate::activity::rates::RateHistory;
use crate::decision::Source;
use crate::error::StoreErrorKind;
use crate::metrics::{DecisionOutcome, RuleSnapshot};
use crate::store::{Fleet, OperatorKind};
use crate::sync::lock;

/// Tells pages what is known of this process and of the others. Clones of `Limits` share it.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<ReportState>);

#[derive(Debug, Default)]
pub(crate) struct ReportState {
    /// Whether the last runtime that could have watched this process has no timer.
    pub(crate) lacks_timer: bool,
    /// Whether a page is there: without one, no rates are kept.
    pub(crate) has_page: bool,
    pub(crate) rates: RateHistory,
    pub(crate) second: LastSecond,
    /// What pages call this process; empty for no name. `None` before somebody asked.
    pub(crate) name: Option<String>,
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
    pub(crate) allowed_per_s: u64,
    pub(crate) denied_per_s: u64,
    pub(crate) fallback: bool,
    /// The last error of a store, and its second.
    pub(crate) last_error: Option<(StoreErrorKind, u64)>,
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
    pub(crate) fn forget_others(&self) {
        self.state().processes = None;
    }

    /// Somebody looks at the fleet: the other processes are asked for, for some seconds.
    pub(crate) fn want_fleet(&self) {
        let mut state = self.state();
        state.fleet_wanted_until = state.second.tick + FLEET_WANTED_FOR;
    }

    /// Asks what the others told. While nobody looks, nothing is known of them.
    pub(crate) async fn ask_others(&self, fleet: &dyn Fleet) {
        let is_wanted = {
            let state = self.state();
            state.second.tick < state.fleet_wanted_until
        };
        let mut processes = None;
        if is_wanted && let Ok(reports) = fleet.reports().await {
            processes = Some(Arc::new(reports.iter().filter_map(Process::read).collect()));
        }
        self.state().processes = processes;
    }

    /// The most denied keys of this process and of the others, with their denials together, those
    /// that are let through or blocked last, and how many denials may be missing: a process tells
    /// of its most denied keys only.
    pub(crate) fn most_limited(
        &self,
        own: &Process,
        operated: &OperatorKeys,
    ) -> (Vec<LimitedKey>, u64) {
        let others = self.state().processes.clone().unwrap_or_default();
        let others = others.iter().filter(|it| it.id != own.id);
        let all = std::iter::once(own).chain(others);
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
                    if row.until_in > known.until_in {
                        known.is_on_hold = row.is_on_hold;
                        known.is_locked_out = row.is_locked_out;
                    }
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
        let is_raise = |(kind, _): &(OperatorKind, _)| kind.is_raise();
        // Of a key that was raised since, the end that its denial told is not true any more.
        let was_raised = |row: &LimitedKey| operated.find(&row.path, &row.key).iter().any(is_raise);
        let is_denied = |row: &LimitedKey| row.recent > 0 || row.since_ago <= RECENT as f64;
        rows.retain(|row| is_denied(row) || !was_raised(row));
        rows.sort_by_cached_key(|row| !operated.find(&row.path, &row.key).iter().all(is_raise));
        rows.truncate(MAX_LIMITED_KEYS);
        let unreported = all.clone().map(|process| process.unreported);
        let missing = match all.count() {
            1 => 0,
            _ => unreported.fold(0, u64::saturating_add),
        };
        (rows, missing)
    }

    /// The keys whose requests wait longest, five of each rule, in this process and in the others, and
    /// how many of these do not say it.
    pub(crate) fn longest_waits(&self, own: &Process) -> (Vec<WaitingKey>, usize) {
        let others = self.state().processes.clone().unwrap_or_default();
        let all = others.iter().filter(|it| it.id != own.id).chain([own]);
        let silent = all.clone().filter(|it| it.report_version == 0).count();
        let waiting = all.flat_map(|it| it.waiting.iter().cloned());
        (longest_waits(waiting, 5), silent)
    }
}

impl LastSecond {
    /// The last second shows nothing that was counted before this.
    pub(crate) fn begin(&mut self, counted: &[(RuleSnapshot, bool)]) {
        self.before = sums(counted);
    }

    /// Takes what was counted by this second.
    pub(crate) fn add(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
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
    let mut sums = Sums::default();
    for (rule, _) in counted {
        sums.allowed += rule.decisions(DecisionOutcome::Allowed);
        sums.denied += rule.denied();
        for outcome in DecisionOutcome::ALL {
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
