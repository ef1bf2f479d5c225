//! How a process fares, as the processes of a service tell each other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::views::MAX_ROWS;
use crate::decision::Source;
use crate::error::StoreErrorKind;
use crate::limits::Limits;
use crate::metrics::{DecisionOutcome, LimitedKey, RuleSnapshot};
use crate::store::{PeerReport, Store};

/// How a process fares. Another version may have written it: fields are added, and keep their names
/// and types.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Process {
    #[serde(skip)]
    pub(super) id: Arc<str>,
    pub(super) facts: Facts,
    /// Its most denied keys.
    pub(super) limited: Vec<LimitedKey>,
    /// The maximum number of denials of a key that is not among them.
    #[serde(default)]
    pub(super) unreported: u64,
}

/// What the page shows of a process, by the names in its JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    name: String,
    seen_ago_s: f64,
    pub(super) started_ago_s: f64,
    version: u64,
    content_hash: Option<String>,
    reload_failing: bool,
    rules: usize,
    breaker: Breaker,
    fallback: bool,
    allowed_per_s: u64,
    denied_per_s: u64,
    last_error: Option<LastError>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Breaker {
    Open,
    Closed,
    #[default]
    #[serde(other)]
    Unknown,
}

/// The last error of a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LastError {
    kind: String,
    ago_s: f64,
}

/// What the counters of this process did in the last second.
#[derive(Debug, Clone, Default)]
pub(super) struct LastSecond {
    pub(super) tick: u64,
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

impl Process {
    /// This process, for the fleet and for its own page.
    pub(super) fn own(limits: &Limits) -> Self {
        let second = limits.monitor().state().second.clone();
        let tick = second.tick;
        let ago = |at: u64| tick.saturating_sub(at) as f64;
        let applied = limits.rules().applied();
        let breaker = match limits.shared_store().condition().is_breaker_open {
            Some(true) => Breaker::Open,
            Some(false) => Breaker::Closed,
            None => Breaker::Unknown,
        };
        let error = second.last_error.map(|(kind, at)| LastError {
            kind: kind.name().to_owned(),
            ago_s: ago(at),
        });
        let facts = Facts {
            name: limits.monitor().state().name.clone(),
            seen_ago_s: 0.0,
            started_ago_s: tick as f64,
            version: applied.version,
            content_hash: applied.hash.map(|it| it.to_string()),
            reload_failing: limits.is_reload_failing(),
            rules: limits.rules().guard().iter().count(),
            breaker,
            fallback: second.fallback,
            allowed_per_s: second.allowed_per_s,
            denied_per_s: second.denied_per_s,
            last_error: error,
            warnings: limits.warnings().iter().map(ToString::to_string).collect(),
        };
        let (limited, unreported) = limits.paths.limited.most_denied(MAX_ROWS);
        let own = Self {
            id: Arc::clone(&limits.monitor().process),
            facts,
            limited,
            unreported,
        };
        own.bounded()
    }

    /// What a process reports to the others.
    pub(super) fn text(&mut self) -> String {
        loop {
            let text = json!(self).to_string();
            if text.len() <= MAX_TEXT || self.limited.is_empty() {
                return text;
            }
            let unreported = self.limited.split_off(self.limited.len() / 2);
            self.unreported = unreported.first().map_or(0, |row| row.denials);
        }
    }

    /// What another process reported; `None` if that is no such text. Anything may stand in it.
    pub(super) fn read(report: &PeerReport) -> Option<Self> {
        if report.text.len() > 2 * MAX_TEXT || report.process.len() > MAX_NAME {
            return None;
        }
        let mut read: Self = serde_json::from_str(&report.text).ok()?;
        let ago = report.ago.as_secs_f64();
        read.id = Arc::clone(&report.process);
        read.facts.seen_ago_s = ago;
        read.facts.started_ago_s += ago;
        if let Some(error) = &mut read.facts.last_error {
            error.ago_s += ago;
        }
        for row in &mut read.limited {
            row.since_ago += ago;
            row.until_in = row.until_in.map(|it| it - ago);
        }
        Some(read.bounded())
    }

    /// No more than is shown of it.
    fn bounded(mut self) -> Self {
        let facts = &mut self.facts;
        facts.name = short_name(&facts.name);
        facts.warnings.truncate(MAX_WARNINGS);
        self.limited.truncate(MAX_ROWS);
        let kind = facts.last_error.iter_mut().map(|error| &mut error.kind);
        let texts = facts.warnings.iter_mut().chain(&mut facts.content_hash);
        texts.chain(kind).for_each(|text| *text = cut(text));
        for row in &mut self.limited {
            row.plan = row.plan.take().map(|plan| cut(&plan).into());
        }
        self
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
