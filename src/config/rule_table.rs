use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::key_names::KeyNames;
use super::mistake::{Mistake, mistake};
use super::number::Number;
use super::quota_table::QuotaTable;
use super::shadow::Shadow;
use super::text::{Text, either};
use super::time_unit::TimeUnit;
use crate::algorithm::{Algorithm, Counting, SlidingWindow};
use crate::key::ip::client_ip::ClientIp;
use crate::quota::Quota;
use crate::rule::{OnError, Policy, Rule, RuleError};

/// What messages about missing or contradictory quotas expect.
const EXPECTED: &str = "either max-count and window, or quotas";

/// The table of a rule, `[rules.<path>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RuleTable {
    /// Whether the path is limited.
    #[serde(default = "super::file::enabled_by_default")]
    pub(super) enabled: bool,
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
        let algorithm = self
            .algorithm
            .map_or_else(Algorithm::default, |Text(name)| name);
        let own = QuotaTable {
            name: None,
            max_count: self.max_count,
            window: self.window,
            window_time: self.window_time,
            window_time_unit: self.window_time_unit,
            burst: self.burst,
        };
        let quotas = quotas(own, self.quotas, &span, algorithm)?;
        let rule = rule(path.get_ref(), quotas).or_else(|error| match error {
            RuleError::EmptyPath => mistake(path.span(), error),
            _ => mistake(span, error),
        })?;
        let rule = rule.with_algorithm(counting(algorithm, self.sub_windows)?);
        let rule = with_cost(rule, self.cost)?;
        let rule = with_key(rule, self.key, client_ip)?;
        let rule = match self.on_error {
            Some(Text(choice)) => rule.with_on_error(choice),
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

/// A quota, and its name if the file gives it one.
type NamedQuota = (Option<String>, Quota);

/// The quotas of a rule or candidate: those of the list, or the one that the rule's table describes itself.
pub(super) fn quotas(
    own: QuotaTable,
    list: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    span: &Range<usize>,
    algorithm: Algorithm,
) -> Result<Vec<NamedQuota>, Mistake> {
    match (list, own.is_empty()) {
        (None, false) => Ok(vec![(None, own.into_quota(span.clone(), algorithm)?)]),
        (Some(list), true) => {
            let tables = list.into_inner().into_iter();
            tables
                .map(|table| QuotaTable::into_named_quota(table, algorithm))
                .collect()
        }
        (None, true) => mistake(span.clone(), format!("no quota, expected {EXPECTED}")),
        (Some(list), false) => {
            let message = format!("two ways at once, expected {EXPECTED}");
            mistake(list.span(), message)
        }
    }
}

/// Quotas without a name get the names that they have in code.
pub(super) fn rule(path: &str, quotas: Vec<NamedQuota>) -> Result<Rule, RuleError> {
    let only = quotas.len() == 1;
    let policies = quotas.into_iter().map(|(name, quota)| match name {
        Some(name) => Policy::new(&name, quota),
        None => Policy::unnamed(path, quota, only),
    });
    Rule::with_policies(path, policies)
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

/// The algorithm with its sub-windows.
pub(super) fn counting(
    algorithm: Algorithm,
    sub_windows: Option<Spanned<Number>>,
) -> Result<Counting, Mistake> {
    let Some(number) = sub_windows else {
        return Ok(algorithm.into());
    };
    if !algorithm.has_sub_windows() {
        let with_them = Algorithm::ALL.into_iter().filter(|it| it.has_sub_windows());
        let message = format!("only algorithm = {} has sub-windows", either(with_them));
        return mistake(number.span(), message);
    }
    match u16::try_from(number.get_ref().0) {
        Ok(sub_windows @ 1..=SlidingWindow::MAX_SUB_WINDOWS) => {
            Ok(Counting::from(algorithm).sub_windows(sub_windows))
        }
        _ => mistake(
            number.span(),
            format!(
                "expected 1 to {} sub-windows",
                SlidingWindow::MAX_SUB_WINDOWS
            ),
        ),
    }
}
