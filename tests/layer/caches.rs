//! What a cache in front may keep of a limited service: nothing of what is said to one client.

use std::future::ready;

use axum::middleware::{Next, from_fn};
use kit::stub::always;
use tidegate::callback::Problem;

use crate::*;

const PUBLIC: &str = "public, max-age=300";

/// As layers do that are put around a whole application: what says nothing may be kept.
async fn cached(request: Request<Body>, next: Next) -> Response<Body> {
    let mut response = next.run(request).await;
    let fields = response.headers_mut().entry("cache-control");
    fields.or_insert(HeaderValue::from_static(PUBLIC));
    response
}

/// What the client of a server on a socket gets for a request with these lines: the status, and what
/// the fields say of caches and of another time.
async fn ask(app: Router, lines: &str) -> String {
    let request = request("/", &format!("host: a{lines}"));
    let answer = over_tcp(serve(app).await, request).await;
    let field = |name| {
        answer
            .headers()
            .get(name)
            .map_or("-", |it| it.to_str().expect("text"))
    };
    let shown = [field("cache-control"), field("retry-after")];
    format!("{} {}", answer.status().as_u16(), shown.join(" "))
}

fn limited(max: u64) -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, max)
}

fn undecided() -> RateLimitLayer {
    limited(5).store(no_store())
}

async fn shown(layer: RateLimitLayer) -> String {
    ask(app(layer).layer(from_fn(cached)), "").await
}

#[tokio::test]
async fn no_answer_of_a_layer_is_kept() {
    let own = || {
        (
            [("cache-control", "max-age=5"), ("retry-after", "7")],
            "later",
        )
    };
    let panics = || limited(0).degrade_fn(async |_| -> &str { panic!("on purpose") });
    let busy = || (StatusCode::SERVICE_UNAVAILABLE, "later");
    for (case, layer, expected) in [
        ("admitted", limited(5), "200 public, max-age=300 -"),
        (
            "denied",
            limited(1).cost(|_| 1).store(always(denied())),
            "429 no-store 60",
        ),
        ("never", limited(0), "429 no-store -"),
        (
            "a callback",
            limited(0).degrade_fn(async |_| "later"),
            "200 no-store -",
        ),
        (
            "its own",
            limited(0).degrade_fn(move |_| ready(own())),
            "200 max-age=5 7",
        ),
        ("a panic", panics(), "500 no-store -"),
        ("undecided", undecided(), "503 no-store 1"),
        ("Problem", undecided().on_error(Problem), "503 no-store 1"),
        (
            "an error's",
            undecided().on_error_fn(move |_| ready(busy())),
            "503 no-store 1",
        ),
        (
            "its own",
            undecided().on_error_fn(move |_| ready(own())),
            "200 max-age=5 7",
        ),
        (
            "no field",
            limited(5).key(Header::new("x-user")),
            "400 no-store -",
        ),
        ("no peer", limited(5).key(PeerIp), "500 no-store -"),
    ] {
        assert_eq!(shown(layer).await, expected, "{case}");
    }
}

fn denied() -> Verdict {
    let retry_after = Duration::from_secs(60);
    Verdict::Denied { retry_after }
}

/// Not from the layer itself, either, nor where code asks.
#[tokio::test]
async fn what_checks_and_failed_handlers_answer() {
    let limits = Limits::new([per_hour("p", 0)]);
    let refused = limits.check("p", "alice").await.expect_err("no room");
    assert_eq!(
        refused.clone().into_response().headers()["cache-control"],
        "no-store"
    );
    let answer = refused
        .clone()
        .answer(request("/", "").into_parts().0)
        .await;
    assert_eq!(answer.headers()["cache-control"], "no-store");
    // No cache keeps what a POST is answered, and fields are metadata of gRPC.
    assert!(!refused.into_grpc_fields().contains_key("cache-control"));
    let grpc = limits.layer("p").layer(service_fn(fails));
    let grpc = grpc
        .oneshot(post("/", "content-type: application/grpc"))
        .await;
    assert!(
        !grpc
            .expect("an answer")
            .headers()
            .contains_key("cache-control")
    );

    let layer = limited(5).on_error_fn(async |_| "another time");
    let answer = layer.layer(service_fn(fails)).oneshot(get("/")).await;
    assert_eq!(
        answer.expect("an answer").headers()["cache-control"],
        "no-store"
    );
}

async fn fails(_: Request<Body>) -> Result<Response<Body>, std::io::Error> {
    Err(std::io::Error::other("on purpose"))
}

/// While its breaker is open, no store is asked before the next probe.
#[tokio::test]
async fn a_503_says_when_the_store_is_asked_again() {
    for (pause, expected) in [(100, "1"), (1_000, "1"), (4_001, "5"), (60_000, "60")] {
        let store = RedisStore::connect_lazy("redis://127.0.0.1:1").expect("an address");
        let store = Resilient::new(store).failures(1).probe_every(millis(pause));
        for layer in [limited(5), limited(5).on_error(Problem)] {
            let layer = layer.store(store.clone());
            let first = shown(layer.clone()).await;
            assert!(first.starts_with("503 no-store "), "{first}");
            assert_eq!(shown(layer).await, format!("503 no-store {expected}"));
        }
    }
}
