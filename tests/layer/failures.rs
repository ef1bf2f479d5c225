//! No decision, failing handlers, and panics in callbacks.

use std::fmt;

use tidegate::ErrorCallback;
use tidegate::callback::{FailureKind, Problem};
use tower::BoxError;
use tower::timeout::TimeoutLayer;
use tower::timeout::error::Elapsed;

use crate::*;

const TEAPOT: StatusCode = StatusCode::IM_A_TEAPOT;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const PROBLEM: &str = "application/problem+json";

fn limited(max: u64) -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, max)
}

/// What a layer around a handler that answers `handled` makes of a request.
async fn answer(layer: RateLimitLayer) -> Response<Body> {
    send(&app_at("/p", layer), "/p").await
}

async fn told(layer: RateLimitLayer) -> String {
    text(answer(layer).await).await
}

async fn status_of(layer: RateLimitLayer) -> u16 {
    answer(layer).await.status().as_u16()
}

fn undecided() -> RateLimitLayer {
    limited(5).store(no_store())
}

/// Law 5: a failure is never a 429.
#[tokio::test]
async fn by_default_a_503() {
    let response = answer(undecided()).await;
    assert_eq!(response.status(), UNAVAILABLE);
    assert_eq!(response.headers()["content-type"], PROBLEM);
    assert!(is_untouched(&response));
    insta::assert_snapshot!(text(response).await, @r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"retry-after":1}"#);
}

#[tokio::test]
async fn a_real_outage_is_a_503_too_and_the_kind_is_told() {
    let mut server = Redis::start();
    let layer = limited(5).store(Arc::new(store_on(&server).await));
    server.kill();
    let app = app_at("/p", layer.clone());
    // What the connection is told of the end of its server may come a little later.
    let is_told = async || status(&app, "/p").await == UNAVAILABLE;
    kit::eventually("it is unavailable", is_told).await;

    let kinds = layer.on_error(async |failed: Failed| {
        let error: &StoreError = failed.downcast_ref().expect("the store failed");
        let cause: &redis::RedisError = failed.downcast_ref().expect("because of the client");
        assert!(cause.is_io_error());
        format!("{:?}", error.kind())
    });
    assert_eq!(told(kinds).await, "Unavailable");
}

#[tokio::test]
async fn fail_open_in_one_word() {
    assert_eq!(told(undecided().on_error(FailOpen)).await, "handled");
    assert_eq!(status_of(limited(0).on_error(FailOpen)).await, 429);
}

/// The table of docs/resilience.md, each of its cells, for a layer, a call and a check.
#[tokio::test]
async fn the_rule_comes_before_the_callbacks() {
    let page = include_str!("../../docs/resilience.md");
    let (_, table) = page.split_once("| `on-error` |").expect("the table");
    let rows = table.lines().skip(2).map_while(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        Some(cells.map(str::to_owned).collect::<Vec<_>>())
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let said = ["absent", "respond", "proceed", "fallback"];
        let said = said
            .into_iter()
            .find(|it| row[0].contains(it))
            .expect("a value");
        for way in ["layer", "call", "check"] {
            for (callback, expected) in row[1..5].iter().enumerate() {
                let told = without_store(said, callback, way, None).await;
                assert_eq!(told, [&**expected; 2], "{said}, {way}, {callback}");
                let expected = match &*row[5] {
                    "as without" => [&**expected; 2],
                    "share" => ["handler", "429"],
                    told => [told; 2],
                };
                let told = without_store(said, callback, way, Some(Share::of_processes(2))).await;
                assert_eq!(told, expected, "{said}, {way}, {callback}, with a fallback");
            }
        }
    }
}

