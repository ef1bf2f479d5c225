//! What a handler, an error callback and code around the layers find of a charge, and give back.

use axum::routing::get;
use tidegate::rule::SharedRules;

use crate::*;

async fn remaining(store: &Arc<dyn Store>, rule: &Rule) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), Key::default());
    store.peek(&take).await.expect("a decision").remaining()
}

/// Layers of five units a minute in one store.
fn layers() -> (Arc<dyn Store>, impl Fn(&str) -> RateLimitLayer) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let of_layers = Arc::clone(&store);
    let layer = move |path: &str| {
        let layer = RateLimitLayer::from_rule(per_minute(path, 5));
        layer.store(Arc::clone(&of_layers))
    };
    (store, layer)
}

/// Three layers, the middle one by the request's header: the list has their order on the way in,
/// and the same one on the way out.
#[tokio::test]
async fn the_outermost_layer_comes_first() {
    let (store, layer) = layers();
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
    assert_eq!(text(response).await, "outer middle inner");

    assert_eq!(charges.refund().await.expect("an answer"), 3);
    for path in ["outer", "inner"] {
        assert_eq!(remaining(&store, &per_minute(path, 5)).await, 5);
    }
}

/// Handlers that give charges back run as ever when an operator switches a limit off, tries it in
/// shadow, or exempts somebody.
#[tokio::test]
async fn no_switch_takes_a_handler_down() {
    let of_text = |text: &str| of_toml(text).layer("p");
    let limited = || RateLimitLayer::from_rule(per_minute("p", 5));
    let rule = "[rules.p]\nmax-count = 5\nwindow = \"10s\"\n";
    let failing = limited().store(no_store());
    let named = SharedRules::new(Rules::default());
    let without_a_rule = RateLimitLayer::from_rules(&named, "p", no_store());
    let proceeding = of_toml(&format!("{rule}on-error = \"proceed\""));
    for (what, layer) in [
        ("a callback proceeds", failing.on_error(FailOpen)),
        ("no rule", without_a_rule),
        ("exempt", limited().exempt(|_| true)),
        ("file off", of_text(&format!("enabled = false\n{rule}"))),
        ("rule off", of_text(&format!("{rule}enabled = false"))),
        ("shadow", of_text(&format!("{rule}shadow = true"))),
        ("the rule proceeds", proceeding.store(no_store()).layer("p")),
    ] {
        let handler = get(async |charges: Charges| format!("{} charges", charges.len()));
        let app = Router::new().route("/", handler.layer(layer));
        let response = send(&app, "/").await;
        assert_eq!(response.status(), OK, "{what}");
        let charges = Charges::from_extensions(response.extensions());
        assert!(charges.is_empty(), "{what}");
        assert_eq!(text(response).await, "0 charges", "{what}");
    }
}

/// What a layer leaves out is missing there alone. Where the handler settles, it has its charge.
#[tokio::test]
async fn a_layer_leaves_out_what_nobody_reads() {
    let found = async |settles: bool, [request, response]: [bool; 2]| {
        let rule = per_minute("p", 5).with_settling(settles);
        let layer = RateLimitLayer::from_rule(rule).without_extensions(request, response);
        let handler = get(async |charges: Charges, decision: Option<Decision>| {
            assert_eq!(decision.is_some(), charges.len() == 1);
            charges.len().to_string()
        });
        let response = send(&Router::new().route("/", handler.layer(layer)), "/").await;
        assert_eq!(response.headers()["ratelimit"], "\"p\";r=4;t=60");
        let outside = Charges::from_extensions(response.extensions()).len();
        let decision = Decision::from_extensions(response.extensions());
        assert_eq!(decision.is_some(), outside == 1);
        (text(response).await, outside)
    };
    for (settles, without, inside, outside) in [
        (false, [false, false], "1", 1),
        (false, [true, false], "0", 1),
        (false, [false, true], "1", 0),
        (false, [true, true], "0", 0),
        (true, [true, true], "1", 0),
    ] {
        let both = (inside.to_owned(), outside);
        assert_eq!(found(settles, without).await, both, "{settles} {without:?}");
    }
}

