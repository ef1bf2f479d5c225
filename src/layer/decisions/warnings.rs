use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::charge::PathState;
use crate::key::{Everyone, KeyExtractor};
use crate::rule::{Rule, SharedRules, WeakRules};
use crate::sync::{OwnedTask, lock};
use crate::warning::{Warning, WarningKind};

/// The marks that two different extractors may share: without a name, and networks of addresses.
const SHARED_MARKS: [&str; 3] = ["custom", "client-ip", "peer-ip"];

/// Whether all that wait for a count of this rule have one value of its `fair-by`, where this is
/// the key of what has none of its own.
fn shares_one_turn(rule: &Rule, key: Option<&dyn KeyExtractor>) -> bool {
    let Some(fair_by) = rule.fair_by().map(|it| it.mark()) else {
        return false;
    };
    let is_it = |key: Option<&dyn KeyExtractor>| key.is_some_and(|key| key.mark() == fair_by);
    let is_own = match rule.subjects() {
        [] => is_it(key),
        subjects => subjects
            .iter()
            .all(|it| is_it(it.key().map(Arc::as_ref).or(key))),
    };
    fair_by == Everyone.mark() || is_own && !SHARED_MARKS.contains(&&*fair_by)
}

/// The warnings that the layers of one application have found.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    found: Mutex<Vec<Warning>>,
    /// The keys that requests lacked: the path, the extractor, and whether by the server's mistake.
    without_key: Mutex<BTreeSet<(String, String, bool)>>,
    first_request: OnceLock<Instant>,
    /// Waits until the application has started.
    task: OnceLock<OwnedTask>,
}

impl Warnings {
    pub(crate) const MAX: usize = 1_000;
    /// How many of them may be about paths without a rule: clients may choose such paths.
    pub(crate) const MAX_WITHOUT_RULE: usize = Self::MAX / 10;
    /// By then an application has made its layers.
    const STARTED_AFTER: Duration = Duration::from_secs(10);

    /// Logs a warning of a new kind or path, and remembers it.
    pub(crate) fn add(&self, warning: Warning) {
        let mut found = lock(&self.found);
        let of_kind = found.iter().filter(|it| it.kind == warning.kind);
        let has_room = match warning.kind {
            WarningKind::NoRule | WarningKind::NoCharges => {
                of_kind.count() < Self::MAX_WITHOUT_RULE
            }
            _ => found.len() < Self::MAX,
        };
        if has_room && !found.iter().any(|it| warning.repeats(it)) {
            found.push(warning.clone());
            drop(found);
            warning.log();
        }
    }

    /// Whether no request has lacked this key yet.
    pub(crate) fn is_first_without_key(&self, key: (String, String, bool)) -> bool {
        lock(&self.without_key).insert(key)
    }

    /// What the rule itself shows.
    pub(crate) fn of_rule(
        rule: &Rule,
        key: Option<&dyn KeyExtractor>,
        path: Option<&PathState>,
    ) -> impl Iterator<Item = Warning> + use<> {
        let of_log = rule.has_large_log();
        let of_log = of_log.then(|| Warning::named(WarningKind::LargeLog, "max"));
        let is_lost = rule.is_shadow() && rule.settles() && !rule.is_outgoing();
        let of_dry_run = is_lost.then(|| Warning::named(WarningKind::SettlesInShadow, "settles"));
        let of_turns = shares_one_turn(rule, key);
        let of_turns = of_turns.then(|| Warning::named(WarningKind::NoTurns, "key").second());
        let of_hold = rule.hold_on().find(|it| ["429", "503"].contains(&&**it));
        let of_hold = of_hold.map(|it| Warning::with_name(WarningKind::IdleHold, it));
        let never_settles = path.is_some_and(|it| it.settlements.is_without());
        let never_settles = never_settles && rule.settles() && !rule.is_shadow();
        let of_settling = never_settles.then(|| Warning::named(WarningKind::NeverSeen, "settles"));
        let found = [of_log, of_dry_run, of_turns, of_hold, of_settling];
        found.into_iter().flatten()
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
    pub(crate) fn begin(self: &Arc<Self>, rules: WeakRules) {
        if self.first_request.set(Instant::now()).is_err() {
            return;
        }
        let warnings = Arc::downgrade(self);
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(async move {
                sleep(Self::STARTED_AFTER).await;
                if let Some((warnings, rules)) = warnings.upgrade().zip(rules.upgrade()) {
                    warnings.log_unused(&rules);
                }
            });
            let _ = self.task.set(OwnedTask(task.abort_handle()));
        }
    }

    pub(crate) fn log_unused(&self, rules: &SharedRules) {
        for path in rules.paths_without_layer() {
            self.add(Warning::new(WarningKind::UnusedRule).about(&path));
        }
    }
}
