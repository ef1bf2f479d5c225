//! Law 5 and the promise about keys: a missing key is never an admission, whatever the rule or a
//! callback says about failures, and whatever the store does.

use kit::http::{call, request};
use tidegate::ErrorCallbackChain;
use tidegate::rule::SharedRules;

use crate::*;

const BAD: StatusCode = StatusCode::BAD_REQUEST;
const BROKEN: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
const OK: StatusCode = StatusCode::OK;

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
    let of_rules = RateLimitLayer::from_rules(&shared(proceed()), "keyed", Arc::clone(store));
    let of_limits = Limits::new([proceed()]).store(Arc::clone(store));
    let waits = layer(proceed()).wait(Duration::MAX);
    vec![
        ("proceed", layer(proceed())),
        ("fallback", layer(fallback())),
        ("FailOpen", layer(rule()).on_error(FailOpen)),
        ("proceed and FailOpen", layer(proceed()).on_error(FailOpen)),
        ("a callback", layer(proceed()).on_error(answers)),
        ("a chain", layer(proceed()).on_error(chain())),
        ("an Arc", layer(proceed()).on_error(Arc::new(FailOpen))),
        ("waiting", waits.on_error(FailOpen)),
        ("rules", of_rules.on_error(FailOpen)),
        ("limits", of_limits.layer("keyed").on_error(answers)),
    ]
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

/// Requests with these fields have this status, by each of these rules, and admit nobody unless it
/// is 200.
async fn check(name: &str, rule: impl Fn(Rule) -> Rule, fields: &str, expected: StatusCode) {
    let rule = || rule(per_hour("keyed", 1_000));
    for (store_name, store) in stores().await {
        for (layer_name, layer) in layers(rule, &store) {
            let handled = Arc::<AtomicUsize>::default();
            let counts = Arc::clone(&handled);
            let handler = any(async move || {
                counts.fetch_add(1, Ordering::Relaxed);
            });
            let app = Router::new().route("/", handler.layer(layer));
            let case = format!("{name}: {layer_name}, {store_name}");
            let answer = call(&app, request("/", fields)).await;
            assert_eq!(answer.status(), expected, "{case}");
            let admitted = usize::from(expected == OK);
            assert_eq!(handled.load(Ordering::Relaxed), admitted, "{case}");
        }
    }
}

/// A required header is missing, alone and beside a key that is there; the request costs nothing;
/// the server is not set up; and a panic in the key extractor.
#[tokio::test]
async fn a_missing_key_is_no_admission() {
    let panics = |_: &http::request::Parts| -> Result<tidegate::Key, KeyError> {
        // Without a message on the terminal.
        std::panic::resume_unwind(Box::new("the extractor's own"))
    };
    let both = || (Header::new("x-other"), tenant());
    let free = |rule: Rule| rule.with_key(tenant()).with_cost(0);
    check("a header", |rule| rule.with_key(tenant()), "", BAD).await;
    let other = "x-other: somebody";
    check("one of two", |rule| rule.with_key(both()), other, BAD).await;
    check("free", free, "", BAD).await;
    check("no peer", |rule| rule.with_key(PeerIp), "", BROKEN).await;
    check("no server", |rule| rule.with_key(server_key), "", BROKEN).await;
    check("a panic", |rule| rule.with_key(panics), "", BROKEN).await;
}
