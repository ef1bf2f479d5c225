//! What the page shows, as JSON.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Uri;
use serde_json::{Value, json};

use super::Page;
use crate::limits::{LimitedRow, Limits, Process, Step};
use crate::metrics::{DecisionOutcome, Rates, RuleSnapshot};
use crate::rule::{Policy, Rule};
use crate::store::{Reported, Store};

/// A view of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// The rates of each rule: of the seconds after this one.
    Now(Option<u64>),
    /// Those of minutes.
    Hour,
    Limited,
    Fleet,
}

/// A browser that was away for longer gets all seconds.
const MOST_MISSED: u64 = 10;

/// The most keys that are shown.
const MAX_ROWS: usize = 100;

impl View {
    /// The view that a request asks for; `None` if its query makes no sense.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let path = uri.path();
        if path.ends_with("/hour") {
            return Some(Self::Hour);
        }
        if path.ends_with("/limited") {
            return Some(Self::Limited);
        }
        if path.ends_with("/fleet") {
            return Some(Self::Fleet);
        }
        let pairs = uri.query().unwrap_or_default().split('&');
        let after = pairs.filter_map(|pair| pair.strip_prefix("after=")).next();
        Some(Self::Now(after.map(str::parse).transpose().ok()?))
    }

    /// The same with the seconds that are made one by one; what is earlier is all of it.
    pub(super) fn bounded(self, tick: u64) -> Self {
        match self {
            Self::Now(Some(after)) if tick.checked_sub(after).is_none_or(|it| it > MOST_MISSED) => {
                Self::Now(None)
            }
            view => view,
        }
    }

    /// Whether a request of this second may be about it.
    pub(super) fn is_due(self, tick: u64) -> bool {
        self.bounded(tick) == self
    }

    /// Differs where the view differs.
    pub(super) fn tag(self, page: &Page, tick: u64) -> String {
        let monitor = &page.limits.monitor;
        let changes = monitor.changes.load(Ordering::Relaxed);
        let shown = match self {
            Self::Hour => tick / Step::Minute.seconds(),
            Self::Now(_) | Self::Limited | Self::Fleet => tick,
        };
        format!("\"{}-{shown}-{changes}\"", monitor.process)
    }

    pub(super) fn json(self, page: &Page, tick: u64) -> String {
        match self {
            Self::Now(after) => rates(page, Step::Second, after),
            Self::Hour => rates(page, Step::Minute, None),
            Self::Limited => limited(page, tick).to_string(),
            Self::Fleet => fleet(page, tick).to_string(),
        }
    }
}

/// The rates of each rule in the last seconds or minutes.
fn rates(page: &Page, step: Step, after: Option<u64>) -> String {
    let limits = &page.limits;
    let monitor = &limits.monitor;
    let rules = limits.rules().load();
    let applied = limits.rules().applied();
    let name = limits.shared_store().name();
    let kind = match &*name {
        name if name.starts_with("redis") => "redis",
        "memory" => "memory",
        _ => "other",
    };
    monitor.with_rates(|history| {
        let tick = history.tick(step);
        let number = after.map_or(step.most() as u64, |after| tick.saturating_sub(after));
        let number = number.min(step.most() as u64).min(tick);
        let mut all = json!({
            "process": &*monitor.process,
            "tick": tick,
            "first": tick + 1 - number,
            "step_s": step.seconds(),
            "store": kind,
            "enabled": rules.is_enabled(),
            "keys_shown": page.shows_keys,
            "changes_allowed": page.may_change,
            "version": applied.version,
            "content_hash": applied.hash.map(|it| it.to_string()),
            "reload_failing": limits.is_reload_failing(),
            "more_rules": history.number_of_others(),
        });
        if page.shows_keys {
            all["store_name"] = name.into();
            show_reload(limits, &mut all);
        }
        let mut text = all.to_string();
        text.pop();
        text.push_str(",\"rules\":[");
        let mut is_first = true;
        for path in history.paths() {
            let Some(rule) = rules.find(path) else {
                continue;
            };
            let Some(counted) = limits.snapshot_of(rule) else {
                continue;
            };
            if !std::mem::take(&mut is_first) {
                text.push(',');
            }
            let is_enabled = rules.get(path).is_some();
            text.push_str(&rule_json(rule, is_enabled, &counted).to_string());
            text.pop();
            push_rates(&mut text, &history.last(path, step, number as usize));
            text.push('}');
        }
        text.push_str("]}");
        text
    })
}

