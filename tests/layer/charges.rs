//! What a handler, an error callback and code around the layers find of a charge, and give back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tidegate::rule::{Policy, SharedRules};
use tidegate::store::Charges;
use tidegate::{
    Decision, FailOpen, Failed, Key, Limits, MemoryStore, Quota, RateLimitLayer, Recovery, Rule,
    Rules, Store, Take,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{Stores, WINDOW, no_store, send};
use kit::per_minute;
use kit::stub::far;

async fn remaining(store: &dyn Store, rule: &Rule) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), Key::default());
    store.peek(&take).await.expect("a decision").remaining()
}

#[tokio::test]
async fn a_handler_gives_back_what_its_request_was_charged() {
    for store in &Stores::start().await.all {
        let rule = per_minute("export", 5).with_cost(2);
        let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(store));
        let fails = get(async |charges: Charges| {
            assert_eq!(charges.len(), 1);
            assert_eq!(charges[0].take().rule().path(), "export");
            assert_eq!(charges[0].receipt().units(), 2);
            assert_eq!(charges.refund().await.expect("an answer"), 2);
            assert_eq!(charges.refund().await.expect("an answer"), 0, "once");
            StatusCode::BAD_GATEWAY
        });
        let app = Router::new().route("/", fails.layer(layer));
        for _ in 0..4 {
            assert_eq!(send(&app, "/").await.status(), StatusCode::BAD_GATEWAY);
        }
        assert_eq!(remaining(&**store, &rule).await, 5);
    }
}

/// Three layers, the middle one by the request's header: the list has their order on the way in,
/// and the same one on the way out.
#[tokio::test]
async fn the_outermost_layer_comes_first() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer = |path| RateLimitLayer::from_rule(per_minute(path, 5)).store(Arc::clone(&store));
    let paths = |charges: &Charges| {
        let paths = charges
            .iter()
            .map(|charge| charge.take().rule().path().to_owned());
        paths.collect::<Vec<_>>()
    };
    let handler = get(move |charges: Charges| async move { paths(&charges).join(" ") });
    let middle = layer("middle").key(|_: &http::request::Parts| Ok(Key::from("tenant")));
    let app = Router::new().route("/", handler.layer(layer("inner")));
    let app = app.layer(middle).layer(layer("outer"));
    let response = send(&app, "/").await;
    let charges = Charges::from_extensions(response.extensions());
    assert_eq!(paths(&charges), ["outer", "middle", "inner"]);
    assert_eq!(crate::text(response).await, "outer middle inner");

    assert_eq!(charges.refund().await.expect("an answer"), 3);
    for path in ["outer", "inner"] {
        assert_eq!(remaining(&*store, &per_minute(path, 5)).await, 5);
    }
}

/// The inner layer denies: what the outer one charged can still be given back.
#[tokio::test]
async fn a_denied_request_shows_what_the_outer_layer_charged() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer =
        |path, max| RateLimitLayer::from_rule(per_minute(path, max)).store(Arc::clone(&store));
    let app = Router::new().route("/", get(async || "1").layer(layer("inner", 0)));
    let app = app.layer(layer("outer", 5));
    let response = send(&app, "/").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let charges = Charges::from_extensions(response.extensions());
    assert_eq!(charges.len(), 1);
    assert_eq!(charges.refund().await.expect("an answer"), 1);
    assert_eq!(remaining(&*store, &per_minute("outer", 5)).await, 5);
}

