//! How a process fares, as the processes of a service tell each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::activity::key_notes::LimitedKey;
use crate::store::PeerReport;

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
    /// The version of the report. Since 1 it says who waits.
    #[serde(default)]
    pub(crate) report_version: u64,
    /// The keys of `fair-by` whose requests wait longest.
    #[serde(default)]
    pub(crate) waiting: Vec<WaitingKey>,
}

/// The rule, a key of `fair-by`, empty for those without one, how many of its requests wait, and
/// how many seconds ago the first of them came.
pub(crate) type WaitingKey = (Arc<str>, Arc<str>, u64, f64);

/// What the page shows of a process, by the names in its JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) seen_ago_s: f64,
    pub(crate) started_ago_s: f64,
    pub(crate) version: u64,
    pub(crate) content_hash: Option<String>,
    pub(crate) reload_failing: bool,
    pub(crate) rules: usize,
    pub(crate) breaker: BreakerReport,
    pub(crate) fallback: bool,
    pub(crate) allowed_per_s: u64,
    pub(crate) denied_per_s: u64,
    pub(crate) last_error: Option<LastError>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BreakerReport {
    Open,
    Closed,
    #[default]
    #[serde(other)]
    Unknown,
}

/// The last error of a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LastError {
    pub(crate) kind: String,
    pub(crate) ago_s: f64,
}

/// The maximum number of limited keys that a process reports, and that a page shows, and of keys
/// whose requests wait.
pub(crate) const MAX_LIMITED_KEYS: usize = 100;
/// The maximum number of warnings of a process, and of characters of one or of another fact.
const MAX_WARNINGS: usize = 20;
const MAX_WARNING: usize = 400;
/// The longest name of a process, in characters.
const MAX_NAME: usize = 64;
/// The longest text of a process, in bytes.
const MAX_TEXT: usize = 32 * 1_024;

impl Process {
    /// What a process reports to the others.
    pub(crate) fn text(&mut self) -> String {
        loop {
            let text = json!(self).to_string();
            if text.len() <= MAX_TEXT || self.limited.is_empty() && self.waiting.is_empty() {
                return text;
            }
            self.waiting.truncate(self.waiting.len() / 2);
            let untold = self.limited.split_off(self.limited.len() / 2);
            self.unreported = untold.first().map_or(self.unreported, |it| it.denials);
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
        read.waiting.iter_mut().for_each(|row| row.3 += ago);
        Some(read.bounded())
    }

    /// No more than is shown of it.
    pub(crate) fn bounded(mut self) -> Self {
        let facts = &mut self.facts;
        facts.name = short_name(&facts.name);
        facts.warnings.truncate(MAX_WARNINGS);
        self.limited.truncate(MAX_LIMITED_KEYS);
        let kind = facts.last_error.iter_mut().map(|error| &mut error.kind);
        let texts = facts.warnings.iter_mut().chain(&mut facts.content_hash);
        texts.chain(kind).for_each(|text| *text = cut(text));
        for row in &mut self.limited {
            row.plan = row.plan.take().map(|plan| cut(&plan).into());
        }
        self
    }
}

/// The requests of each key together, and of each rule so many keys, those with the longest waits:
/// the first of each rule before the second ones.
pub(crate) fn longest_waits(all: impl Iterator<Item = WaitingKey>, most: usize) -> Vec<WaitingKey> {
    let mut keys: BTreeMap<_, (u64, f64)> = BTreeMap::new();
    for (rule, key, waiting, since_ago) in all {
        let known = keys.entry((rule, key)).or_default();
        *known = (known.0.saturating_add(waiting), known.1.max(since_ago));
    }
    let rows = keys
        .into_iter()
        .map(|((rule, key), it)| (rule, key, it.0, it.1));
    let mut rows: Vec<WaitingKey> = rows.collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0).then(other.3.total_cmp(&one.3)));
    let of_rules = rows.chunk_by(|one, other| one.0 == other.0);
    let ranked = of_rules.flat_map(|it| it.iter().take(most).enumerate());
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let rows = ranked.into_iter().take(MAX_LIMITED_KEYS);
    rows.map(|(_, row)| row.clone()).collect()
}

/// The beginning of a name.
pub(crate) fn short_name(name: &str) -> String {
    let name = crate::unseen::blanked(name);
    name.trim().chars().take(MAX_NAME).collect()
}

fn cut(text: &str) -> String {
    let text = crate::unseen::blanked(text);
    match text.char_indices().nth(MAX_WARNING) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
