//! What the page shows, as JSON.

use std::sync::Arc;

use http::Uri;
use serde_json::{Map, Value, json};

use super::Page;
use crate::activity::key_notes::{LimitedKey, RECENT};
use crate::activity::rates::{NUMBERS, Step, series};
use crate::key::Key;
use crate::limits::Limits;
use crate::metrics::RuleSnapshot;
use crate::rule::{Policy, Rule, Subject};
use crate::store::{OperatorKind, PeerReport, Store};
use crate::sync::lock;

/// The maximum number of plans of a rule whose quotas are shown.
const MAX_PLANS: usize = 10;

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
const MAX_MISSED: u64 = 10;

impl View {
    /// The view that a request asks for; `None` if its query makes no sense.
    pub(super) fn from_uri(uri: &Uri) -> Option<Self> {
        match uri.path().rsplit('/').next() {
            Some("hour") => Some(Self::Hour),
            Some("limited") => Some(Self::Limited),
            Some("fleet") => Some(Self::Fleet),
            _ => {
                let mut pairs = uri.query().unwrap_or_default().split('&');
                let after = pairs.find_map(|pair| pair.strip_prefix("after="));
                Some(Self::Now(after.map(str::parse).transpose().ok()?))
            }
        }
    }

    /// This view with the seconds that are made one by one; what is earlier is all of it.
    pub(super) fn bounded(self, tick: u64) -> Self {
        match self {
            Self::Now(Some(after)) if tick.checked_sub(after).is_none_or(|it| it > MAX_MISSED) => {
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
        let member = &page.limits.member;
        let changes = member.state().changes;
        let shown = match self {
            Self::Hour => tick / Step::Minute.seconds(),
            Self::Now(_) | Self::Limited | Self::Fleet => tick,
        };
        format!("\"{}-{shown}-{changes}\"", member.process)
    }

    pub(super) fn json(self, page: &Page, tick: u64) -> Value {
        match self {
            Self::Now(after) => rates(page, Step::Second, after),
            Self::Hour => rates(page, Step::Minute, None),
            Self::Limited => limited(page, tick),
            Self::Fleet => fleet(page, tick),
        }
    }
}

/// The rates of each rule in the last seconds or minutes.
fn rates(page: &Page, step: Step, after: Option<u64>) -> Value {
    let limits = &page.limits;
    let rules = limits.rules().load();
    let applied = limits.rules().applied();
    let name = limits.shared_store().name();
    let kind = match &*name {
        name if name.starts_with("redis") => "redis",
        "memory" => "memory",
        _ => "other",
    };
    let process_name = limits.reports.name();
    let state = limits.reports.state();
    let history = &state.rates;
    let tick = history.tick(step);
    let number = after.map_or(step.max() as u64, |after| tick.saturating_sub(after));
    let number = number.min(step.max() as u64).min(tick);
    let mut all = json!({
        "process": &*limits.member.process,
        "process_name": process_name,
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
    }
    // The file of the rules, and why its last text was refused.
    #[cfg(feature = "config")]
    if page.shows_keys {
        let status = limits.status();
        let file = status.watched.as_deref();
        all["file"] = json!(file.map(|file| file.display().to_string()));
        all["reload_error"] = status.error.into();
    }
    let states = lock(&limits.paths.states);
    let shown = history.paths().into_iter().filter_map(|path| {
        let rule = rules.find(path)?;
        let state = states.get(path)?;
        let mut shown = rule_json(rule, rules.get(path).is_some(), &state.snapshot(rule));
        let failures = state.counters.failures.get();
        shown["failures"] = rule.counts_failures().then_some(failures).into();
        let rates = history.last(path, step, number as usize);
        for (at, name) in series().enumerate() {
            shown[name] = rates.iter().map(|rates| rates[at]).collect();
        }
        Some(shown)
    });
    all["rules"] = shown.collect();
    all
}

fn rule_json(rule: &Arc<Rule>, is_enabled: bool, counted: &RuleSnapshot) -> Value {
    let total = NUMBERS.map(|(name, number)| (name.to_owned(), number(counted).into()));
    let denials = if rule.is_shadow() {
        &counted.shadow_denials
    } else {
        &counted.denials
    };
    let denials = denials.iter();
    let denied_by = denials.map(|(name, denials)| json!({"name": name, "denials": denials}));
    let plans = rule.plans().take(MAX_PLANS);
    let of_plans = plans.filter_map(|name| Some(quotas(rule.of_plan(name)?.policies())));
    json!({
        "rule": rule.path(),
        "enabled": is_enabled,
        "is_shadow": rule.is_shadow(),
        "quotas": quotas(rule.policies()),
        "subjects": rule.subjects().iter().map(Subject::name).collect::<Vec<_>>(),
        "plans": rule.plans().collect::<Vec<_>>(),
        "total": Map::from_iter(total),
        "denied_by": denied_by.collect::<Vec<_>>(),
        "quotas_of_plans": of_plans.collect::<Vec<_>>(),
    })
}

pub(super) fn quotas(policies: &[Policy]) -> Vec<Value> {
    let quotas = policies.iter().map(|policy| {
        let window = (!policy.is_concurrent()).then(|| policy.window());
        let mut quota = json!({
            "name": policy.name(),
            "subject": policy.subject(),
            "cost": policy.cost(),
            "hidden": policy.is_hidden(),
            "max": policy.quota().max(),
            "window_s": window.map(|it| it.as_secs_f64()),
            "concurrent": policy.is_concurrent(),
        });
        if let Some(period) = policy.period() {
            quota["per"] = period.name().into();
            let from = period.beginning_json();
            quota["from"] = from.and_then(|it| it.parse::<Value>().ok()).into();
            quota["zone"] = period.zone().unwrap_or("UTC").into();
        }
        quota
    });
    quotas.collect()
}

/// The keys that are limited now, or were a moment ago, and those that are let through or blocked.
fn limited(page: &Page, tick: u64) -> Value {
    let limits = &page.limits;
    let member = &limits.member;
    let is_accepted = member.state().is_accepted;
    let (rows, missing) = limits.most_limited();
    let (waiting, silent) = limits.reports.longest_waits(&limits.own_process());
    let error = rows.iter().map(|row| row.error).max().unwrap_or(0);
    let rows = rows.iter().map(|row| limited_row(page, row));
    let waiting = waiting.iter().map(|(rule, key, waiting, since_ago)| {
        json!({
            "row": member.hashed_key(rule, key),
            "rule": rule,
            "key": page.shown(key).or(key.is_empty().then(String::new)),
            "waiting": waiting,
            "since_ago_s": since_ago,
        })
    });
    let listed = limits.operator_keys.list();
    let of_kind = |is_it: fn(OperatorKind) -> bool| {
        let listed = listed.iter().filter(|one| is_it(one.kind));
        let listed = listed.map(|one| {
            let (subject, key) = parts(page, &one.key);
            json!({
                "row": member.hashed_key(&one.path, &one.key),
                "rule": &*one.path,
                "subject": subject,
                "key": key,
                "ends_in_s": one.time.as_secs_f64(),
                "by": one.by.as_deref().filter(|_| page.shows_keys),
                "note": one.note.as_deref().filter(|_| page.shows_keys),
                "factor": factor(one.kind),
                "only": Vec::from_iter(one.only.iter()),
            })
        });
        listed.collect::<Vec<_>>()
    };
    json!({
        "process": &*limits.member.process,
        "tick": tick,
        "of": if limits.reports.state().processes.is_some() { "fleet" } else { "process" },
        "redis_answers": is_accepted,
        "complete": is_complete(limits),
        "too_many_by_at_most": error,
        "too_few_by_at_most": missing,
        "rows": rows.collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "waiting_unknown_in": silent,
        "let_through": of_kind(|kind| kind == OperatorKind::LetThrough),
        "blocked": of_kind(|kind| kind == OperatorKind::Blocked),
        "raised": of_kind(OperatorKind::is_raise),
    })
}

/// A key that is limited.
fn limited_row(page: &Page, row: &LimitedKey) -> Value {
    let (subject, key) = parts(page, &row.key);
    let mut shown = json!({
        "row": page.limits.member.hashed_key(&row.path, &row.key),
        "rule": row.path,
        "subject": subject,
        "key": key,
        "everyone": Key::split_subject(&row.key).1.is_empty(),
        "since_ago_s": row.since_ago,
        "until_in_s": row.until_in,
        "never": row.until_in.is_none(),
        "busy": row.is_busy,
        "on_hold": row.is_on_hold && row.until_in > Some(0.0),
        "locked_out": row.is_locked_out && row.until_in > Some(0.0),
        "denials": row.denials,
        "denials_per_s": row.recent as f64 / RECENT as f64,
        "plan": row.plan,
    });
    show_operated(&page.limits, &row.path, &row.key, &mut shown);
    shown
}

/// The subject of a key, which that of a joint rule has, and the key as the page shows it.
fn parts(page: &Page, text: &str) -> (Option<String>, Option<String>) {
    let (subject, key) = Key::split_subject(text);
    (subject, page.shown(key))
}

/// By what a key is raised, if it is.
fn factor(kind: OperatorKind) -> Option<f64> {
    match kind {
        OperatorKind::Raised(factor) => Some(factor.get()),
        OperatorKind::LetThrough | OperatorKind::Blocked => None,
    }
}

/// Shows for how many seconds an operator lets a key through or blocks it, at most one of both, and
/// raises it.
pub(super) fn show_operated(limits: &Limits, path: &str, key: &str, shown: &mut Value) {
    for name in ["let_through_in_s", "blocked_in_s", "raised_in_s", "factor"] {
        shown[name] = Value::Null;
    }
    for (kind, time) in limits.operator_keys.find(path, key) {
        let name = match kind {
            OperatorKind::LetThrough => "let_through_in_s",
            OperatorKind::Blocked => "blocked_in_s",
            OperatorKind::Raised(_) => "raised_in_s",
        };
        shown[name] = time.as_secs_f64().into();
        if kind.is_raise() {
            shown["factor"] = factor(kind).into();
        }
    }
}

/// Whether all processes are known: they are asked while somebody looks, and there may be too many.
fn is_complete(limits: &Limits) -> bool {
    let is_alone = limits.member.state().is_accepted.is_none();
    let state = limits.reports.state();
    let known = state.processes.as_ref();
    is_alone || known.is_some_and(|all| all.len() <= PeerReport::MAX)
}

fn fleet(page: &Page, tick: u64) -> Value {
    let limits = &page.limits;
    let member = &limits.member;
    let is_accepted = member.state().is_accepted;
    let own = limits.own_process();
    let others = limits.reports.state().processes.clone().unwrap_or_default();
    let mut others: Vec<_> = others.iter().filter(|it| it.id != own.id).collect();
    // The longest running first.
    others.sort_by(|one, other| {
        let [one, other] = [one, other].map(|it| it.facts.started_ago_s);
        other.total_cmp(&one)
    });
    let all = std::iter::once(&own).chain(others).take(PeerReport::MAX);
    let processes = all.map(|process| {
        let mut shown = json!(process.facts);
        shown["process"] = (*process.id).into();
        shown["this"] = (process.id == own.id).into();
        shown
    });
    json!({
        "process": &*limits.member.process,
        "tick": tick,
        "shared": is_accepted.is_some(),
        "complete": is_complete(limits),
        "redis_answers": is_accepted,
        "processes": processes.collect::<Vec<_>>(),
    })
}
