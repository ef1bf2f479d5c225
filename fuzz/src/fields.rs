//! The response fields for any decision on any policies: what is written can be read as the draft says.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::body::Body;
use http::{HeaderMap, Request, Response};
use tidegate::decision::{QuotaState, Source, Verdict};
use tidegate::rule::{Policy, SharedRules};
use tidegate::store::{Ask, Change, StoreFuture};
use tidegate::{Decision, Headers, RateLimitLayer, Rule, Store};
use tower_layer::Layer;
use tower_service::Service;

use super::input::Input;
use super::server::block_on;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let headers = *input.pick(&[
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ]);
    let quotas = input.quotas(4);
    let policies = quotas.into_iter().map(|quota| {
        let length = usize::from(input.byte() % 24);
        Policy::new(&String::from_utf8_lossy(input.bytes(length)), quota)
    });
    let Ok(rule) = Rule::with_policies("p", policies.collect::<Vec<_>>()) else {
        return;
    };
    let verdict = match input.byte() % 3 {
        0 => Verdict::Allowed,
        1 => Verdict::Denied {
            retry_after: duration(&mut input),
        },
        _ => Verdict::Never,
    };
    let states: Vec<_> = rule
        .quotas()
        .iter()
        .map(|_| QuotaState::new(input.likely(), duration(&mut input)))
        .collect();
    let decision = Decision::new(verdict, Source::Redis, 1, states.into_iter());
    let number = rule.quotas().len();
    let written = answer(rule, headers, decision.clone());
    for lines in ["ratelimit", "ratelimit-policy"].map(|name| written.get_all(name)) {
        for line in lines {
            let line = line.to_str().expect("printable");
            match headers {
                Headers::Draft11 => assert_eq!(items(line), Some(number), "{line}"),
                Headers::Draft7 => assert!(!line.is_empty()),
                _ => panic!("{line}"),
            }
        }
    }
    for value in written.values() {
        assert!(value.to_str().is_ok());
    }
    let retry_after = written
        .get("retry-after")
        .map(|value| value.to_str().expect("printable"));
    let retry_after = retry_after.map(|text| text.parse::<u64>().expect("seconds"));
    match decision.retry_after() {
        Some(exact) => {
            let seconds = retry_after.expect("it was denied");
            // Timers of clients bear no more.
            let is_cut = seconds == 2_147_483;
            assert!(seconds > 0 && (Duration::from_secs(seconds) >= exact || is_cut));
            assert!(seconds <= 2_147_483);
        }
        None => assert_eq!(retry_after, None),
    }
}

fn duration(input: &mut Input<'_>) -> Duration {
    Duration::from_micros(input.likely())
}

/// The number of items of a list of RFC 9651, each a string with parameters that are integers.
fn items(line: &str) -> Option<usize> {
    let (mut rest, mut number) = (line, 0);
    loop {
        let end = rest.strip_prefix('"')?.find('"')?;
        rest = &rest[end + 2..];
        while let Some(parameter) = rest.strip_prefix(';') {
            let (name, value) = parameter.split_once('=')?;
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
            let end = value
                .bytes()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(value.len());
            if !is_name || !(1..=15).contains(&end) {
                return None;
            }
            rest = &value[end..];
        }
        number += 1;
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start_matches(' '),
            None if rest.is_empty() => return Some(number),
            None => return None,
        }
    }
}

fn answer(rule: Rule, headers: Headers, decision: Decision) -> HeaderMap {
    let rules = SharedRules::new([rule].into_iter().collect());
    let layer =
        RateLimitLayer::from_rules(&rules, "p", Arc::new(Always(decision))).headers(headers);
    let mut service = layer.layer(Hello);
    let Ok(response) = block_on(service.call(Request::new(Body::empty())));
    response.headers().clone()
}

#[derive(Debug)]
struct Always(Decision);

impl Store for Always {
    fn take(&self, _: &Ask) -> StoreFuture<Decision> {
        StoreFuture::ready(Ok(self.0.clone()))
    }

    fn change(&self, _: &Ask, _: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(Ok(0))
    }

    fn name(&self) -> String {
        "always".to_owned()
    }
}

#[derive(Clone)]
struct Hello;

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}
