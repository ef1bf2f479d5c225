//! What a partner answers, in the head or in the trailers: never a panic, never a hold that is longer
//! than the rule allows, none of an answer that says nothing of it; and what is understood first
//! decides alone, whatever stands beside it.
//!
//! The input is a status, a number of seconds and then the lines of the fields.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tidegate::{Limits, MemoryStore, Quota, Rule};
use tokio::runtime::{Builder, Runtime};

use super::input::Input;

const STATUSES: [u16; 7] = [429, 503, 403, 200, 529, 404, 500];
const AT_MOST: Duration = Duration::from_secs(3_600);
const RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let status = *input.pick(&STATUSES);
    let seconds = input.likely() % 1_000_000_000;
    let fields: Vec<_> = input
        .rest()
        .split(|byte| *byte == b'\n')
        .filter_map(field)
        .collect();

    let held = hold(status, fields.iter().cloned());
    assert!(held <= AT_MOST, "{held:?}");
    let says = |part: &str| fields.iter().any(|(name, _)| name.as_str().contains(part));
    if [200, 404, 500].contains(&status) && !says("ratelimit") && !says("grpc") {
        assert_eq!(held, Duration::ZERO, "{status} {fields:?}");
    }
    if [429, 503, 529].contains(&status) && !says("-") && !says("limit") {
        assert_eq!(held, Duration::from_secs(1), "{status} {fields:?}");
    }
    // Nothing that comes before it, and no other line of it.
    let others = fields.iter().filter(|(name, _)| {
        let name = name.as_str();
        !name.starts_with("grpc") && !name.contains("retry-after")
    });
    let first = (RETRY_AFTER, HeaderValue::from(seconds));
    let told = hold(429, std::iter::once(first).chain(others.cloned()));
    assert_eq!(
        told,
        Duration::from_secs(seconds).min(AT_MOST),
        "{fields:?}"
    );
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((
        name,
        HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?,
    ))
}

/// For how long this answer holds its key.
fn hold(status: u16, fields: impl Iterator<Item = (HeaderName, HeaderValue)>) -> Duration {
    thread_local! {
        static PROCESS: (Runtime, Limits) = process();
    }
    let status = StatusCode::from_u16(status).expect("a status");
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name, value);
    }
    PROCESS.with(|(runtime, limits)| {
        runtime.block_on(async {
            let partner = limits.outgoing("partner");
            let turn = partner.ready("us").await.expect("a turn");
            turn.observe_response(status, &headers);
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            // It only asks.
            let held = limits.hold("partner", "us", Duration::ZERO).await;
            limits.reset("partner", "us").await.expect("an answer");
            held.expect("an answer")
        })
    })
}

fn process() -> (Runtime, Limits) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let rule = Rule::new("partner", [Quota::per_minute(1)]).expect("valid");
    let rule = rule.with_outgoing().expect("one subject");
    let rule = rule.with_hold_on(["529"]).expect("a status");
    let limits = Limits::new([rule]).store(MemoryStore::new().tokio_clock());
    (runtime.expect("a runtime"), limits)
}
