use super::key_names::key_extractor;
use super::quota_table::{QUOTAS_KEYS, duration, rule_with_quotas};
use super::table::{Mistake, Table, Value};
use crate::algorithm::Algorithm;
use crate::key::ip::client_ip::ClientIp;
use crate::quota::Quota;
use crate::rule::{OnError, Rule};

/// The keys of a rule's table beside those of its quotas.
const KEYS: [&str; 6] = ["enabled", "key", "cost", "on-error", "lease", "shadow"];

/// The rule of the table `[rules.<path>]`.
pub(super) fn rule(
    path: &str,
    table: &Table<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Rule, Mistake> {
    // TOML reads `[rules.api.v1]` as a table `v1` in the rule `api`.
    let may_be_table = |name: &str| name == "shadow" || name == "quotas";
    let mut values = table.iter();
    if let Some((_, inner)) = values.find(|(name, it)| it.is_table() && !may_be_table(name)) {
        let message = "a table inside of a rule, expected quotes around a path with dots, as in \
             [rules.\"api.v1\"]";
        return Err(inner.mistake(message));
    }
    table.only(&[&QUOTAS_KEYS[..], &KEYS].concat())?;
    let mut rule = rule_with_quotas(path, table, Algorithm::default())?;
    if let Some(cost) = table.get("cost") {
        let units = checked_cost(&rule, &cost)?;
        rule = rule.with_cost(units);
    }
    if let Some(names) = table.get("key") {
        rule = rule.with_key(key_extractor(&names, client_ip)?);
    }
    if let Some(choice) = table.read("on-error", on_error)? {
        rule = rule.with_on_error(choice);
    }
    if let Some(lease) = table.get("lease") {
        let leased = rule.with_lease(duration(&lease)?);
        rule = leased.map_err(|error| lease.mistake(error))?;
    }
    match table.get("shadow") {
        Some(shadow) => with_shadow(rule, shadow),
        None => Ok(rule),
    }
}

fn on_error(value: &Value<'_>) -> Result<OnError, Mistake> {
    let expected = "\"respond\", \"proceed\" or \"fallback\"";
    value.text(expected, |name| match name {
        "respond" => Some(OnError::Respond),
        "proceed" => Some(OnError::Proceed),
        "fallback" => Some(OnError::Fallback),
        _ => None,
    })
}

/// A cost of 0, or one that no quota can ever admit, is a mistake.
fn checked_cost(rule: &Rule, cost: &Value<'_>) -> Result<u64, Mistake> {
    let units = cost.number()?;
    let algorithm = rule.algorithm().algorithm();
    let too_small = |quota: &Quota| quota.max() > 0 && units > algorithm.limit(quota);
    if units == 0 {
        return Err(cost.mistake("requests that cost 0 are not limited, expected 1 or more"));
    }
    if rule.quotas().iter().any(too_small) {
        let message = "more than max-count (or burst), so that no request would ever be allowed";
        return Err(cost.mistake(message));
    }
    Ok(units)
}

/// The rule as a shadow rule, or with a candidate that is tried beside it.
fn with_shadow(rule: Rule, shadow: Value<'_>) -> Result<Rule, Mistake> {
    if let Ok(is_shadow) = shadow.boolean() {
        return Ok(match is_shadow {
            true => rule.into_shadow(),
            false => rule,
        });
    }
    let table = shadow.table("true, false, or a table with quotas")?;
    table.only(&QUOTAS_KEYS)?;
    let candidate = rule_with_quotas(rule.path(), &table, rule.algorithm().algorithm())?;
    Ok(rule.with_shadow(candidate))
}
