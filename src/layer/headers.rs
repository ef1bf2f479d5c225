use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use axum_core::response::Response;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;

use super::options::Options;
use crate::charge::Answers;
use crate::decision::{Decision, QuotaState, Source};
use crate::rule::headers::{Headers, MAX_RETRY_AFTER};
use crate::rule::{Policy, Rule};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static RATELIMITS: [HeaderName; 2] = [RATELIMIT, RATELIMIT_POLICY];
static RATELIMITS_6: [HeaderName; 4] = [LIMIT, REMAINING, RESET, RATELIMIT_POLICY];
static X_RATELIMITS: [HeaderName; 3] = [X_LIMIT, X_REMAINING, X_RESET];

impl Options {
    /// Writes the fields that code says, or else the rule's file, into a response, in place of those
    /// that no inner layer has written, such as an upstream's. A handler's own refusal and a
    /// callback's answer keep theirs. Returns which generations layers have written: a bit for each.
    pub(super) fn show(
        &self,
        rule: &Rule,
        decision: &Decision,
        retry_after: Option<u64>,
        response: &mut Response,
    ) -> u8 {
        let fields = match rule.is_outgoing() && !decision.is_allowed() {
            true => Headers::None,
            false => self.headers.or(rule.answers().headers).unwrap_or_default(),
        };
        let (inner, own) = (Answers::fields(response.extensions()), 1 << fields as u8);
        let (status, headers) = (response.status().as_u16(), response.headers_mut());
        if inner & own == 0 && headers.keys().any(|name| fields.names().contains(name)) {
            let grpc = headers.get("grpc-status").map(HeaderValue::as_bytes);
            let is_refusal = matches!((status, grpc), (429 | 503, _) | (_, Some(b"8" | b"14")));
            if is_refusal || !decision.is_allowed() {
                set_retry_after(retry_after, headers);
                return inner;
            }
            for name in fields.names() {
                headers.remove(name);
            }
        }
        fields.write(rule, decision, retry_after, headers);
        inner | own
    }
}

impl Headers {
    fn names(self) -> &'static [HeaderName] {
        match self {
            Self::Draft11 | Self::Draft7 => &RATELIMITS,
            Self::Draft6 => &RATELIMITS_6,
            Self::Legacy | Self::GitHub => &X_RATELIMITS,
            Self::None => &[],
        }
    }

    /// Writes these fields into a response, unless the decision tells nothing about the quotas, as
    /// that of a fallback, which counts for one process alone, and `Retry-After` of so many
    /// seconds, unless it is set already.
    pub(crate) fn write(
        self,
        rule: &Rule,
        decision: &Decision,
        retry_after: Option<u64>,
        to: &mut HeaderMap,
    ) {
        match self {
            _ if decision.quotas().is_empty() || decision.source() == Source::Fallback => {}
            Self::Draft11 => draft_11(rule, decision, to),
            Self::Draft7 => draft_7(rule, decision, to),
            Self::Draft6 | Self::Legacy | Self::GitHub => three_fields(self, rule, decision, to),
            Self::None => {}
        }
        set_retry_after(retry_after, to);
    }
}

/// The quotas that clients are told of, with their states: those that are not hidden, and that the
/// request was counted under.
pub(crate) fn shown<'a>(
    rule: &'a Rule,
    decision: &'a Decision,
) -> impl Iterator<Item = (&'a Policy, &'a QuotaState)> {
    let quotas = rule.policies().iter().zip(decision.quotas());
    quotas.filter(|(policy, state)| !(policy.is_hidden() || state.is_hidden()))
}

/// A list of the structured field `RateLimit-Policy`: `"getId";q=5;w=10`.
///
/// It is that of the rule, whatever the request: of all quotas that are not hidden, also those of
/// subjects that the request does not have. `w` is in whole seconds; a window of another length is
/// left out rather than misstated. Requests at a time have none.
fn policy_list(policies: &[Policy]) -> HeaderValue {
    let items = policies.iter().filter(|it| !it.is_hidden()).map(|policy| {
        let (name, quota) = (policy.name(), policy.quota());
        let window = policy.window();
        match window.subsec_nanos() {
            _ if policy.is_concurrent() => {
                format!("\"{name}\";q={};qu=\"concurrent-requests\"", quota.max())
            }
            0 => format!("\"{name}\";q={};w={}", quota.max(), window.as_secs()),
            _ => format!("\"{name}\";q={}", quota.max()),
        }
    });
    let list = items.collect::<Vec<_>>().join(",");
    HeaderValue::try_from(list).expect(PRINTABLE)
}

