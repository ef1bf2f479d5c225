//! Refuses a rule inside of another rule: a path with dots that was written without quotes.
//!
//! Without this check the error would be about an unknown field: TOML reads `[rules.api.v1]` as the
//! field `v1` of the rule `api`.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::location::quoted;
use super::mistake::{Mistake, mistake};

/// Fails with the first table inside of a rule's table. TOML reads `[rules.api.v1]` as a table `v1`
/// in the rule `api`, and no key of a rule but `shadow` has a table as its value.
pub(super) fn refuse(file: &DeTable<'_>) -> Result<(), Mistake> {
    let rules = file
        .get("rules")
        .and_then(|rules| rules.get_ref().as_table());
    for (path, rule) in rules.into_iter().flatten() {
        let Some((span, names)) = rule.get_ref().as_table().and_then(inner_table) else {
            continue;
        };
        if names == ["quotas"] {
            let message = format!(
                "a table, expected a list: [[rules.{}.quotas]]",
                quoted(path.get_ref())
            );
            return mistake(span, message);
        }
        let path = quoted(&format!("{}.{}", path.get_ref(), names.join(".")));
        let message = format!(
            "a rule inside of a rule, expected [rules.{path}]: a path with dots has quotes"
        );
        return mistake(span, message);
    }
    Ok(())
}

/// The place of the name of the first table in this one, and the names that lead from here to the
/// innermost table.
fn inner_table<'a>(rule: &'a DeTable<'_>) -> Option<(Range<usize>, Vec<&'a str>)> {
    let (name, table) = rule
        .iter()
        .find_map(|(name, value)| match value.get_ref() {
            DeValue::Table(table) if name.get_ref() != "shadow" => Some((name, table)),
            _ => None,
        })?;
    let mut names = vec![&**name.get_ref()];
    if table.values().all(|value| value.get_ref().is_table()) {
        names.extend(inner_table(table).into_iter().flat_map(|(_, names)| names));
    }
    Some((name.span(), names))
}
