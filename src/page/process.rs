//! How a process fares, as the processes of a service tell each other.

use std::array;
use std::sync::Arc;

use serde_json::{Value, json};

use super::views::MAX_ROWS;
use crate::decision::Source;
use crate::error::StoreErrorKind;
use crate::limits::Limits;
use crate::metrics::{DecisionOutcome, RuleSnapshot};
use crate::store::{PeerReport, Store};

/// How a process fares.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) id: Arc<str>,
    /// What the page shows of it: see [`Process::own`].
    pub(super) facts: Value,
    /// Its most denied keys.
    pub(super) limited: Vec<LimitedRow>,
    /// The maximum number of denials of a key that is not among them.
    pub(super) max_unreported: u64,
}

/// A key that is or was limited, as a process knows it.
#[derive(Debug, Clone)]
pub(super) struct LimitedRow {
    pub(super) path: String,
    pub(super) key: String,
    pub(super) denials: u64,
    /// By how much that may be too many.
    pub(super) error: u64,
    pub(super) since_ago: f64,
    /// `None` for what never fits; zero or less once it fits.
    pub(super) until_in: Option<f64>,
    /// Whether that is a hint: nothing but requests in progress denied it last.
    pub(super) is_busy: bool,
    /// Its denials in the last whole [seconds](crate::metrics::RECENT).
    pub(super) recent: u64,
    /// The plan that it was last denied under.
    pub(super) plan: Option<String>,
}

/// What the counters of this process did in the last second.
#[derive(Debug, Clone, Default)]
pub(super) struct LastSecond {
    pub(super) tick: u64,
    before: Sums,
    /// By how much they have grown since, and in how many seconds.
    grown: Sums,
    seconds: u64,
    /// The last error of a store, and its second.
    last_error: Option<(StoreErrorKind, u64)>,
}

/// Of all rules: the allowed and the denied requests, what a fallback has decided, and the errors
/// of the store by their kinds.
type Sums = [u64; 3 + StoreErrorKind::ALL.len()];

/// The maximum number of warnings of a process, and of characters of one or of another fact.
const MAX_WARNINGS: usize = 20;
const MAX_WARNING: usize = 400;
/// The longest name of a process, in characters.
const MAX_NAME: usize = 64;
/// The longest text of a process, in bytes.
const MAX_TEXT: usize = 32 * 1_024;

impl LastSecond {
    /// Begins: what was counted before is not of a last second.
    pub(super) fn begin(&mut self, counted: &[(RuleSnapshot, bool)]) {
        self.before = sums(counted);
    }

