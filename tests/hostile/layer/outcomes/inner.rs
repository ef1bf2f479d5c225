//! What answers in the place of the handler: layers within, errors, callbacks, panics.

use tidegate::callback::Problem;

use super::*;

/// The handler behind two layers, the outermost one first.
fn nested(outer: &RateLimitLayer, inner: &RateLimitLayer) -> Wrapped {
    around(outer, wrap(inner))
}

/// An inner layer of the same limits denies, by gRPC, and behind a layer that admitted: two rules
/// in a row do not both count such a request.
#[tokio::test]
async fn a_denial_within_gives_back() {
    let limits = Limits::new([of("outer", 50, &["grpc-5"]), of("inner", 0, &[])]);
    let service = nested(&limits.layer("outer"), &limits.layer("inner"));
    assert_eq!(ask_grpc(&service, "").await, 200);
    assert_eq!(left(&limits, "outer").await, 50);
    let rules = ["outer", "middle"].map(|path| of(path, 50, &["5xx"]));
    let limits = Limits::new(rules.into_iter().chain([of("inner", 0, &ALL)]));
    let inner = limits.layer("inner").degrade(Problem);
    let middle = nested(&limits.layer("middle"), &inner);
    let service = around(&limits.layer("outer"), middle);
    assert_eq!(send(&service, 200).await, 429);
    for path in ["outer", "middle"] {
        assert_eq!(left(&limits, path).await, 50, "{path}");
    }
}

/// The handler ends with an error: it stays charged, whatever an error callback makes of it, in its
/// own layer and in the outer one.
#[tokio::test]
async fn errors_of_the_handler() {
    let limits = Limits::new(["outer", "inner"].map(|path| of(path, 50, &ALL)));
    let (outer, inner) = (limits.layer("outer"), limits.layer("inner"));
    let answers = async |_| Recovery::Respond(StatusCode::OK.into_response());
    let answering = inner.clone().on_error_fn(answers);
    for (inner, status, expected) in [(inner, 0, 49), (answering, 200, 48)] {
        let service = nested(&outer, &inner);
        assert_eq!(ask(&service, "x-how: error").await, status);
        for path in ["inner", "outer"] {
            assert_eq!(left(&limits, path).await, expected, "{path}, {status}");
        }
    }
}

/// A handler that panics has no response.
#[tokio::test]
async fn a_handler_that_panics() {
    let (limits, service) = world(of("a", 50, &ALL), MemoryStore::new());
    for used in 1..4 {
        let asked = AssertUnwindSafe(ask(&service, "x-how: panic"));
        assert!(asked.catch_unwind().await.is_err());
        assert_eq!(left(&limits, "a").await, 50 - used);
    }
    assert_eq!(send(&service, 200).await, 200);
    assert_eq!(left(&limits, "a").await, 47);
}

/// Two layers around one handler, each with outcomes of its own, and each is given back by its own.
#[tokio::test]
async fn two_layers_with_outcomes_of_their_own() {
    let limits = Limits::new([of("good", 50, &["2xx"]), of("bad", 50, &["4xx"])]);
    let service = nested(&limits.layer("good"), &limits.layer("bad"));
    let (mut good, mut bad) = (50, 50);
    for status in [200, 404, 500, 204, 401, 302] {
        assert_eq!(send(&service, status).await, status);
        good -= u64::from(status / 100 != 2);
        bad -= u64::from(status / 100 != 4);
        let both = (left(&limits, "good").await, left(&limits, "bad").await);
        assert_eq!(both, (good, bad), "{status}");
    }
    // Two layers of one rule.
    let limits = Limits::new([of("twice", 50, &["2xx"])]);
    let service = nested(&limits.layer("twice"), &limits.layer("twice"));
    for (status, expected) in [(200, 50), (500, 48), (200, 48)] {
        assert_eq!(send(&service, status).await, status);
        assert_eq!(left(&limits, "twice").await, expected, "{status}");
    }
}

/// What a closure sees of a denial within: it may give back, and it can tell.
#[tokio::test]
async fn a_closure_is_asked_about_denials_within() {
    let limits = Limits::new([of("outer", 50, &[]), of("inner", 1, &[])]);
    let outer = limits.layer("outer").refund_if(|response| {
        let decision = Decision::from_extensions(&response.extensions);
        decision.is_some_and(|it| !it.is_allowed())
    });
    let service = nested(&outer, &limits.layer("inner"));
    for status in [200, 429, 429] {
        assert_eq!(send(&service, 200).await, status);
        assert_eq!(left(&limits, "outer").await, 49);
    }
}