/// Handlers that give charges back run as ever when an operator switches a limit off, tries it in
/// shadow, or exempts somebody.
#[tokio::test]
async fn no_switch_takes_a_handler_down() {
    let of_text = |text: &str| Limits::from_toml(text).expect("valid").layer("p");
    let named = SharedRules::new(Rules::default());
    let layers = [
        (
            "cost 0",
            RateLimitLayer::from_rule(per_minute("p", 5).with_cost(0)),
        ),
        (
            "a callback proceeds",
            RateLimitLayer::from_rule(per_minute("p", 5))
                .store(no_store())
                .on_error(FailOpen),
        ),
        (
            "no rule",
            RateLimitLayer::from_rules(&named, "p", no_store()),
        ),
        (
            "exempt",
            RateLimitLayer::new("p", WINDOW, 5).exempt(|_| true),
        ),
        (
            "file off",
            of_text("enabled = false\n[rules.p]\nmax-count = 5\nwindow = \"10s\""),
        ),
        (
            "rule off",
            of_text("[rules.p]\nenabled = false\nmax-count = 5\nwindow = \"10s\""),
        ),
        (
            "shadow",
            of_text("[rules.p]\nshadow = true\nmax-count = 5\nwindow = \"10s\""),
        ),
        (
            "the rule proceeds",
            Limits::from_toml("[rules.p]\non-error = \"proceed\"\nmax-count = 5\nwindow = \"10s\"")
                .expect("valid")
                .store(no_store())
                .layer("p"),
        ),
    ];
    for (what, layer) in layers {
        let handler = get(async |charges: Charges| format!("{} charges", charges.len()));
        let app = Router::new().route("/", handler.layer(layer.clone()));
        let response = send(&app, "/").await;
        assert_eq!(response.status(), StatusCode::OK, "{what}");
        assert!(
            Charges::from_extensions(response.extensions()).is_empty(),
            "{what}"
        );
        assert_eq!(crate::text(response).await, "0 charges", "{what}");
    }
}

#[tokio::test]
async fn the_extractor_needs_no_layer() {
    let handler = get(async |charges: Charges| charges.len().to_string());
    let response = send(&Router::new().route("/", handler), "/").await;
    assert_eq!(crate::text(response).await, "0");
}

#[tokio::test]
async fn charges_of_one_rule_are_given_back_alone() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer = |path| RateLimitLayer::from_rule(per_minute(path, 5)).store(Arc::clone(&store));
    let handler = get(async |charges: Charges| {
        assert_eq!(charges.of("unknown").refund().await.expect("an answer"), 0);
        charges
            .of("login")
            .refund()
            .await
            .expect("an answer")
            .to_string()
    });
    let app = Router::new()
        .route("/", handler.layer(layer("login")))
        .layer(layer("all"));
    assert_eq!(crate::text(send(&app, "/").await).await, "1");
    assert_eq!(remaining(&*store, &per_minute("login", 5)).await, 5);
    assert_eq!(remaining(&*store, &per_minute("all", 5)).await, 4);
}

/// A request that waited, and one whose handler fails with an error of its own.
#[tokio::test]
async fn the_error_callback_finds_the_charge() {
    let store = far(Duration::ZERO);
    let fails = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("broken"));
    let layer = RateLimitLayer::new("p", WINDOW, 5).store(store);
    let layer = layer.on_error(async |failed: Failed| {
        let charges = Charges::from_extensions(&failed.head.extensions);
        assert_eq!(charges.refund().await.expect("an answer"), 1);
        Recovery::Propagate
    });
    let service = layer.layer(fails);
    for _ in 0..20 {
        let answer = service.clone().oneshot(crate::get("/")).await;
        assert_eq!(answer.map(|_| ()), Err("broken"));
    }
}

/// A service that is called with a request which it answers itself has no charge of another
/// request.
#[tokio::test]
async fn a_charge_is_of_its_own_request() {
    let quota = Quota::new(WINDOW, 5).expect("valid");
    let named = Rule::with_policies("p", [Policy::new("daily", quota)]).expect("valid");
    let layer = RateLimitLayer::from_rule(named);
    let ok = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = layer.layer(ok);
    let mut receipts = Vec::new();
    for _ in 0..5 {
        let response = service
            .clone()
            .oneshot(crate::get("/"))
            .await
            .expect("never fails");
        let charges = Charges::from_extensions(response.extensions());
        receipts.push(charges[0].receipt());
    }
    receipts.sort_by_key(|receipt| (receipt.stamp(), receipt.serial()));
    receipts.dedup();
    assert_eq!(receipts.len(), 5);
}

/// docs/troubleshooting.md quotes the answer.
#[tokio::test]
async fn a_decision_is_no_extension() {
    let handler = get(async |_: axum::Extension<Decision>| "1");
    let layer = RateLimitLayer::new("p", WINDOW, 1);
    let app = Router::new().route("/p", handler.layer(layer));
    let response = send(&app, "/p").await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let told = crate::text(response).await;
    let quoted = "Missing request extension: Extension of type `tidegate::decision::Decision` was \
        not found";
    assert!(told.starts_with(quoted), "{told}");
    let guide = include_str!("../../docs/troubleshooting.md");
    assert!(guide.contains(quoted));
}