/// The file of the rules, and why its last text was refused.
fn show_reload(limits: &Limits, all: &mut Value) {
    #[cfg(feature = "config")]
    {
        let status = limits.status();
        let file = status.watched.as_deref();
        all["file"] = json!(file.map(|file| file.display().to_string()));
        all["reload_error"] = status.error.into();
    }
    #[cfg(not(feature = "config"))]
    let _ = (limits, all);
}

fn rule_json(rule: &Arc<Rule>, is_enabled: bool, counted: &RuleSnapshot) -> Value {
    let decisions = |outcome| counted.decisions(outcome);
    let errors: u64 = counted.errors().map(|(_, number)| number).sum();
    let denials = match rule.is_shadow() {
        true => &counted.shadow_denials,
        false => &counted.denials,
    };
    let denials = denials.iter();
    let denied_by = denials.map(|(name, denials)| json!({"name": name, "denials": denials}));
    json!({
        "rule": rule.path(),
        "enabled": is_enabled,
        "is_shadow": rule.is_shadow(),
        "quotas": quotas(rule.policies()),
        "plans": rule.plans().collect::<Vec<_>>(),
        "candidate": rule.shadow().map(|candidate| quotas(candidate.policies())),
        "total": {
            "allowed": decisions(DecisionOutcome::Allowed),
            "denied": decisions(DecisionOutcome::Denied) + decisions(DecisionOutcome::Never),
            "shadow": decisions(DecisionOutcome::ShadowDenied),
            "errors": errors,
            "near": counted.near_limit,
            "let_through": counted.let_through,
            "units": counted.units,
            "refunded": counted.refunded_units,
            "proceeded": counted.proceeded,
            "waiting": counted.waiting,
            "waited": counted.waited,
        },
        "denied_by": denied_by.collect::<Vec<_>>(),
    })
}

pub(super) fn quotas(policies: &[Policy]) -> Vec<Value> {
    let quotas = policies.iter().map(|policy| {
        json!({
            "name": policy.name(),
            "max": policy.quota().max(),
            "window_s": policy.quota().window().as_secs_f64(),
        })
    });
    quotas.collect()
}

fn push_rates(text: &mut String, rates: &[Rates]) {
    type Number = fn(&Rates) -> u32;
    let series: [(&str, Number); 8] = [
        ("allowed", |it| it.allowed),
        ("denied", |it| it.denied),
        ("shadow", |it| it.shadow),
        ("errors", |it| it.errors),
        ("near", |it| it.near),
        ("let_through", |it| it.let_through),
        ("mean_us", |it| it.mean_micros),
        ("p99_us", |it| it.p99_micros),
    ];
    for (name, number) in series {
        let _ = write!(text, ",\"{name}\":[");
        for (at, rates) in rates.iter().enumerate() {
            let _ = match at {
                0 => write!(text, "{}", number(rates)),
                _ => write!(text, ",{}", number(rates)),
            };
        }
        text.push(']');
    }
}

/// The keys that are limited now, or were a moment ago, and those that are let through.
fn limited(page: &Page, tick: u64) -> Value {
    let limits = &page.limits;
    let monitor = &limits.monitor;
    let is_kept = monitor.is_kept();
    let (rows, missing) = most_limited(limits);
    let error = rows.iter().map(|row| row.error).max().unwrap_or(0);
    let shown = |key: &str| page.shows_keys.then(|| key.to_owned());
    let seconds = |time: Duration| time.as_secs_f64();
    let rows = rows.iter().map(|row| {
        let let_through = limits.let_through().time_of(&row.path, &row.key);
        json!({
            "row": monitor.row(&row.path, &row.key),
            "rule": row.path,
            "key": shown(&row.key),
            "since_ago_s": row.since_ago,
            "until_in_s": row.until_in,
            "never": row.until_in.is_none(),
            "denials": row.denials,
            "let_through_in_s": let_through.map(seconds),
        })
    });
    let mut let_through = limits.let_through().list();
    let_through.sort_by(|one, other| (&one.path, &one.key).cmp(&(&other.path, &other.key)));
    let let_through = let_through.iter().map(|one| {
        json!({
            "row": monitor.row(&one.path, &one.key),
            "rule": &*one.path,
            "key": shown(&one.key),
            "ends_in_s": seconds(one.time),
            "by": one.by.as_deref().filter(|_| page.shows_keys),
        })
    });
    json!({
        "process": &*monitor.process,
        "tick": tick,
        "of": if monitor.processes().is_some() { "fleet" } else { "process" },
        "redis_answers": is_kept,
        "complete": is_complete(limits),
        "too_many_by_at_most": error,
        "too_few_by_at_most": missing,
        "rows": rows.collect::<Vec<_>>(),
        "let_through": let_through.collect::<Vec<_>>(),
    })
}

