//! How a process fares, as the processes of a service tell each other.

use std::sync::Arc;

use serde_json::{Value, json};

use super::limits::Limits;
use super::rates::Counted;
use crate::error::StoreErrorKind;
use crate::store::{Reported, Store};

/// How a process fares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(crate) id: Arc<str>,
    /// All times in seconds.
    pub(crate) seen_ago: f64,
    pub(crate) started_ago: f64,
    /// The version of its rules, the hash of their text, and whether a newer text is refused.
    pub(crate) version: u64,
    pub(crate) content_hash: Option<String>,
    pub(crate) is_reload_failing: bool,
    pub(crate) rules: u64,
    /// Whether its circuit breaker is open; `None` without one.
    pub(crate) is_breaker_open: Option<bool>,
    /// Whether a fallback decided in the last second.
    pub(crate) has_fallen_back: bool,
    pub(crate) allowed_per_second: u64,
    pub(crate) denied_per_second: u64,
    /// The kind of the last error of a store, and when it was.
    pub(crate) last_error: Option<(String, f64)>,
    pub(crate) warnings: Vec<String>,
    /// Its most denied keys.
    pub(crate) limited: Vec<LimitedRow>,
    /// The denials that a key may have which is not among them.
    pub(crate) most_untold: u64,
}

/// A key that is or was limited, as a process knows it.
#[derive(Debug, Clone)]
pub(crate) struct LimitedRow {
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) denials: u64,
    /// By how much that may be too many.
    pub(crate) error: u64,
    pub(crate) since_ago: f64,
    /// `None` for what never fits; zero or less once it fits.
    pub(crate) until_in: Option<f64>,
}

/// What the counters of this process did in the last second.
#[derive(Debug, Clone, Default)]
pub(super) struct LastSecond {
    pub(super) tick: u64,
    before: Sums,
    last: Sums,
    /// The last error of a store, and its second.
    last_error: Option<(StoreErrorKind, u64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    allowed: u64,
    denied: u64,
    by_fallback: u64,
    store_errors: [u64; StoreErrorKind::ALL.len()],
}

/// The most warnings of a process, and the longest one, in characters, that are told.
const MAX_WARNINGS: usize = 20;
const MAX_WARNING: usize = 400;
/// The most keys of a process that are told.
const MAX_KEYS: usize = 100;
/// The longest text of a process, in bytes.
const MAX_TEXT: usize = 32 * 1_024;

impl LastSecond {
    /// Begins: what was counted before is not of a last second.
    pub(super) fn begin(&mut self, counted: &[Counted]) {
        self.before = Sums::of(counted);
    }

    /// Takes what was counted by this second.
    pub(super) fn add(&mut self, tick: u64, counted: &[Counted]) {
        let now = Sums::of(counted);
        let seconds = tick.saturating_sub(self.tick).max(1);
        let grown = |now: u64, before: u64| now.saturating_sub(before) / seconds;
        self.last = Sums {
            allowed: grown(now.allowed, self.before.allowed),
            denied: grown(now.denied, self.before.denied),
            by_fallback: now.by_fallback.saturating_sub(self.before.by_fallback),
            store_errors: [0; StoreErrorKind::ALL.len()],
        };
        for (at, kind) in StoreErrorKind::ALL.into_iter().enumerate() {
            if now.store_errors[at] > self.before.store_errors[at] {
                self.last_error = Some((kind, tick));
            }
        }
        self.before = now;
        self.tick = tick;
    }
}

impl Sums {
    fn of(counted: &[Counted]) -> Self {
        let mut sums = Self::default();
        for Counted { totals, .. } in counted {
            sums.allowed += totals.allowed;
            sums.denied += totals.denied;
            sums.by_fallback += totals.by_fallback;
            for (sum, number) in sums.store_errors.iter_mut().zip(totals.store_errors) {
                *sum += number;
            }
        }
        sums
    }
}

impl Process {
    /// This process.
    pub(super) fn own(limits: &Limits, id: &Arc<str>, second: &LastSecond) -> Self {
        let tick = second.tick;
        let ago = |at: u64| tick.saturating_sub(at) as f64;
        let applied = limits.rules().applied();
        let (denied, most_untold) = limits.paths.limited.most_denied(MAX_KEYS);
        let rows = denied.into_iter().map(|one| LimitedRow {
            path: one.path.to_string(),
            key: one.key.as_str().to_owned(),
            denials: one.denials,
            error: one.error,
            since_ago: ago(one.since),
            until_in: one
                .until
                .map(|until| (until as f64) / 1_000.0 - tick as f64),
        });
        let warnings = limits.warnings();
        let warnings = warnings.iter().take(MAX_WARNINGS);
        Self {
            id: Arc::clone(id),
            seen_ago: 0.0,
            started_ago: tick as f64,
            version: applied.version,
            content_hash: applied.hash.map(|it| it.to_string()),
            is_reload_failing: limits.is_reload_failing(),
            rules: limits.rules().peek().iter().count() as u64,
            is_breaker_open: limits.shared_store().is_breaker_open(),
            has_fallen_back: second.last.by_fallback > 0,
            allowed_per_second: second.last.allowed,
            denied_per_second: second.last.denied,
            last_error: second
                .last_error
                .map(|(kind, at)| (kind.name().to_owned(), ago(at))),
            warnings: warnings.map(|it| cut(it.to_string())).collect(),
            limited: rows.collect(),
            most_untold,
        }
    }