/// One item for each quota: `"getId";r=4;t=10`. Items are appended, so that nested layers add up.
fn draft_11(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let (mut items, mut length) = (SmallVec::<[_; 4]>::new(), 0);
    for (policy, state) in shown(rule, decision) {
        let (name, remaining) = (policy.name(), state.remaining());
        let window = effective_window(rule, policy, state, decision);
        length += "\"\";r=,".len() + name.len() + digits(remaining);
        length += window.map_or(0, |window| ";t=".len() + digits(window));
        items.push((name, remaining, window));
    }
    if items.is_empty() {
        return;
    }
    // Exactly as long as needed: such a vector becomes the field's value without being copied.
    let mut list = Vec::with_capacity(length.saturating_sub(1));
    let mut number = itoa::Buffer::new();
    for &(name, remaining, window) in &items {
        if !list.is_empty() {
            list.push(b',');
        }
        list.push(b'"');
        list.extend_from_slice(name.as_bytes());
        list.extend_from_slice(b"\";r=");
        list.extend_from_slice(number.format(remaining).as_bytes());
        if let Some(window) = window {
            list.extend_from_slice(b";t=");
            list.extend_from_slice(number.format(window).as_bytes());
        }
    }
    let list_policies = || policy_list(rule.policies());
    // Months and days differ in length.
    let policies = match rule.policies().iter().any(|it| it.period().is_some()) {
        true => list_policies(),
        false => rule.texts().field.get_or_init(list_policies).clone(),
    };
    headers.append(RATELIMIT_POLICY, policies);
    let list = Bytes::from(list.into_boxed_slice());
    let list = HeaderValue::from_maybe_shared(list).expect(PRINTABLE);
    headers.append(RATELIMIT, list);
}

fn digits(number: u64) -> usize {
    itoa::Buffer::new().format(number).len()
}

/// The effective window of a quota in seconds. On a denial it ends with the wait at the latest; a
/// quota that did not deny, and whose window is longer, has none. Requests at a time have no window,
/// and a period of which nothing is used has none: only the store knows its end.
fn effective_window(
    rule: &Rule,
    policy: &Policy,
    state: &QuotaState,
    decision: &Decision,
) -> Option<u64> {
    if policy.is_concurrent() {
        return None;
    }
    let window = match policy.period() {
        // The store knows the time, and says nothing of a period that nobody has used.
        Some(_) if state.reset_after().is_zero() => return None,
        Some(_) => state.reset_after(),
        None => {
            let algorithm = rule.algorithm().algorithm();
            Duration::from_micros(algorithm.effective_window(&policy.quota(), state))
        }
    };
    let window = whole_seconds(window);
    let end = decision.retry_after().map_or(window, whole_seconds);
    (state.is_exceeded() || window <= end).then_some(window.min(end))
}

/// The tightest quota: `limit=5, remaining=4, reset=10`.
fn draft_7(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let inner = headers.get(RATELIMIT).map(|field| {
        let field = field.to_str().ok()?;
        let number = |name: &str| {
            let mut items = field.split(", ");
            items.find_map(|item| item.strip_prefix(name)?.parse().ok())
        };
        Some((number("remaining=")?, number("reset=")?))
    });
    if let Some((limit, remaining, reset)) = tightest(rule, decision, inner) {
        let limit = format!("limit={limit}, remaining={remaining}, reset={reset}");
        headers.insert(RATELIMIT_POLICY, draft_7_policies(rule));
        headers.insert(RATELIMIT, value(limit.as_bytes()));
    }
}

fn draft_7_policies(rule: &Rule) -> HeaderValue {
    let policies = rule.policies().iter();
    let policies = policies.filter(|it| !(it.is_hidden() || it.is_concurrent()));
    let policies: Vec<_> = policies.map(draft_7_policy).collect();
    value(policies.join(", ").as_bytes())
}

