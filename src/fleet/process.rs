//! How a process fares, as the processes of a service tell each other.

use std::array;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::decision::Source;
use crate::error::StoreErrorKind;
use crate::limits::Limits;
use crate::metrics::key_notes::LimitedKey;
use crate::metrics::{DecisionOutcome, RuleSnapshot};
use crate::page::views::MAX_ROWS;
use crate::store::{PeerReport, Store};

/// How a process fares. Another version may have written it: fields are added, and keep their names
/// and types.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Process {
    #[serde(skip)]
    pub(crate) id: Arc<str>,
    pub(crate) facts: Facts,
    /// Its most denied keys.
    pub(crate) limited: Vec<LimitedKey>,
    /// The maximum number of denials of a key that is not among them.
    #[serde(default)]
    pub(crate) unreported: u64,
}

/// What the page shows of a process, by the names in its JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    name: String,
    seen_ago_s: f64,
    pub(crate) started_ago_s: f64,
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
pub(crate) struct LastSecond {
    pub(crate) tick: u64,
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
    pub(crate) fn begin(&mut self, counted: &[(RuleSnapshot, bool)]) {
        self.before = sums(counted);
    }

    /// Takes what was counted by this second.
    pub(crate) fn add(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
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
    /// This process, for the fleet and for its own page.
    pub(crate) fn own(limits: &Limits) -> Self {
        let second = limits.monitor().state().second.clone();
        let tick = second.tick;
        let ago = |at: u64| tick.saturating_sub(at) as f64;
        let applied = limits.rules().applied();
        let breaker = match limits.shared_store().condition().is_breaker_open {
            Some(true) => Breaker::Open,
            Some(false) => Breaker::Closed,
            None => Breaker::Unknown,
        };
        let [allowed, denied, by_fallback, ..] = second.grown;
        let seconds = second.seconds.max(1);
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
            fallback: by_fallback > 0,
            allowed_per_s: allowed / seconds,
            denied_per_s: denied / seconds,
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
    pub(crate) fn text(&mut self) -> String {
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
    pub(crate) fn read(report: &PeerReport) -> Option<Self> {
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
pub(crate) fn short_name(name: &str) -> String {
    name.trim().chars().take(MAX_NAME).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_WARNING) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