    /// What a process tells the others.
    pub(super) fn text(&mut self) -> String {
        loop {
            let rows = self.limited.iter().map(|row| {
                json!([
                    row.path,
                    row.key,
                    row.denials,
                    row.error,
                    row.since_ago,
                    row.until_in
                ])
            });
            let text = json!({
                "started": self.started_ago,
                "version": self.version,
                "hash": self.content_hash,
                "failing": self.is_reload_failing,
                "rules": self.rules,
                "open": self.is_breaker_open,
                "fallback": self.has_fallen_back,
                "allowed": self.allowed_per_second,
                "denied": self.denied_per_second,
                "error": self.last_error,
                "warnings": self.warnings,
                "limited": rows.collect::<Vec<_>>(),
                "untold": self.most_untold,
            })
            .to_string();
            if text.len() <= MAX_TEXT || self.limited.is_empty() {
                return text;
            }
            let untold = self.limited.split_off(self.limited.len() / 2);
            self.most_untold = untold.first().map_or(0, |row| row.denials);
        }
    }

    /// What another process told; `None` if that is no such text.
    pub(super) fn read(said: &Reported) -> Option<Self> {
        if said.text.len() > 2 * MAX_TEXT {
            return None;
        }
        let all: Value = serde_json::from_str(&said.text).ok()?;
        let number = |name: &str| all[name].as_u64().unwrap_or(0);
        let flag = |name: &str| all[name].as_bool().unwrap_or(false);
        let string = |value: &Value| Some(value.as_str()?.to_owned());
        let list = |name: &str| all[name].as_array().into_iter().flatten();
        let error = &all["error"];
        let ago = said.ago.as_secs_f64();
        Some(Self {
            id: Arc::clone(&said.process),
            seen_ago: ago,
            started_ago: all["started"].as_f64()? + ago,
            version: number("version"),
            content_hash: string(&all["hash"]),
            is_reload_failing: flag("failing"),
            rules: number("rules"),
            is_breaker_open: all["open"].as_bool(),
            has_fallen_back: flag("fallback"),
            allowed_per_second: number("allowed"),
            denied_per_second: number("denied"),
            last_error: string(&error[0])
                .map(|kind| (kind, error[1].as_f64().unwrap_or(0.0) + ago)),
            warnings: list("warnings")
                .take(MAX_WARNINGS)
                .filter_map(string)
                .collect(),
            limited: list("limited")
                .take(MAX_KEYS)
                .filter_map(|row| LimitedRow::read(row, ago))
                .collect(),
            most_untold: number("untold"),
        })
    }
}

impl LimitedRow {
    fn read(row: &Value, ago: f64) -> Option<Self> {
        Some(Self {
            path: row[0].as_str()?.to_owned(),
            key: row[1].as_str()?.to_owned(),
            denials: row[2].as_u64()?,
            error: row[3].as_u64()?,
            since_ago: row[4].as_f64()? + ago,
            until_in: row[5].as_f64().map(|it| it - ago),
        })
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= MAX_WARNING {
        return text;
    }
    let beginning = text.chars().take(MAX_WARNING);
    beginning.chain(['…']).collect()
}