fn draft_7_policy(policy: &Policy) -> String {
    let (max, window) = (policy.quota().max(), policy.window());
    match window.subsec_nanos() {
        0 => format!("{max};w={}", window.as_secs()),
        _ => max.to_string(),
    }
}

/// By the clock of this host, rounded up.
fn seconds_since_1970() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, whole_seconds)
}

/// The tightest quota in three fields, one number each. Seconds are counted from now, or from 1970.
fn three_fields(form: Headers, rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let (of_limit, of_remaining, of_reset) = match form {
        Headers::Draft6 => (LIMIT, REMAINING, RESET),
        _ => (X_LIMIT, X_REMAINING, X_RESET),
    };
    let is_date = form == Headers::GitHub;
    let from = if is_date { seconds_since_1970() } else { 0 };
    let inner = headers.contains_key(&of_remaining).then(|| {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let reset = number(&of_reset)?.saturating_sub(from);
        Some((number(&of_remaining)?, reset))
    });
    if let Some((limit, remaining, reset)) = tightest(rule, decision, inner) {
        if form == Headers::Draft6 {
            headers.insert(RATELIMIT_POLICY, draft_7_policies(rule));
        }
        headers.insert(of_limit, number(limit));
        headers.insert(of_remaining, number(remaining));
        headers.insert(of_reset, number(from.saturating_add(reset)));
    }
}

/// The max of the quota with the fewest units left, these units, and the seconds until it is
/// replenished; of several quotas, the one that is replenished last. `None` if the limit of an
/// inner layer is as tight, or if its fields cannot be read, which is `Some(None)`, or if no quota
/// has a window.
fn tightest(
    rule: &Rule,
    decision: &Decision,
    inner: Option<Option<(u64, u64)>>,
) -> Option<(u64, u64, u64)> {
    let order = |state: &QuotaState| (state.remaining(), Reverse(state.reset_after()));
    let of_windows = shown(rule, decision).filter(|(policy, _)| !policy.is_concurrent());
    let (policy, state) = of_windows.min_by_key(|(_, state)| order(state))?;
    let (left, reset) = (state.remaining(), reset(state, decision));
    let is_tighter = inner.is_none_or(|inner| {
        inner.is_some_and(|(inner_left, inner_reset)| {
            (left, Reverse(reset)) < (inner_left, Reverse(inner_reset))
        })
    });
    is_tighter.then(|| (policy.quota().max(), left, reset))
}

/// When to look again, in seconds: never later than the wait of a denial, and 0 for a quota that is
/// whole.
pub(crate) fn reset(state: &QuotaState, decision: &Decision) -> u64 {
    let reset_after = state.reset_after();
    let bound = decision.retry_after().unwrap_or(reset_after);
    if reset_after.is_zero() {
        0
    } else {
        whole_seconds(bound.min(reset_after))
    }
}

/// Writes `Retry-After` of so many seconds, unless it is set already.
pub(super) fn set_retry_after(seconds: Option<u64>, to: &mut HeaderMap) {
    if let Some(seconds) = seconds {
        to.entry(RETRY_AFTER)
            .or_insert_with(|| number(seconds.min(MAX_RETRY_AFTER)));
    }
}

/// When a refused client is told to come again, in whole seconds: a uniform part of the rule's
/// jitter comes on top, so that the clients that one window or outage has refused do not come again
/// in one second.
pub(super) fn shown_retry_after(rule: &Rule, wait: Duration) -> u64 {
    let seconds = whole_seconds(wait);
    let max_added = u128::from(seconds) * u128::from(rule.retry_after_jitter());
    let max_added = u64::try_from(max_added.div_ceil(100)).unwrap_or(u64::MAX);
    let added = if max_added == 0 {
        0
    } else {
        fastrand::u64(0..=max_added)
    };
    seconds.saturating_add(added)
}

/// Rounded up, never 0.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    (duration.as_secs() + begun).max(1)
}

/// Small numbers need no allocation. For others, the `From` of field values would leave room behind
/// the digits, and a second allocation for it.
pub(super) fn number(number: u64) -> HeaderValue {
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