/// The most denied keys of this process and of the others, with their denials together, and how many
/// of these may be missing: a process tells of its most denied keys only.
pub(super) fn most_limited(limits: &Limits) -> (Vec<LimitedRow>, u64) {
    let others = limits.monitor.processes().unwrap_or_default();
    let own = limits.own_process();
    let others = others.iter().filter(|it| it.id != own.id);
    let all = std::iter::once(&own).chain(others);
    let mut rows: HashMap<(&str, &str), LimitedRow> = HashMap::new();
    for row in all.clone().flat_map(|process| &process.limited) {
        let known = rows.entry((&row.path, &row.key));
        known
            .and_modify(|known| {
                known.denials = known.denials.saturating_add(row.denials);
                known.error = known.error.saturating_add(row.error);
                known.since_ago = known.since_ago.max(row.since_ago);
                // What never fits has no end.
                known.until_in = known.until_in.zip(row.until_in).map(|(a, b)| a.max(b));
            })
            .or_insert_with(|| row.clone());
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by(|one, other| {
        let order = other.denials.cmp(&one.denials);
        order.then_with(|| (&one.path, &one.key).cmp(&(&other.path, &other.key)))
    });
    rows.truncate(MAX_ROWS);
    let untold = all.clone().map(|process| process.most_untold);
    let missing = match all.count() {
        1 => 0,
        _ => untold.fold(0, u64::saturating_add),
    };
    (rows, missing)
}

/// Whether all processes are known: they are asked while somebody looks, and there may be too many.
fn is_complete(limits: &Limits) -> bool {
    let known = limits.monitor.processes();
    limits.monitor.is_kept().is_none() || known.is_some_and(|all| all.len() <= Reported::MAX)
}

fn fleet(page: &Page, tick: u64) -> Value {
    let limits = &page.limits;
    let monitor = &limits.monitor;
    let is_kept = monitor.is_kept();
    let own = limits.own_process();
    let others = monitor.processes().unwrap_or_default();
    let mut others: Vec<_> = others.iter().filter(|it| it.id != own.id).collect();
    // The longest running first.
    others.sort_by(|one, other| other.started_ago.total_cmp(&one.started_ago));
    let all = std::iter::once(&own).chain(others).take(Reported::MAX);
    let processes = all.map(|process| process_json(process, process.id == own.id));
    json!({
        "process": &*monitor.process,
        "tick": tick,
        "shared": is_kept.is_some(),
        "complete": is_complete(limits),
        "redis_answers": is_kept,
        "processes": processes.collect::<Vec<_>>(),
    })
}

fn process_json(process: &Process, is_this: bool) -> Value {
    let breaker = match process.is_breaker_open {
        Some(true) => "open",
        Some(false) => "closed",
        None => "unknown",
    };
    let error = process.last_error.as_ref();
    json!({
        "process": &*process.id,
        "this": is_this,
        "seen_ago_s": process.seen_ago,
        "started_ago_s": process.started_ago,
        "version": process.version,
        "content_hash": process.content_hash,
        "reload_failing": process.is_reload_failing,
        "rules": process.rules,
        "breaker": breaker,
        "fallback": process.has_fallen_back,
        "allowed_per_s": process.allowed_per_second,
        "denied_per_s": process.denied_per_second,
        "last_error": error.map(|(kind, ago)| json!({"kind": kind, "ago_s": ago})),
        "warnings": process.warnings,
    })
}
