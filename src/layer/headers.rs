use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::action::WriteFields;
use crate::decision::{Decision, QuotaState};
use crate::rule::{Policy, Rule};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Which header fields tell a client about its limits.
///
/// All have `Retry-After` on denials: seconds, rounded up, never 0; none for a request that costs
/// more than a quota's max. The other fields are left out where the store's decision tells nothing
/// about the quotas.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Headers, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("api", Duration::from_secs(60), 100)
///     // X-RateLimit-Limit, -Remaining and -Reset, as many older clients read them.
///     .headers(Headers::Legacy);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy` of
    /// [draft-ietf-httpapi-ratelimit-headers-11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/),
    /// with an item for each quota. The default.
    ///
    /// `t` is when the quota is replenished, on a denial not later than `Retry-After`. Layers
    /// within one another each add their items. A window that is not a whole number of seconds is
    /// left out of the policy.
    #[default]
    Draft11,
    /// The same fields as draft 7 had them, for the tightest quota of all layers: `limit=100,
    /// remaining=50, reset=5`. That is the one with the fewest units left; of several, the one that
    /// is replenished last.
    Draft7,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` (in seconds from now), for the tightest
    /// quota of all layers.
    Legacy,
    /// Only `Retry-After`.
    None,
}

impl Headers {
    pub(super) fn writer(self) -> WriteFields {
        match self {
            Self::Draft11 => writer(draft_11),
            Self::Draft7 => writer(draft_7),
            Self::Legacy => writer(legacy),
            Self::None => writer(|_, _, _| ()),
        }
    }
}

/// Writes these fields, unless the store's decision tells nothing about the quotas, and
/// `Retry-After`, unless an inner layer has set it.
fn writer(
    fields: impl Fn(&Rule, &Decision, &mut HeaderMap) + Send + Sync + 'static,
) -> WriteFields {
    Arc::new(move |rule, decision, to| {
        if !decision.quotas().is_empty() {
            fields(rule, decision, to);
        }
        if let Some(retry_after) = decision.retry_after() {
            let seconds = number(whole_seconds(retry_after));
            to.entry(RETRY_AFTER).or_insert(seconds);
        }
    })
}

/// A list of the structured field `RateLimit-Policy`: `"getId";q=5;w=10`.
///
/// `w` is in whole seconds; a window of another length is left out rather than misstated.
fn policy_list(policies: &[Policy]) -> HeaderValue {
    let items = policies.iter().map(|policy| {
        let (name, quota) = (policy.name(), policy.quota());
        let window = quota.window();
        match window.subsec_nanos() {
            0 => format!("\"{name}\";q={};w={}", quota.max(), window.as_secs()),
            _ => format!("\"{name}\";q={}", quota.max()),
        }
    });
    let list = items.collect::<Vec<_>>().join(",");
    HeaderValue::try_from(list).expect(PRINTABLE)
}

/// One item for each quota: `"getId";r=4;t=10`. Items are appended, so that nested layers add up.
fn draft_11(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let quotas = || {
        let quotas = rule.policies().iter().zip(decision.quotas());
        quotas.map(|(policy, state)| (policy.name(), state.remaining(), reset(state, decision)))
    };
    let length = |(name, remaining, reset): (&str, _, _)| {
        name.len() + "\"\";r=;t=,".len() + digits(remaining) + digits(reset)
    };
    // Exactly as long as needed: such a vector becomes a field value without being copied.
    let length = quotas().map(length).sum::<usize>();
    let mut items = Vec::with_capacity(length.saturating_sub(1));
    let mut number = itoa::Buffer::new();
    for (name, remaining, reset) in quotas() {
        if !items.is_empty() {
            items.push(b',');
        }
        items.push(b'"');
        items.extend_from_slice(name.as_bytes());
        items.extend_from_slice(b"\";r=");
        items.extend_from_slice(number.format(remaining).as_bytes());
        items.extend_from_slice(b";t=");
        items.extend_from_slice(number.format(reset).as_bytes());
    }
    let policies = rule
        .texts()
        .field
        .get_or_init(|| policy_list(rule.policies()));
    headers.append(RATELIMIT_POLICY, policies.clone());
    let items = HeaderValue::from_maybe_shared(Bytes::from(items)).expect(PRINTABLE);
    headers.append(RATELIMIT, items);
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The tightest quota: `limit=5, remaining=4, reset=10`.
fn draft_7(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let Some((tightest, state)) = tightest(rule, decision) else {
        return;
    };
    let (limit, remaining) = (tightest.quota().max(), state.remaining());
    let reset = reset(state, decision);
    let inner = headers.get(RATELIMIT).map(|field| {
        let numbers = field
            .to_str()
            .ok()?
            .split(", ")
            .map(|item| item.split_once('='));
        let number = |name| {
            numbers
                .clone()
                .flatten()
                .find(|item| item.0 == name)?
                .1
                .parse()
                .ok()
        };
        Some((number("remaining")?, number("reset")?))
    });
    if !is_tighter((remaining, reset), inner) {
        return;
    }
    let policies: Vec<_> = rule.policies().iter().map(draft_7_policy).collect();
    let limit = format!("limit={limit}, remaining={remaining}, reset={reset}");
    headers.insert(RATELIMIT_POLICY, value(policies.join(", ").as_bytes()));
    headers.insert(RATELIMIT, value(limit.as_bytes()));
}

/// Whether the units left and the seconds until the quota is replenished are a tighter limit than
/// those of an inner layer, `Some(None)` if its fields cannot be read.
fn is_tighter((left, reset): (u64, u64), inner: Option<Option<(u64, u64)>>) -> bool {
    match inner {
        None => true,
        Some(None) => false,
        Some(Some((inner_left, inner_reset))) => {
            (left, Reverse(reset)) < (inner_left, Reverse(inner_reset))
        }
    }
}

fn draft_7_policy(policy: &Policy) -> String {
    let (max, window) = (policy.quota().max(), policy.quota().window());
    match window.subsec_nanos() {
        0 => format!("{max};w={}", window.as_secs()),
        _ => max.to_string(),
    }
}

/// The tightest quota in three fields, one number each.
fn legacy(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let Some((tightest, state)) = tightest(rule, decision) else {
        return;
    };
    let (remaining, reset) = (state.remaining(), reset(state, decision));
    let inner = headers.contains_key(X_REMAINING).then(|| {
        let number = |name| headers.get(name)?.to_str().ok()?.parse().ok();
        Some((number(X_REMAINING)?, number(X_RESET)?))
    });
    if !is_tighter((remaining, reset), inner) {
        return;
    }
    for (name, value) in [
        (X_LIMIT, tightest.quota().max()),
        (X_REMAINING, remaining),
        (X_RESET, reset),
    ] {
        headers.insert(name, number(value));
    }
}

/// The quota with the fewest units left; of several, the one that is replenished last.
fn tightest<'a>(rule: &'a Rule, decision: &'a Decision) -> Option<(&'a Policy, &'a QuotaState)> {
    let quotas = rule.policies().iter().zip(decision.quotas());
    quotas.min_by_key(|(_, state)| (state.remaining(), Reverse(state.reset_after())))
}

/// When to look again, in seconds: never later than `Retry-After`, and 0 for a quota that is whole.
fn reset(state: &QuotaState, decision: &Decision) -> u64 {
    let reset_after = state.reset_after();
    let bound = decision.retry_after().unwrap_or(reset_after);
    match reset_after.is_zero() {
        true => 0,
        false => whole_seconds(bound.min(reset_after)),
    }
}

/// Rounded up, never 0.
fn whole_seconds(duration: Duration) -> u64 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    (duration.as_secs() + begun).max(1)
}

/// Small numbers need no allocation. For others, the `From` of field values would leave room behind
/// the digits, and a second allocation for it.
fn number(number: u64) -> HeaderValue {
    const DIGITS: &str = "0123456789";
    const PAIRS: &str = "10111213141516171819202122232425262728293031323334353637383940414243444546\
        474849505152535455565758596061626364656667686970717273747576777879808182838485868788899091\
        9293949596979899";
    match usize::try_from(number) {
        Ok(one @ ..10) => HeaderValue::from_static(&DIGITS[one..=one]),
        Ok(two @ ..100) => HeaderValue::from_static(&PAIRS[2 * (two - 10)..][..2]),
        _ => value(itoa::Buffer::new().format(number).as_bytes()),
    }
}

fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).expect(PRINTABLE)
}

const PRINTABLE: &str = "names of policies and numbers are printable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        for expected in (0..1_000).chain([u64::MAX]) {
            assert_eq!(number(expected), expected.to_string());
        }
    }
}
