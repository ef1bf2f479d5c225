//! What answers in the place of the handler: layers within, errors, callbacks, panics.

use super::*;

/// The handler behind two layers, the outermost one first.
fn nested(outer: &RateLimitLayer, inner: &RateLimitLayer) -> Wrapped {
    around(outer, wrap(inner))
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
