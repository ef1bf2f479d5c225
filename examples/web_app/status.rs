//! `/status`: what the app's own page has to know of the rules besides what `/limits` says.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};
use tidegate::{Limits, Rule};

use crate::rule_routes::{Routes, RuleRoutes};

/// The route. Its document is made for each request.
pub(crate) fn route(limits: Limits, routes: Arc<RuleRoutes>) -> MethodRouter {
    get(async move || {
        Json(json!({
            "kept_rules": limits.status().kept_rules,
            "rules": rules(&routes.now()),
        }))
    })
}

fn rules(routes: &Routes) -> Vec<Value> {
    let rules = routes.rules().iter();
    let with_urls = rules.filter_map(|it| Some(rule(it, routes.url(it.path())?)));
    with_urls.collect()
}

fn rule(rule: &Arc<Rule>, url: &str) -> Value {
    json!({
        "path": rule.path(),
        "url": url,
        "cost": rule.cost(),
        "plans": plans(rule),
        "refund_on": rule.refund_on().collect::<Vec<_>>(),
    })
}

/// The quotas of each plan.
fn plans(rule: &Arc<Rule>) -> BTreeMap<String, Vec<Value>> {
    let of_plan = |name: &str| Some((name.to_owned(), quotas(&*rule.of_plan(name)?)));
    rule.plans().filter_map(of_plan).collect()
}

fn quotas(rule: &Rule) -> Vec<Value> {
    let policies = rule.policies().iter();
    let quotas = policies.map(|it| {
        json!({
            "name": it.name(),
            "max": it.quota().max(),
            // Requests at a time have none.
            "window_s": (!it.is_concurrent()).then(|| it.quota().window().as_secs_f64()),
        })
    });
    quotas.collect()
}
