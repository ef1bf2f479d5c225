//! Rules that are tables inside of other rules: a path with dots was written without quotes.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::locate::quoted;
use super::model::Wrong;

/// An error for the first table in a rule's table. TOML reads `[rules.api.v1]` as a table `v1` in
/// the rule `api`, and no rule has tables in it.
pub(super) fn check(file: &DeTable<'_>) -> Result<(), Wrong> {
    let rules = file
        .get("rules")
        .and_then(|rules| rules.get_ref().as_table());
    for (path, rule) in rules.into_iter().flatten() {
        let Some((span, names)) = rule.get_ref().as_table().and_then(inner) else {
            continue;
        };
        if names == ["quotas"] {
            let message = format!(
                "a table, expected a list: [[rules.{}.quotas]]",
                quoted(path.get_ref())
            );
            return Err(Wrong { span, message });
        }
        let path = quoted(&format!("{}.{}", path.get_ref(), names.join(".")));
        let message = format!(
            "a rule inside of a rule, expected [rules.{path}]: a path with dots has quotes"
        );
        return Err(Wrong { span, message });
    }
    Ok(())
}

/// Where a table in this one is, and the names that lead to it and to the table that has values.
fn inner<'a>(rule: &'a DeTable<'_>) -> Option<(Range<usize>, Vec<&'a str>)> {
    let (name, table) = rule
        .iter()
        .find_map(|(name, value)| match value.get_ref() {
            DeValue::Table(table) => Some((name, table)),
            _ => None,
        })?;
    let mut names = vec![&**name.get_ref()];
    if table.values().all(|value| value.get_ref().is_table()) {
        names.extend(inner(table).into_iter().flat_map(|(_, names)| names));
    }
    Some((name.span(), names))
}