    /// Takes what was counted by this second.
    pub(super) fn add(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
        let now = sums(counted);
        self.grown = array::from_fn(|at| now[at].saturating_sub(self.before[at]));
        self.seconds = tick.saturating_sub(self.tick);
        for (kind, grown) in StoreErrorKind::ALL.into_iter().zip(&self.grown[3..]) {
            if *grown > 0 {
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
        let by_fallback =
            [Allowed, Denied, Busy, Never].map(|it| rule.decisions_by(it, Source::Fallback));
        let requests = [
            rule.decisions(Allowed),
            rule.denied(),
            by_fallback.iter().sum(),
        ];
        let errors = StoreErrorKind::ALL.map(|kind| rule.store_errors(kind));
        for (sum, number) in sums.iter_mut().zip(requests.into_iter().chain(errors)) {
            *sum += number;
        }
    }
    sums
}

impl Process {
    /// This process.
    pub(super) fn own(limits: &Limits, second: &LastSecond) -> Self {
        let tick = second.tick;
        let ago = |at: u64| tick.saturating_sub(at) as f64;
        let applied = limits.rules().applied();
        let breaker = match limits.shared_store().condition().is_breaker_open {
            Some(true) => "open",
            Some(false) => "closed",
            None => "unknown",
        };
        let warnings = limits.warnings();
        let warnings = warnings.iter().take(MAX_WARNINGS);
        let warnings: Vec<_> = warnings.map(|it| cut(&it.to_string())).collect();
        let [allowed, denied, by_fallback, ..] = second.grown;
        let seconds = second.seconds.max(1);
        let error = second.last_error;
        let facts = json!({
            "name": limits.monitor().state().name,
            "seen_ago_s": 0.0,
            "started_ago_s": tick as f64,
            "version": applied.version,
            "content_hash": applied.hash.map(|it| it.to_string()),
            "reload_failing": limits.is_reload_failing(),
            "rules": limits.rules().guard().iter().count(),
            "breaker": breaker,
            "fallback": by_fallback > 0,
            "allowed_per_s": allowed / seconds,
            "denied_per_s": denied / seconds,
            "last_error": error.map(|(kind, at)| json!({"kind": kind.name(), "ago_s": ago(at)})),
            "warnings": warnings,
        });
        let (denied, max_unreported) = limits.paths.limited.most_denied(MAX_ROWS);
        let rows = denied.into_iter().map(|one| LimitedRow {
            path: one.path.to_string(),
            key: one.key.as_str().to_owned(),
            denials: one.denials,
            error: one.error,
            since_ago: ago(one.since),
            until_in: one
                .until
                .map(|until| (until as f64) / 1_000.0 - tick as f64),
            is_busy: one.is_busy,
            recent: one.recent,
            plan: one.plan.as_deref().map(str::to_owned),
        });
        Self {
            id: Arc::clone(&limits.monitor().process),
            facts,
            limited: rows.collect(),
            max_unreported,
        }
    }

    /// What a process reports to the others.
    pub(super) fn text(&mut self) -> String {
        loop {
            let limited: Vec<_> = self.limited.iter().map(LimitedRow::report).collect();
            let text = json!({
                "facts": self.facts,
                "limited": limited,
                "unreported": self.max_unreported,
            })
            .to_string();
            if text.len() <= MAX_TEXT || self.limited.is_empty() {
                return text;
            }
            let unreported = self.limited.split_off(self.limited.len() / 2);
            self.max_unreported = unreported.first().map_or(0, |row| row.denials);
        }
    }

    /// What another process reported; `None` if that is no such text. Anything may stand in it.
    pub(super) fn read(report: &PeerReport) -> Option<Self> {
        if report.text.len() > 2 * MAX_TEXT || report.process.len() > MAX_NAME {
            return None;
        }
        let all: Value = serde_json::from_str(&report.text).ok()?;
        let facts = &all["facts"];
        let number = |name: &str| facts[name].as_u64().unwrap_or(0);
        let flag = |name: &str| facts[name].as_bool().unwrap_or(false);
        let text = |value: &Value| value.as_str().map(cut);
        let ago = report.ago.as_secs_f64();
        let breaker = ["open", "closed"]
            .into_iter()
            .find(|it| facts["breaker"] == *it);
        let error = &facts["last_error"];
        let error_ago = error["ago_s"].as_f64().unwrap_or(0.0) + ago;
        let error = text(&error["kind"]).map(|kind| json!({"kind": kind, "ago_s": error_ago}));
        let warnings = facts["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.take(MAX_WARNINGS).filter_map(text);
        let limited = all["limited"].as_array().into_iter().flatten();
        let limited = limited.take(MAX_ROWS);
        Some(Self {
            id: Arc::clone(&report.process),
            facts: json!({
                "name": short_name(facts["name"].as_str().unwrap_or_default()),
                "seen_ago_s": ago,
                "started_ago_s": facts["started_ago_s"].as_f64()? + ago,
                "version": number("version"),
                "content_hash": text(&facts["content_hash"]),
                "reload_failing": flag("reload_failing"),
                "rules": number("rules"),
                "breaker": breaker.unwrap_or("unknown"),
                "fallback": flag("fallback"),
                "allowed_per_s": number("allowed_per_s"),
                "denied_per_s": number("denied_per_s"),
                "last_error": error,
                "warnings": warnings.collect::<Vec<_>>(),
            }),
            limited: limited
                .filter_map(|row| LimitedRow::read(row, ago))
                .collect(),
            max_unreported: all["unreported"].as_u64().unwrap_or(0),
        })
    }

    /// How long it has been running, in seconds.
    pub(super) fn started_ago(&self) -> f64 {
        self.facts["started_ago_s"].as_f64().unwrap_or(0.0)
    }
}

impl LimitedRow {
    fn report(&self) -> Value {
        json!([
            self.path,
            self.key,
            self.denials,
            self.error,
            self.since_ago,
            self.until_in,
            self.recent,
            self.plan,
            self.is_busy
        ])
    }

    fn read(row: &Value, ago: f64) -> Option<Self> {
        Some(Self {
            path: row[0].as_str()?.to_owned(),
            key: row[1].as_str()?.to_owned(),
            denials: row[2].as_u64()?,
            error: row[3].as_u64()?,
            since_ago: row[4].as_f64()? + ago,
            until_in: row[5].as_f64().map(|it| it - ago),
            recent: row[6].as_u64()?,
            plan: row[7].as_str().map(cut),
            is_busy: row[8].as_bool().unwrap_or(false),
        })
    }
}

/// The beginning of a name.
pub(super) fn short_name(name: &str) -> String {
    name.trim().chars().take(MAX_NAME).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_WARNING) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