/// What answers two requests, of which a share of the limit admits one.
async fn without_store(
    said: &str,
    callback: usize,
    way: &str,
    fallback: Option<Share>,
) -> [String; 2] {
    let said = match said {
        "absent" => String::new(),
        said => format!("on-error = \"{said}\""),
    };
    let rules = format!("[rules.p]\nmax-count = 2\nwindow = \"1h\"\n{said}");
    let store = Resilient::new(Stub::down()).fallback(fallback);
    let limits = of_toml(&rules).store(store);
    let chain = ErrorCallbackChain::<&'static str>::default;
    let answers = async |_: Failed| Recovery::Respond("callback");
    let chain = match callback {
        0 => None,
        1 => Some(chain().any(answers)),
        2 => Some(chain().on::<StoreError>(answers)),
        _ => Some(chain().on::<KeyError>(answers)),
    };
    let limits = match callback {
        0 => limits,
        1 => limits.on_error(async |_: Failed| "callback"),
        2 => limits
            .on_error(ErrorCallbackChain::new().on::<StoreError>(async |_: Failed| "callback")),
        _ => {
            limits.on_error(ErrorCallbackChain::new().on::<KeyError>(async |_: Failed| "callback"))
        }
    };
    let app = Router::new().route("/", axum::routing::get("handler").layer(limits.layer("p")));
    let ask = async || {
        let refused = match (way, &chain) {
            ("layer", _) => return said_by(send(&app, "/").await).await,
            ("check", _) => match limits.check("p", Key::default()).await {
                Ok(_) => return "handler".to_owned(),
                Err(refused) => refused.answer(no_head()).await,
            },
            (_, None) => match limits.call("p").run(async || "handler").await {
                Ok(told) => return told.to_owned(),
                Err(refused) => refused.into_response(),
            },
            (_, Some(chain)) => match limits.call("p").run_with(chain, async || "handler").await {
                Ok(told) => return told.to_owned(),
                Err(refused) => refused.into_response(),
            },
        };
        said_by(refused).await
    };
    [ask().await, ask().await]
}

/// What a handler or a callback says, or the status of an answer of the crate.
async fn said_by(response: Response<Body>) -> String {
    match response.status() {
        OK => text(response).await,
        status => status.as_str().to_owned(),
    }
}

fn no_head() -> Parts {
    get("/").into_parts().0
}

/// Who counts outages hears of each, and what the rule says stands.
#[tokio::test]
async fn a_callback_that_wants_to_hears_of_what_proceeds() {
    let heard = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&heard);
    let hears = AlsoWithFallback(move |failed: Failed| {
        assert!(failed.fallback().is_none());
        counter.fetch_add(1, Ordering::Relaxed);
        async { Recovery::Propagate }
    });
    // In one chain with a callback that is not asked.
    let chain = ErrorCallbackChain::new().any(async |_: Failed| "callback");
    let chain = chain.any_with_priority(9, hears);
    let rule = per_minute("p", 5).with_on_error(OnError::Proceed);
    let layer = RateLimitLayer::from_rule(rule).store(no_store());
    assert_eq!(told(layer.on_error(chain)).await, "handled");
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

/// A caller that asks for a refusal gets its own callbacks, whatever the rule says.
#[tokio::test]
async fn a_call_that_refuses_asks_its_callbacks() {
    let rule = per_minute("p", 5).with_on_error(OnError::Proceed);
    let limits = Limits::new([rule]).store(no_store());
    let limits = limits.on_error_fn(async |_| "callback");
    let call = || limits.call("p").refuse_on_error();
    let refused = call().run(async || ()).await.expect_err("no decision");
    assert_eq!(text(refused.answer(no_head()).await).await, "callback");
    let chain = ErrorCallbackChain::<u8>::default();
    let chain = chain.any(async |_: Failed| Recovery::Respond(3));
    assert_eq!(
        call().run_with(&chain, async || 0).await.expect("answered"),
        3
    );
}

/// A header field that the client leaves out, and a peer address that the server does not know.
fn without_key() -> [(RateLimitLayer, u16); 2] {
    let tenant = Header::new("x-tenant");
    [(limited(5).key(tenant), 400), (limited(5).key(PeerIp), 500)]
}

