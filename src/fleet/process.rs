//! How a process fares, as the processes of a service tell each other.

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
}

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

/// The maximum number of limited keys that a process reports, and that a page shows.
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
