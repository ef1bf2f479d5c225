//! What the page needs before its first request.

use serde_json::{Value, json};
use tidegate::Rules;
use tidegate::rule::Policy;

use crate::routes::Route;

/// Who decides, whether limiting is on, and each rule with the URL at which it can be tried.
pub(crate) fn document(store: &str, rules: &Rules, routes: &[Route]) -> Value {
    let rules_with_urls = rules.iter().filter_map(|rule| {
        let route = routes.iter().find(|route| route.path == rule.path())?;
        let policies: Vec<_> = rule.policies().iter().map(policy).collect();
        Some(json!({
            "path": rule.path(),
            "url": route.url,
            "cost": rule.cost(),
            "policies": policies,
        }))
    });
    json!({
        "store": store,
        "enabled": rules.is_enabled(),
        "rules": rules_with_urls.collect::<Vec<_>>(),
    })
}

fn policy(policy: &Policy) -> Value {
    let quota = policy.quota();
    // Ten years of milliseconds fit.
    let window = u64::try_from(quota.window().as_millis()).unwrap_or(u64::MAX);
    json!({ "name": policy.name(), "max": quota.max(), "window_ms": window })
}