/// Law 5: a missing key is neither a denial nor an admission.
#[tokio::test]
async fn a_missing_key_is_a_400_or_500() {
    for (layer, expected) in without_key() {
        for layer in [layer.clone(), layer.on_error(Problem)] {
            let response = answer(layer).await;
            assert_eq!(response.status(), expected);
            assert_eq!(response.headers()["content-type"], PROBLEM);
            let text = text(response).await;
            assert!(text.contains(&format!("\"status\":{expected}")), "{text}");
            // Whoever tries the app is told what is missing, and what mends it: tests have debug
            // assertions. Without them a client is told nothing of what the key is made of.
            let missing = text.contains("the request has no x-tenant header field");
            assert_eq!(missing, expected == 400, "{text}");
            let says = text.contains("into_make_service_with_connect_info::<SocketAddr>()");
            assert_eq!(says, expected == 500, "{text}");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}

/// Whatever an extractor of one's own says, the document is JSON, and the gRPC message a field.
#[tokio::test]
async fn what_went_wrong_is_escaped() {
    let reason = "line 1\nline \"2\" \\ \u{7} ä %41 \u{2028}";
    let key = move |_: &Parts| Err::<Key, _>(KeyError::server(reason));
    let app = app_at("/p", limited(2).key(key));
    let text = text(send(&app, "/p").await).await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["detail"], "line 1 line \"2\" \\   ä %41 \u{2028}");

    let response = call(&app, post("/p", "content-type: application/grpc")).await;
    let expected = "internal server error: line 1%0Aline \"2\" \\ %07 %C3%A4 %2541 %E2%80%A8";
    assert_eq!(response.headers()["grpc-message"], expected);
}

/// What lets requests through when the store fails does not when the key is missing: a client would
/// get past its limit by leaving it out.
#[tokio::test]
async fn a_missing_key_is_never_an_admission() {
    for (layer, expected) in without_key() {
        let proceed = layer.clone().on_error(async |_: Failed| Recovery::Proceed);
        for layer in [layer.on_error(FailOpen), proceed] {
            assert_eq!(status_of(layer).await, expected);
        }
    }
    let rule = per_minute("p", 5).with_key(Header::new("x-tenant"));
    let rule = rule.with_on_error(OnError::Proceed);
    assert_eq!(status_of(RateLimitLayer::from_rule(rule)).await, 400);
}

#[tokio::test]
async fn callbacks_answer_for_a_missing_key() {
    for (layer, expected) in without_key() {
        let chain = ErrorCallbackChain::new().on::<KeyError>(async |failed: Failed| {
            let FailureKind::Key(kind) = failed.kind() else {
                panic!("{failed:?}");
            };
            (TEAPOT, format!("{kind:?}: {failed}"))
        });
        let response = answer(layer.on_error(chain)).await;
        assert_eq!(response.status(), TEAPOT);
        let text = text(response).await;
        let expected = match expected {
            400 => "Absent: no key for \"p\": the request has no x-tenant header field",
            _ => "Server: no key for \"p\": ",
        };
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test]
async fn the_chain_goes_by_priority_and_type() {
    let say = |what: &'static str| move |_: Failed| async move { what };
    let new = ErrorCallbackChain::new;
    let by_type = new()
        .on_with_priority::<KeyError>(-5, say("key"))
        .on_with_priority::<std::io::Error>(-4, say("io"))
        .on_with_priority::<StoreError>(7, say("store"))
        .any_with_priority(8, say("any"));
    let default = "temporary-reduced-capacity";
    for (chain, expected) in [
        // The lower number first, whatever the order.
        (
            new().any(say("one")).any_with_priority(0, say("zero")),
            "zero",
        ),
        // The same number: the first that was added.
        (new().any(say("first")).any(say("second")), "first"),
        // The first whose type matches.
        (by_type, "store"),
        // None matches: the error goes on, here to the default.
        (new().on::<KeyError>(say("key")), default),
        (new(), default),
        // Chains are callbacks, too.
        (new().any(new().any(say("inner"))), "inner"),
        // The handler runs without a decision.
        (new().any(async |_: Failed| Recovery::Proceed), "handled"),
    ] {
        let told = told(undecided().on_error(chain)).await;
        let is_as_expected = match expected {
            "temporary-reduced-capacity" => told.contains(expected),
            _ => told == expected,
        };
        assert!(is_as_expected, "{expected}: {told}");
    }
}

/// A handler's error.
#[derive(Debug, PartialEq)]
struct Broken(u32);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken {}", self.0)
    }
}

impl std::error::Error for Broken {}

/// A request to a handler that fails with [`Broken`].
async fn call_broken(layer: RateLimitLayer) -> Result<Response<Body>, Broken> {
    let broken = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(Broken(7)) });
    layer.layer(broken).oneshot(get("/p")).await
}

