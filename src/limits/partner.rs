//! What the answer of a partner says about later calls.

use std::time::Duration;

use http::header::{DATE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// How long a partner is left alone that refuses a call and does not say for how long.
const UNTOLD: Duration = Duration::from_secs(1);

/// For how long the partner wants no calls; `None` if it does not say so. An answer that the
/// partner is unavailable says so only where that is wanted.
pub(super) fn wanted_pause(
    status: StatusCode,
    headers: &HeaderMap,
    also_unavailable: bool,
) -> Option<Duration> {
    let grpc = headers.get(GRPC_STATUS).map(|status| status.as_bytes());
    let is_refused = match grpc {
        None => {
            status == StatusCode::TOO_MANY_REQUESTS
                || also_unavailable && status == StatusCode::SERVICE_UNAVAILABLE
        }
        Some(status) => status == b"8" || also_unavailable && status == b"14",
    };
    let told = || {
        let pushback = number(headers, GRPC_PUSHBACK).map(Duration::from_millis);
        pushback.max(retry_after(headers))
    };
    let untold = grpc.is_none().then_some(UNTOLD);
    let refused = is_refused.then(|| told().or(untold)).flatten();
    refused.max(used_up(headers)).filter(|it| !it.is_zero())
}

/// Seconds, or the time from the response's own date to another one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = || number(headers, RETRY_AFTER).map(Duration::from_secs);
    let date = |name| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    seconds().or_else(|| {
        let pause = date(RETRY_AFTER)?.duration_since(date(DATE)?);
        Some(pause.unwrap_or_default())
    })
}

/// The longest time after which a quota is whole again of which nothing remains: the field
/// `RateLimit: "name";r=0;t=60`.
fn used_up(headers: &HeaderMap) -> Option<Duration> {
    let fields = headers.get_all(RATE_LIMIT).into_iter();
    let fields = fields.filter_map(|field| without_strings(field.to_str().ok()?));
    let times = fields.filter_map(|field| {
        let times = field.split(',').filter_map(|item| {
            let parameter = |name: &str| {
                let mut parameters = item.split(';').filter_map(|it| it.trim().split_once('='));
                parameters.find_map(|(known, value)| (known == name).then_some(value))
            };
            (parameter("r")? == "0").then(|| parameter("t")?.parse().ok())?
        });
        times.max()
    });
    times.max().map(Duration::from_secs)
}

/// A structured field ([RFC 9651](https://www.rfc-editor.org/rfc/rfc9651)) without its strings, such
/// as the names of quotas, which may hold any character. `None` if a string does not end.
fn without_strings(field: &str) -> Option<String> {
    let (mut rest, mut characters) = (String::new(), field.chars());
    while let Some(character) = characters.next() {
        if character != '"' {
            rest.push(character);
            continue;
        }
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => drop(characters.next()?),
                _ => {}
            }
        }
    }
    Some(rest)
}

/// A number without a sign. One that is too large is the largest.
fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, fields: &[(&'static str, &str)], expected: Option<u64>) {
        let headers = fields.iter().map(|(name, value)| {
            let value = value.parse().expect("a value");
            (HeaderName::from_static(name), value)
        });
        let headers: HeaderMap = headers.collect();
        let status = StatusCode::from_u16(status).expect("a status");
        let pauses = [false, true].map(|also| wanted_pause(status, &headers, also));
        let millis = pauses.map(|pause| pause.map(|it| it.as_millis() as u64));
        let is_unavailable = status == 503 || fields.contains(&("grpc-status", "14"));
        let expected = [expected.filter(|_| !is_unavailable), expected];
        assert_eq!(millis, expected, "{status} {fields:?}");
    }

    #[test]
    fn what_a_partner_says() {
        let now = ("date", "Sun, 22 Nov 2026 08:00:00 GMT");
        check(200, &[], None);
        check(429, &[], Some(1_000));
        check(503, &[], Some(1_000));
        check(500, &[("retry-after", "9")], None);
        check(429, &[("retry-after", "9")], Some(9_000));
        check(503, &[("retry-after", "9")], Some(9_000));
        check(429, &[("retry-after", "0")], None);
        check(429, &[("retry-after", "-1")], Some(1_000));
        check(429, &[("retry-after", "1.5")], Some(1_000));
        let date = |text| ("retry-after", text);
        check(
            429,
            &[now, date("Sun, 22 Nov 2026 08:01:30 GMT")],
            Some(90_000),
        );
        check(429, &[now, date("Sun, 22 Nov 2026 07:59:00 GMT")], None);
        check(429, &[date("Sun, 22 Nov 2026 08:01:30 GMT")], Some(1_000));
        check(429, &[now, date("tomorrow")], Some(1_000));
        check(200, &[("ratelimit", "\"a\";r=0;t=7")], Some(7_000));
        check(
            200,
            &[("ratelimit", "\"a\";r=1;t=7, \"b\"; r=0; t=5")],
            Some(5_000),
        );
        check(200, &[("ratelimit", "\"a\";r=0")], None);
        check(200, &[("ratelimit", "\"a\";r=00;t=x")], None);
        check(
            429,
            &[("retry-after", "2"), ("ratelimit", "a;r=0;t=7")],
            Some(7_000),
        );
        check(200, &[("grpc-status", "8")], None);
        check(
            200,
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")],
            Some(250),
        );
        check(
            200,
            &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")],
            None,
        );
        check(
            200,
            &[("grpc-status", "8"), ("retry-after", "3")],
            Some(3_000),
        );
        check(
            200,
            &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "250")],
            Some(250),
        );
        check(
            200,
            &[("grpc-status", "0"), ("grpc-retry-pushback-ms", "250")],
            None,
        );
    }

    /// Names are strings.
    #[test]
    fn what_names_may_hold() {
        let name = "\"a;r=5, \\\";t=1\";r=0;t=60";
        check(200, &[("ratelimit", name)], Some(60_000));
        check(200, &[("ratelimit", "\"a;r=0;t=60")], None);
        check(200, &[("ratelimit", "\"a\\")], None);
    }

    /// Nothing that a partner sends is too much.
    #[test]
    fn what_a_partner_should_not_say() {
        check(
            429,
            &[("retry-after", "1000000000000")],
            Some(1_000_000_000_000_000),
        );
        let headers = |value: String| {
            let value = value.parse().expect("a value");
            HeaderMap::from_iter([(RETRY_AFTER, value)])
        };
        let status = StatusCode::TOO_MANY_REQUESTS;
        let longest = wanted_pause(status, &headers("9".repeat(65_536)), false);
        assert_eq!(longest, Some(Duration::from_secs(u64::MAX)));
        assert_eq!(
            wanted_pause(status, &headers(";".repeat(65_536)), false),
            Some(UNTOLD)
        );
    }
}
