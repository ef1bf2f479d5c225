use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::client_ip_table::ClientIpTable;
use super::mistake::Mistake;
use super::rule_table::RuleTable;
use crate::rule::Rules;

/// A whole configuration file, with the type of every value checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// Whether anything is limited.
    #[serde(default = "enabled_by_default")]
    enabled: bool,
    /// Whether all rules are shadow rules.
    #[serde(default)]
    shadow: bool,
    /// The beginning of the names of all keys in the store.
    prefix: Option<String>,
    /// What the key "client-ip" trusts, in every rule.
    client_ip: Option<Spanned<ClientIpTable>>,
    /// The rules by their paths, in alphabetical order.
    #[serde(default)]
    rules: BTreeMap<Spanned<String>, Spanned<RuleTable>>,
}

/// The default of `enabled`, for the file and for a rule.
fn enabled_by_default() -> bool {
    true
}

impl File {
    /// The rules, or the first mistake in the values.
    pub(super) fn into_rules(self) -> Result<Rules, Mistake> {
        let client_ip = match self.client_ip {
            Some(table) => {
                let span = table.span();
                Some(table.into_inner().into_client_ip(span)?)
            }
            None => None,
        };
        let prefix: Option<Arc<str>> = self.prefix.map(Into::into);
        let mut rules = Rules::default();
        for (path, table) in self.rules {
            let span = table.span();
            let table = table.into_inner();
            let is_enabled = table.enabled.unwrap_or(true);
            let rule = table.into_rule(&path, span, client_ip.as_ref())?;
            let rule = match &prefix {
                Some(prefix) => rule.with_prefix(Arc::clone(prefix)),
                None => rule,
            };
            rules.insert(match self.shadow {
                true => rule.into_shadow(),
                false => rule,
            });
            if !is_enabled {
                rules.disable(path.get_ref());
            }
        }
        Ok(rules.enabled(self.enabled))
    }
}