async fn broken_with(callback: impl ErrorCallback) -> Result<Response<Body>, Broken> {
    call_broken(limited(5).on_error(callback)).await
}

#[tokio::test]
async fn an_error_of_the_inner_service_goes_through_the_chain() {
    let others = ErrorCallbackChain::new().on::<StoreError>(FailOpen);
    // An exempt request is none of our business, and neither is its error.
    let exempt = limited(5).exempt(|_| true);
    for goes_on in [
        call_broken(limited(5)).await,
        broken_with(Problem).await,
        broken_with(FailOpen).await,
        broken_with(others).await,
        call_broken(exempt.on_error(async |_: Failed| "answered")).await,
    ] {
        assert_eq!(goes_on.expect_err("goes on"), Broken(7));
    }

    let chain = ErrorCallbackChain::new().on::<Broken>(async |failed: Failed| {
        assert!(failed.is_inner());
        assert_eq!(failed.head.uri, "/p");
        let broken = failed.downcast_ref::<Broken>().expect("the type matched");
        format!("was {broken}")
    });
    let response = broken_with(chain).await.expect("answered");
    // It was allowed, and charged: the response says so.
    assert!(response.headers().contains_key("ratelimit"));
    assert_eq!(text(response).await, "was broken 7");
}

/// Errors in boxes, as `tower`'s own middleware has them.
#[tokio::test(start_paused = true)]
async fn boxed_errors_are_found_by_what_is_in_the_box() {
    let hanging = service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<Response<Body>, BoxError>(Response::new(Body::empty()))
    });
    let hanging = TimeoutLayer::new(SECOND).layer(hanging);
    let elapsed = |failed: Failed| async move {
        assert_eq!(failed.to_string(), "\"p\" failed: request timed out");
        StatusCode::GATEWAY_TIMEOUT
    };
    let chain = ErrorCallbackChain::new().on::<Elapsed>(elapsed);
    let service = limited(5).on_error(chain).layer(hanging.clone());
    let response = service.oneshot(get("/p")).await.expect("answered");
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);

    let chain = ErrorCallbackChain::new().on::<Broken>(FailOpen);
    let service = limited(5).on_error(chain).layer(hanging);
    let error = service.oneshot(get("/p")).await.expect_err("goes on");
    assert!(error.is::<Elapsed>());
}

#[tokio::test]
async fn a_panic_is_a_500_and_poisons_nothing() {
    let no_key = |_: &Parts| -> Result<Key, KeyError> { panic!("oops") };
    let panics = AtomicBool::new(true);
    let sometimes = move |_: &Parts| {
        assert!(!panics.fetch_not(Ordering::Relaxed), "oops");
        Ok(Key::default())
    };
    let when_called = |_: Denied| -> std::future::Ready<()> { panic!("oops") };
    let when_polled = async |_: Denied| -> () { panic!("oops") };
    for (layer, expected) in [
        (limited(2).key(no_key), &[500, 500][..]),
        (limited(2).cost(|_| panic!("oops")), &[500, 500]),
        (limited(2).exempt(|_| panic!("oops")), &[500, 500]),
        (limited(2).key(sometimes), &[500, 200, 500, 200, 500, 429]),
        (limited(2).degrade(when_called), &[200, 200, 500, 500]),
        (limited(2).degrade(when_polled), &[200, 200, 500, 500]),
    ] {
        let app = app_at("/p", layer.store(Arc::new(MemoryStore::new())));
        for expected in expected {
            let response = send(&app, "/p").await;
            assert_eq!(response.status(), *expected);
            if *expected == 500 {
                assert_eq!(response.headers()["content-type"], PROBLEM);
                let told = text(response).await;
                assert!(!told.contains("oops"), "the client must not see it");
            }
        }
    }
}

/// A service of another kind than axum's, with the error type kept.
#[tokio::test]
async fn the_error_type_is_the_inner_services() {
    fn is_service<S>(service: S) -> S
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Broken>,
    {
        service
    }
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, Broken>(Response::new(Body::empty())) });
    let service = is_service(limited(1).layer(ok));
    assert!(service.oneshot(get("/p")).await.is_ok());
}
