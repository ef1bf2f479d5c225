//! `/status`: what the page shows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};
use tidegate::live::ReloadStatus;
use tidegate::metrics::{DecisionOutcome, LatencySnapshot, RuleSnapshot, Snapshot};
use tidegate::rule::Policy;
use tidegate::{Limits, Rule};

use crate::rule_routes::{Routes, RuleRoutes};

/// The route. Its document is made for each request.
pub(crate) fn route(limits: Limits, routes: Arc<RuleRoutes>, store: String) -> MethodRouter {
    let started = Instant::now();
    get(async move || {
        let routes = routes.now();
        Json(json!({
            "store": store,
            "enabled": routes.rules().is_enabled(),
            "uptime_ms": millis(started.elapsed()),
            "reload": reload(&limits.status()),
            "rules": rules(&routes, &limits.snapshot()),
        }))
    })
}

/// Times are ages, so that the clocks of browser and server need not agree.
fn reload(status: &ReloadStatus) -> Value {
    let ago = |time: SystemTime| millis(time.elapsed().unwrap_or_default());
    json!({
        "file": status.watched.as_deref().map(in_short),
        "version": status.version,
        "content_hash": status.content_hash,
        "applied_ms_ago": ago(status.applied_at),
        "error": status.error,
        "failing_ms_ago": status.failing_since.map(ago),
        "kept_rules": status.kept_rules,
    })
}

/// From the folder that the app was started in, where the file is in it.
fn in_short(file: &Path) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    file.strip_prefix(folder)
        .unwrap_or(file)
        .display()
        .to_string()
}

fn rules(routes: &Routes, snapshot: &Snapshot) -> Vec<Value> {
    let rules = routes.rules();
    let with_urls = rules.iter().filter_map(|it| {
        let counted = snapshot.rule(it.path())?;
        let url = routes.url(it.path())?;
        Some(rule(it, rules.get(it.path()).is_some(), url, counted))
    });
    with_urls.collect()
}

fn rule(rule: &Arc<Rule>, is_enabled: bool, url: &str, counted: &RuleSnapshot) -> Value {
    let decisions = DecisionOutcome::ALL.map(|it| (it.name(), counted.decisions(it)));
    let errors = counted.errors().filter(|(_, number)| *number > 0);
    let denials = match rule.is_shadow() {
        true => &counted.shadow_denials,
        false => &counted.denials,
    };
    let candidate = rule.shadow();
    json!({
        "path": rule.path(),
        "url": url,
        "enabled": is_enabled,
        "cost": rule.cost(),
        "policies": policies(rule, denials),
        "plans": plans(rule, denials),
        "refund_on": rule.refund_on().collect::<Vec<_>>(),
        "shadow": rule.is_shadow(),
        "candidate": candidate.map(|it| policies(it, &counted.shadow_denials)),
        "decisions": decisions.into_iter().collect::<BTreeMap<_, _>>(),
        "units": counted.units,
        "near_limit": counted.near_limit,
        "errors": errors.collect::<BTreeMap<_, _>>(),
        "proceeded": counted.proceeded,
        "waiting": counted.waiting,
        "waited": counted.waited,
        "refunded_units": counted.refunded_units,
        "latency": latency(&counted.latency),
    })
}

/// The policies of each plan.
fn plans(rule: &Arc<Rule>, denials: &[(String, u64)]) -> BTreeMap<String, Vec<Value>> {
    let of_plan = |name: &str| Some((name.to_owned(), policies(&*rule.of_plan(name)?, denials)));
    rule.plans().filter_map(of_plan).collect()
}

fn policies(rule: &Rule, denials: &[(String, u64)]) -> Vec<Value> {
    rule.policies()
        .iter()
        .map(|it| policy(it, denials))
        .collect()
}

fn policy(policy: &Policy, denials: &[(String, u64)]) -> Value {
    let quota = policy.quota();
    let denials = denials.iter().find(|(name, _)| name == policy.name());
    json!({
        "name": policy.name(),
        "max": quota.max(),
        "window_ms": millis(quota.window()),
        "denials": denials.map_or(0, |(_, number)| *number),
    })
}

fn latency(latency: &LatencySnapshot) -> Value {
    json!({
        "answers": latency.count(),
        "p50_ms": quantile(latency, 50),
        "p99_ms": quantile(latency, 99),
    })
}

/// How many milliseconds so many percent of the answers took at most: the bound of their bucket.
/// Nothing in the last bucket, which has none, and before the first answer.
fn quantile(latency: &LatencySnapshot, percent: u64) -> Option<f64> {
    let rank = (latency.count() * percent).div_ceil(100).max(1);
    let mut so_far = 0;
    let bucket = latency.buckets().iter().find(|bucket| {
        so_far += bucket.count;
        so_far >= rank
    });
    Some(bucket?.at_most?.as_secs_f64() * 1_000.0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
