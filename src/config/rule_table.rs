use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::key_names::KeyNames;
use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::quota_settings::QuotaSettings;
use super::quota_table::QuotaTable;
use super::shadow::Shadow;
use super::text::Text;
use super::time_unit::TimeUnit;
use crate::algorithm::Algorithm;
use crate::key::ip::client_ip::ClientIp;
use crate::quota::Quota;
use crate::rule::{OnError, Rule, RuleError};

/// The table of a rule, `[rules.<path>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RuleTable {
    /// Whether the path is limited.
    pub(super) enabled: Option<bool>,
    /// Units in the window.
    max_count: Option<Spanned<Number>>,
    /// The window as a duration: `"10s"`.
    window: Option<Spanned<Text<Duration>>>,
    /// The window as a number of `window_time_unit`.
    window_time: Option<Spanned<Number>>,
    /// The unit of `window_time`: `"MINUTES"`.
    window_time_unit: Option<Spanned<Text<TimeUnit>>>,
    /// Several quotas, in place of `max_count` and a window of the rule's own.
    quotas: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    /// Units at once, under `algorithm = "gcra"`.
    burst: Option<Spanned<Number>>,
    /// How requests are counted.
    algorithm: Option<Text<Algorithm>>,
    /// Parts of the window that are counted apart, under `algorithm = "sliding-window"`.
    sub_windows: Option<Spanned<Number>>,
    /// The extractor of the key, or a list of extractors.
    key: Option<Spanned<KeyNames>>,
    /// Units of one request.
    cost: Option<Spanned<Number>>,
    /// What happens to a request for which the store could not decide.
    on_error: Option<Text<OnError>>,
    /// How long units may be held ahead.
    lease: Option<Spanned<Text<Duration>>>,
    /// Whether the rule is a shadow rule, or a candidate that is tried beside it.
    shadow: Option<Spanned<Shadow>>,
}

impl RuleTable {
    /// The rule of a path. `span` is that of the whole table.
    pub(super) fn into_rule(
        self,
        path: &Spanned<String>,
        span: Range<usize>,
        client_ip: Option<&ClientIp>,
    ) -> Result<Rule, Mistake> {
        let settings = QuotaSettings {
            own: QuotaTable {
                name: None,
                max_count: self.max_count,
                window: self.window,
                window_time: self.window_time,
                window_time_unit: self.window_time_unit,
                burst: self.burst,
            },
            list: self.quotas,
            algorithm: self
                .algorithm
                .map_or_else(Algorithm::default, |Text(name)| name),
            sub_windows: self.sub_windows,
        };
        let rule = settings.into_rule(path.get_ref(), &span)?;
        let rule = rule.or_else(|error| match error {
            RuleError::EmptyPath => mistake(path.span(), error),
            _ => mistake(span, error),
        })?;
        let rule = with_cost(rule, self.cost)?;
        let rule = with_key(rule, self.key, client_ip)?;
        let rule = match self.on_error {
            Some(Text(choice)) => rule.with_on_error(choice),
            None => rule,
        };
        let rule = match self.lease {
            Some(lease) => {
                let (span, Text(lease)) = (lease.span(), lease.into_inner());
                rule.with_lease(lease)
                    .or_else(|error| mistake(span, error))?
            }
            None => rule,
        };
        match self.shadow {
            Some(shadow) => {
                let span = shadow.span();
                shadow.into_inner().add_to(rule, span)
            }
            None => Ok(rule),
        }
    }
}

/// The rule with its cost. A cost of 0, or one that no quota can ever admit, is a mistake.
fn with_cost(rule: Rule, cost: Option<Spanned<Number>>) -> Result<Rule, Mistake> {
    let Some(cost) = cost else {
        return Ok(rule);
    };
    match cost.get_ref().0 {
        0 => mistake(
            cost.span(),
            "requests that cost 0 are not limited, expected 1 or more",
        ),
        units if is_never_allowed(&rule, units) => mistake(
            cost.span(),
            "more than max-count (or burst), so that no request would ever be allowed",
        ),
        units => Ok(rule.with_cost(units)),
    }
}

/// The rule with its key.
fn with_key(
    rule: Rule,
    key: Option<Spanned<KeyNames>>,
    client_ip: Option<&ClientIp>,
) -> Result<Rule, Mistake> {
    let Some(names) = key else {
        return Ok(rule);
    };
    match names.get_ref().extractor(client_ip) {
        Ok(extractor) => Ok(rule.with_key(extractor)),
        Err(message) => mistake(names.span(), message),
    }
}

/// Whether a quota that allows requests would allow none of this cost.
fn is_never_allowed(rule: &Rule, cost: u64) -> bool {
    let algorithm = rule.algorithm().algorithm();
    let too_small = |quota: &Quota| quota.max() > 0 && cost > algorithm.limit(quota);
    rule.quotas().iter().any(too_small)
}
