//! Law 5 and the promise about keys: a missing key is never an admission, whatever the rule or a
//! callback says about failures, and whatever the store does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderValue, Request, StatusCode};
use tidegate::key::KeyError;
use tidegate::rule::{OnError, Share, SharedRules};
use tidegate::{
    ErrorCallbackChain, FailOpen, Failed, Header, Limits, MemoryStore, PeerIp, Quota,
    RateLimitLayer, Recovery, RedisStore, Resilient, Rule, Rules, Store,
};
use tower::ServiceExt;

const BAD: StatusCode = StatusCode::BAD_REQUEST;
const BROKEN: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
const OK: StatusCode = StatusCode::OK;

fn tenant() -> Header {
    Header::new("x-tenant")
}

fn server_key(_: &http::request::Parts) -> Result<tidegate::Key, KeyError> {
    Err(KeyError::server("nobody set this up"))
}

/// A layer by every way to let requests through when something fails.
fn layers(rule: impl Fn() -> Rule, store: &Arc<dyn Store>) -> Vec<(&'static str, RateLimitLayer)> {
    let proceed = || rule().with_on_error(OnError::Proceed);
    let fallback = || rule().with_on_error(OnError::Fallback);
    let layer = |rule: Rule| RateLimitLayer::from_rule(rule).store(Arc::clone(store));
    let shared = |rule: Rule| SharedRules::new([rule].into_iter().collect::<Rules>());
    let answers = async |_: Failed| Recovery::Proceed;
    let chain = || ErrorCallbackChain::new().on::<KeyError>(answers);
    vec![
        ("proceed", layer(proceed())),
        ("fallback", layer(fallback())),
        ("FailOpen", layer(rule()).on_error(FailOpen)),
        ("proceed and FailOpen", layer(proceed()).on_error(FailOpen)),
        ("a callback", layer(proceed()).on_error(answers)),
        ("a chain", layer(proceed()).on_error(chain())),
        ("an Arc", layer(proceed()).on_error(Arc::new(FailOpen))),
        (
            "waiting",
            layer(proceed()).wait(Duration::MAX).on_error(FailOpen),
        ),
        (
            "rules",
            RateLimitLayer::from_rules(&shared(proceed()), "keyed", Arc::clone(store))
                .on_error(FailOpen),
        ),
        (
            "limits",
            Limits::new([proceed()])
                .store(Arc::clone(store))
                .layer("keyed")
                .on_error(answers),
        ),
    ]
}

fn quotas() -> [Quota; 1] {
    [Quota::per_hour(1_000)]
}

/// Stores that decide, that fail, that hang, and that fall back.
async fn stores() -> Vec<(&'static str, Arc<dyn Store>)> {
    let nowhere = || RedisStore::connect_lazy("redis://127.0.0.1:1").expect("an address");
    let fallback = Resilient::new(nowhere()).fallback(Share::of_processes(2));
    vec![
        ("memory", Arc::new(MemoryStore::new())),
        ("full", Arc::new(MemoryStore::with_max_keys(0))),
        ("nowhere", Arc::new(nowhere())),
        ("no time", Arc::new(nowhere().timeout(Duration::ZERO))),
        ("falls back", Arc::new(fallback.build())),
    ]
}

async fn check(rule: impl Fn() -> Rule, request: impl Fn() -> Request<Body>, expected: StatusCode) {
    for (store_name, store) in stores().await {
        for (name, layer) in layers(&rule, &store) {
            let handled = Arc::<AtomicUsize>::default();
            let app = Router::new().route(
                "/",
                get({
                    let handled = Arc::clone(&handled);
                    async move || {
                        handled.fetch_add(1, Ordering::Relaxed);
                        "1"
                    }
                })
                .layer(layer),
            );
            let answer = app.oneshot(request()).await.expect("axum does not fail");
            let case = format!("{name}, {store_name}");
            assert_eq!(answer.status(), expected, "{case}");
            let admitted = usize::from(expected == OK);
            assert_eq!(handled.load(Ordering::Relaxed), admitted, "{case}");
        }
    }
}

fn plain() -> Request<Body> {
    Request::get("/").body(Body::empty()).expect("valid")
}

#[tokio::test]
async fn a_required_header_that_is_missing() {
    let rule = || {
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key(tenant())
    };
    check(rule, plain, BAD).await;
}

#[tokio::test]
async fn a_required_header_beside_a_key_that_is_there() {
    let rule = || {
        let other = Header::new("x-other");
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key((other, tenant()))
    };
    let request = || {
        let mut request = plain();
        let value = HeaderValue::from_static("somebody");
        request.headers_mut().insert("x-other", value);
        request
    };
    check(rule, request, BAD).await;
}

#[tokio::test]
async fn a_request_that_costs_nothing_has_no_key_either() {
    let rule = || {
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key(tenant())
            .with_cost(0)
    };
    check(rule, plain, BAD).await;
}

#[tokio::test]
async fn a_server_that_is_not_set_up() {
    let rule = || {
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key(PeerIp)
    };
    check(rule, plain, BROKEN).await;
    let rule = || {
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key(server_key)
    };
    check(rule, plain, BROKEN).await;
}

/// A panic in the key extractor or the cost is no admission either.
#[tokio::test]
async fn extractors_that_panic() {
    let rule = || {
        let panics = |_: &http::request::Parts| -> Result<tidegate::Key, KeyError> {
            // Without a message on the terminal.
            std::panic::resume_unwind(Box::new("the extractor's own"))
        };
        Rule::new("keyed", quotas())
            .expect("valid")
            .with_key(panics)
    };
    check(rule, plain, BROKEN).await;
}
