//! The file as serde sees it, and the way from there to rules that cannot be wrong.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::key::KeyNames;
use super::number::Number;
use super::text::{Text, TimeUnit, either};
use crate::algorithm::{Algorithm, Counting, SlidingWindow};
use crate::key::{ClientIp, Forwarding};
use crate::quota::{Quota, QuotaError};
use crate::rule::{OnError, Policy, Rule, RuleError, Rules};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(default = "yes")]
    enabled: bool,
    prefix: Option<String>,
    client_ip: Option<Spanned<ClientIpTable>>,
    #[serde(default)]
    rules: BTreeMap<Spanned<String>, Spanned<RuleTable>>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClientIpTable {
    trusted: Option<Vec<Text<IpNet>>>,
    hops: Option<Number>,
    field: Option<Text<HeaderName>>,
    ipv6_prefix: Option<Spanned<Number>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleTable {
    max_count: Option<Spanned<Number>>,
    window: Option<Spanned<Text<Duration>>>,
    window_time: Option<Spanned<Number>>,
    window_time_unit: Option<Spanned<Text<TimeUnit>>>,
    quotas: Option<Spanned<Vec<Spanned<QuotaTable>>>>,
    burst: Option<Spanned<Number>>,
    algorithm: Option<Text<Algorithm>>,
    sub_windows: Option<Spanned<Number>>,
    key: Option<Spanned<KeyNames>>,
    cost: Option<Spanned<Number>>,
    on_error: Option<Text<OnError>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct QuotaTable {
    name: Option<String>,
    max_count: Option<Spanned<Number>>,
    window: Option<Spanned<Text<Duration>>>,
    window_time: Option<Spanned<Number>>,
    window_time_unit: Option<Spanned<Text<TimeUnit>>>,
    burst: Option<Spanned<Number>>,
}

/// A mistake, and the bytes where it is.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

fn wrong<T>(span: Range<usize>, message: impl ToString) -> Result<T, Wrong> {
    let message = message.to_string();
    Err(Wrong { span, message })
}

impl File {
    pub(super) fn into_rules(self) -> Result<Rules, Wrong> {
        let client_ip = match self.client_ip {
            Some(table) => {
                let span = table.span();
                Some(table.into_inner().into_client_ip(span)?)
            }
            None => None,
        };
        let prefix: Option<Arc<str>> = self.prefix.map(Into::into);
        let rules = self.rules.into_iter().map(|(path, table)| {
            let span = table.span();
            let table = table.into_inner();
            let rule = table.into_rule(&path, span, client_ip.as_ref())?;
            Ok(match &prefix {
                Some(prefix) => rule.prefix(Arc::clone(prefix)),
                None => rule,
            })
        });
        let rules = rules.collect::<Result<Rules, Wrong>>()?;
        Ok(rules.enabled(self.enabled))
    }
}

const NO_TRUST: &str = "neither trusted nor hops, expected trusted = [\"10.0.0.0/8\"] (the \
     networks of your proxies) or hops = 1 (their number); trusted = [] if clients connect \
     directly";

impl ClientIpTable {
    fn into_client_ip(self, span: Range<usize>) -> Result<ClientIp, Wrong> {
        let client_ip = match (self.trusted, self.hops) {
            (Some(_), Some(_)) => {
                return wrong(span, "both trusted and hops, expected one of them");
            }
            (None, Some(Number(hops))) => {
                ClientIp::behind_hops(hops.try_into().unwrap_or(usize::MAX))
            }
            (Some(networks), None) => {
                ClientIp::behind(networks.into_iter().map(|Text(network)| network))
            }
            (None, None) => return wrong(span, NO_TRUST),
        };
        let field = match self.field {
            None => Forwarding::XForwardedFor,
            Some(Text(name)) if name == http::header::FORWARDED => Forwarding::Forwarded,
            Some(Text(name)) if name == "x-forwarded-for" => Forwarding::XForwardedFor,
            Some(Text(name)) => Forwarding::Header(name),
        };
        let client_ip = client_ip.field(field);
        let Some(bits) = self.ipv6_prefix else {
            return Ok(client_ip);
        };
        match u8::try_from(bits.get_ref().0) {
            Ok(bits @ 0..=128) => Ok(client_ip.ipv6_prefix(bits)),
            _ => wrong(
                bits.span(),
                "more bits than an address has, expected 0 to 128",
            ),
        }
    }
}

impl RuleTable {
    fn into_rule(
        self,
        path: &Spanned<String>,
        span: Range<usize>,
        client_ip: Option<&ClientIp>,
    ) -> Result<Rule, Wrong> {
        let alone = QuotaTable {
            name: None,
            max_count: self.max_count,
            window: self.window,
            window_time: self.window_time,
            window_time_unit: self.window_time_unit,
            burst: self.burst,
        };
        let algorithm = self
            .algorithm
            .map_or_else(Algorithm::default, |Text(name)| name);
        let quotas = match (self.quotas, alone.is_empty()) {
            (None, false) => vec![(None, alone.into_quota(span.clone(), algorithm)?)],
            (Some(quotas), true) => quotas
                .into_inner()
                .into_iter()
                .map(|table| QuotaTable::into_named_quota(table, algorithm))
                .collect::<Result<_, _>>()?,
            (None, true) => return wrong(span, format!("no quota, expected {EXPECTED}")),
            (Some(quotas), false) => {
                return wrong(
                    quotas.span(),
                    format!("two ways at once, expected {EXPECTED}"),
                );
            }
        };
        let rule = rule(path.get_ref(), quotas).or_else(|error| match error {
            RuleError::EmptyPath => wrong(path.span(), error),
            _ => wrong(span, error),
        })?;
        let rule = rule.algorithm(counting(algorithm, self.sub_windows)?);
        let rule = match self.cost {
            Some(cost) if cost.get_ref().0 == 0 => {
                return wrong(
                    cost.span(),
                    "requests that cost 0 are not limited, expected 1 or more",
                );
            }
            Some(cost) if is_never_allowed(&rule, cost.get_ref().0) => {
                return wrong(
                    cost.span(),
                    "more than max-count (or burst), so that no request would ever be allowed",
                );
            }
            Some(cost) => rule.cost(cost.into_inner().0),
            None => rule,
        };
        let rule = match self.key {
            Some(names) => match names.get_ref().extractor(client_ip) {
                Ok(extractor) => rule.key(extractor),
                Err(message) => return wrong(names.span(), message),
            },
            None => rule,
        };
        Ok(match self.on_error {
            Some(Text(choice)) => rule.on_error(choice),
            None => rule,
        })
    }
}

const EXPECTED: &str = "either max-count and window, or quotas";

/// Whether a quota that allows something would allow nothing at this cost.
fn is_never_allowed(rule: &Rule, cost: u64) -> bool {
    let algorithm = rule.counting().algorithm();
    let too_small = |quota: &Quota| quota.max() > 0 && cost > algorithm.limit(quota);
    rule.quotas().iter().any(too_small)
}

fn counting(algorithm: Algorithm, sub_windows: Option<Spanned<Number>>) -> Result<Counting, Wrong> {
    let Some(number) = sub_windows else {
        return Ok(algorithm.into());
    };
    if !algorithm.has_sub_windows() {
        let that_have = Algorithm::ALL.into_iter().filter(|it| it.has_sub_windows());
        let message = format!("only algorithm = {} has sub-windows", either(that_have));
        return wrong(number.span(), message);
    }
    match u16::try_from(number.get_ref().0) {
        Ok(sub_windows @ 1..=SlidingWindow::MAX_SUB_WINDOWS) => {
            Ok(Counting::from(algorithm).sub_windows(sub_windows))
        }
        _ => wrong(
            number.span(),
            format!(
                "expected 1 to {} sub-windows",
                SlidingWindow::MAX_SUB_WINDOWS
            ),
        ),
    }
}

/// Quotas without a name get the names that they have in code.
fn rule(path: &str, quotas: Vec<(Option<String>, Quota)>) -> Result<Rule, RuleError> {
    let only = quotas.len() == 1;
    let policies = quotas.into_iter().map(|(name, quota)| match name {
        Some(name) => Policy::new(&name, quota),
        None => Policy::unnamed(path, quota, only),
    });
    Rule::with_policies(path, policies)
}

impl QuotaTable {
    fn into_named_quota(
        table: Spanned<Self>,
        algorithm: Algorithm,
    ) -> Result<(Option<String>, Quota), Wrong> {
        let span = table.span();
        let mut table = table.into_inner();
        let name = table.name.take();
        Ok((name, table.into_quota(span, algorithm)?))
    }

    fn is_empty(&self) -> bool {
        self.max_count.is_none()
            && self.window.is_none()
            && self.window_time.is_none()
            && self.window_time_unit.is_none()
            && self.burst.is_none()
    }

    fn into_quota(self, span: Range<usize>, algorithm: Algorithm) -> Result<Quota, Wrong> {
        let Some(max) = self.max_count else {
            return wrong(span, "a window without max-count, expected both");
        };
        let (window, window_span) = match (self.window, self.window_time, self.window_time_unit) {
            (Some(window), None, None) => {
                let span = window.span();
                (window.into_inner().0, span)
            }
            (None, Some(time), Some(unit)) => {
                let Text(TimeUnit(millis)) = unit.into_inner();
                let window = millis.saturating_mul(time.get_ref().0);
                (Duration::from_millis(window), time.span())
            }
            (None, Some(time), None) => {
                return wrong(
                    time.span(),
                    "a time without its unit, expected window-time-unit",
                );
            }
            (None, None, Some(unit)) => {
                return wrong(unit.span(), "a unit without its time, expected window-time");
            }
            (Some(window), _, _) => {
                return wrong(
                    window.span(),
                    "both window and window-time, expected one of them",
                );
            }
            (None, None, None) => {
                return wrong(max.span(), "a max-count without a window, expected both");
            }
        };
        let max_span = max.span();
        let quota = Quota::new(max.into_inner().0, window).or_else(|error| match error {
            QuotaError::MaxTooLarge => wrong(max_span, error),
            _ => wrong(window_span, error),
        })?;
        match self.burst {
            None => Ok(quota),
            Some(burst) if !algorithm.has_burst() => {
                let that_have = Algorithm::ALL.into_iter().filter(|it| it.has_burst());
                let message = format!("only algorithm = {} has a burst", either(that_have));
                wrong(burst.span(), message)
            }
            Some(burst) => {
                let with_burst = quota.with_burst(burst.get_ref().0);
                with_burst.or_else(|error| wrong(burst.span(), error))
            }
        }
    }
}