/// A layer around takes the fields of one that leaves nothing in the response for an upstream's.
#[tokio::test]
async fn a_layer_around_needs_the_extension_of_the_response() {
    for (response, fields) in [(false, 2), (true, 1)] {
        let layer = |path| RateLimitLayer::from_rule(per_minute(path, 5));
        let inner = layer("inner").without_extensions(true, response);
        let app = Router::new().route("/", get(async || "1").layer(inner));
        let sent = send(&app.layer(layer("outer")), "/").await;
        let shown = sent.headers().get_all("ratelimit").iter().count();
        assert_eq!(shown, fields, "{response}");
    }
}

/// What the response decides needs none of it, and a denial is marked as ever.
#[tokio::test]
async fn without_extensions_outcomes_refund_and_denials_are_told() {
    let rule = per_minute("p", 1)
        .with_refund_on(["5xx"])
        .expect("outcomes");
    let layer = RateLimitLayer::from_rule(rule).without_extensions(true, true);
    let fails = || async { StatusCode::BAD_GATEWAY };
    let app = Router::new()
        .route("/fails", get(fails))
        .route("/", get(async || "1"));
    let app = app.layer(layer);
    for _ in 0..3 {
        assert_eq!(send(&app, "/fails").await.status(), StatusCode::BAD_GATEWAY);
    }
    assert_eq!(send(&app, "/").await.status(), OK);
    let denied = send(&app, "/").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(Decision::from_extensions(denied.extensions()).is_some_and(|it| !it.is_allowed()));
}

#[tokio::test]
async fn the_extractor_needs_no_layer() {
    let handler = get(async |charges: Charges| charges.len().to_string());
    let response = send(&Router::new().route("/", handler), "/").await;
    assert_eq!(text(response).await, "0");
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
    let named = Rule::with_policies("p", [Policy::new("daily", quota(5, WINDOW))]);
    let layer = RateLimitLayer::from_rule(named.expect("valid"));
    let ok = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = layer.layer(ok);
    let mut receipts = Vec::new();
    for _ in 0..5 {
        let response = service.clone().oneshot(crate::get("/")).await;
        let response = response.expect("never fails");
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
    let told = text(response).await;
    let quoted = "Missing request extension: Extension of type `tidegate::decision::Decision` was \
        not found";
    assert!(told.starts_with(quoted), "{told}");
    let guide = include_str!("../../docs/troubleshooting.md");
    assert!(guide.contains(quoted));
}

/// What the handler has settled and waited for, the fields of its answer know; a permit goes back with
/// the answer, and no units.
#[tokio::test(start_paused = true)]
async fn the_fields_know_an_awaited_settlement() {
    for algorithm in Algorithm::ALL {
        for (what, left, requests) in [
            ("?settle=5", 995, 9),
            ("?settle=0", 1_000, 9),
            ("?settle=100", 900, 9),
            ("?settle=250", 750, 9),
            ("?settle=5000", 0, 9),
            ("?refund", 1_000, 10),
            ("", 900, 9),
        ] {
            let tokens = Policy::new("tokens", Quota::per_minute(1_000));
            let each = Policy::new("requests", Quota::per_hour(10)).with_cost(1);
            let rule = Rule::with_policies("chat", [tokens, each]).expect("valid");
            let rule = rule.with_algorithm(algorithm).with_cost(100);
            let rule = rule.with_max_concurrent(3).expect("valid");
            let limits = Limits::new([rule]).store(paused());
            let handler = get(async |charges: Charges, head: Parts| {
                let query = head.uri.query().unwrap_or_default();
                if let Some(used) = query.strip_prefix("settle=") {
                    let used = used.parse().expect("a number");
                    let _ = charges.of("chat").settle(used).await.expect("an answer");
                } else if query == "refund" {
                    charges.refund().await.expect("an answer");
                }
            });
            let app = Router::new().route("/", handler.layer(limits.layer("chat")));
            let response = send(&app, &format!("/{what}")).await;
            let fields = response.headers()["ratelimit"].to_str().expect("text");
            let shown = |name: &str| {
                let item = fields.split(',').find(|it| it.contains(name));
                let number = item.and_then(|it| it.split("r=").nth(1)?.split(';').next());
                number.and_then(|it| it.parse::<u64>().ok()).expect(name)
            };
            let seen = (shown("tokens"), shown("requests"), shown("concurrent"));
            assert_eq!(seen, (left, requests, 2), "{algorithm:?} {what}: {fields}");
            drop(response);
            let peeked = left_of_each(&limits, "chat", Key::default()).await;
            assert_eq!(peeked, [left, requests, 3], "{algorithm:?} {what}");
        }
    }
}
