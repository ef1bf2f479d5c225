//! What answers in the place of the handler: layers within, errors, callbacks, panics.

use std::panic::AssertUnwindSafe;

use axum::response::IntoResponse;
use futures_util::FutureExt;
use http::StatusCode;
use tidegate::callback::Problem;
use tidegate::store::StoreErrorKind;
use tidegate::store::StoreFuture;
use tidegate::{Decision, Limits, MemoryStore, Recovery, StoreError, Take};

use super::{around, ask, grpc, left_of, limits, of, request, send, wrap};
use kit::stub::Stub;

const ALL: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// An outer rule that counts failures, and an inner one of the same limits that denies: two rules
/// in a row do not both count such a request.
#[tokio::test]
async fn a_denial_within_gives_back() {
    let limits = Limits::new([of("outer", 50, &["5xx"]), of("inner", 2, &[])]);
    let inner = wrap(&limits.layer("inner"));
    let service = around(&limits.layer("outer"), inner);
    for (at, left) in [49, 48, 48, 48, 48].into_iter().enumerate() {
        assert_eq!(send(&service, 200).await, if at < 2 { 200 } else { 429 });
        assert_eq!(left_of(&limits, "outer", "x").await, left, "{at}");
    }
    // Those of gRPC, too.
    let limits = Limits::new([of("outer", 50, &["grpc-5"]), of("inner", 0, &[])]);
    let service = around(&limits.layer("outer"), wrap(&limits.layer("inner")));
    assert_eq!(ask(&service, grpc(&[])).await, 200);
    assert_eq!(left_of(&limits, "outer", "x").await, 50);
}

/// What a layer of other limits denies stays charged, whatever the outcomes are.
#[tokio::test]
async fn a_denial_of_other_limits_is_no_outcome() {
    let outer = Limits::new([of("outer", 50, &ALL)]);
    let inner = Limits::new([of("inner", 0, &[])]);
    let service = around(&outer.layer("outer"), wrap(&inner.layer("inner")));
    assert_eq!(send(&service, 200).await, 429);
    assert_eq!(left_of(&outer, "outer", "x").await, 49);
}

/// A degrade callback may answer with a 200: it is a denial all the same.
#[tokio::test]
async fn a_degraded_answer_is_a_denial() {
    let limits = Limits::new([of("outer", 50, &["5xx"]), of("inner", 0, &ALL)]);
    let degraded = limits
        .layer("inner")
        .degrade_fn(async |_| "a report of yesterday".into_response());
    let service = around(&limits.layer("outer"), wrap(&degraded));
    assert_eq!(send(&service, 200).await, 200);
    assert_eq!(left_of(&limits, "outer", "x").await, 50);
    // Three layers: the denial passes through a layer that admitted.
    let limits = Limits::new([
        of("outer", 50, &["5xx"]),
        of("middle", 50, &["5xx"]),
        of("inner", 0, &[]),
    ]);
    let inner = wrap(&limits.layer("inner").degrade(Problem));
    let middle = around(&limits.layer("middle"), inner);
    let service = around(&limits.layer("outer"), middle);
    assert_eq!(send(&service, 200).await, 429);
    for path in ["outer", "middle"] {
        assert_eq!(left_of(&limits, path, "x").await, 50, "{path}");
    }
}

fn broken() -> Stub {
    Stub::answering(MemoryStore::new(), |_: &Take| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "it is gone");
        Some(StoreFuture::<Decision>::ready(Err(error)))
    })
}

/// An inner layer without a decision: 503, 400, or whatever its callback answers.
#[tokio::test]
async fn a_failure_within_is_no_outcome() {
    let outer = Limits::new([of("outer", 50, &ALL)]);
    let inner = limits(of("inner", 9, &ALL), broken());
    let service = around(&outer.layer("outer"), wrap(&inner.layer("inner")));
    assert_eq!(send(&service, 200).await, 503);
    assert_eq!(left_of(&outer, "outer", "x").await, 49);
    let answers = inner
        .layer("inner")
        .on_error_fn(async |_| Recovery::Respond(StatusCode::OK.into_response()));
    let service = around(&outer.layer("outer"), wrap(&answers));
    assert_eq!(send(&service, 500).await, 200);
    assert_eq!(left_of(&outer, "outer", "x").await, 48);
    // Where it lets the request pass, the handler answers.
    let proceeds = inner
        .layer("inner")
        .on_error_fn(async |_| Recovery::Proceed);
    let service = around(&outer.layer("outer"), wrap(&proceeds));
    assert_eq!(send(&service, 204).await, 204);
    assert_eq!(left_of(&outer, "outer", "x").await, 48);
    // A key that is not there.
    let keyed = Limits::new([of("inner", 9, &ALL).with_key(tidegate::Header::new("x-absent"))]);
    let service = around(&outer.layer("outer"), wrap(&keyed.layer("inner")));
    assert_eq!(send(&service, 200).await, 400);
    assert_eq!(left_of(&outer, "outer", "x").await, 47);
}

/// The handler ends with an error: it stays charged, whatever an error callback makes of it, in its
/// own layer and in the outer one.
#[tokio::test]
async fn errors_of_the_handler() {
    let limits = Limits::new([of("outer", 50, &ALL), of("inner", 50, &ALL)]);
    let failing = || request(&[("x-how", "error")]);
    let plain = around(&limits.layer("outer"), wrap(&limits.layer("inner")));
    assert_eq!(ask(&plain, failing()).await, 0);
    assert_eq!(left_of(&limits, "outer", "x").await, 49);
    assert_eq!(left_of(&limits, "inner", "x").await, 49);
    let answers = limits
        .layer("inner")
        .on_error_fn(async |_| Recovery::Respond(StatusCode::OK.into_response()));
    let service = around(&limits.layer("outer"), wrap(&answers));
    assert_eq!(ask(&service, failing()).await, 200);
    assert_eq!(left_of(&limits, "inner", "x").await, 48);
    assert_eq!(
        left_of(&limits, "outer", "x").await,
        48,
        "an inner layer answered"
    );
}

/// A handler that panics has no response.
#[tokio::test]
async fn a_handler_that_panics() {
    let limits = Limits::new([of("a", 50, &ALL)]);
    let service = wrap(&limits.layer("a"));
    for used in 1..4 {
        let asked = AssertUnwindSafe(ask(&service, request(&[("x-how", "panic")])));
        assert!(asked.catch_unwind().await.is_err());
        assert_eq!(left_of(&limits, "a", "x").await, 50 - used);
    }
    assert_eq!(send(&service, 200).await, 200);
    assert_eq!(left_of(&limits, "a", "x").await, 47);
}

/// Two layers around one handler, each with outcomes of its own, and each is given back by its own.
#[tokio::test]
async fn two_layers_with_outcomes_of_their_own() {
    let limits = Limits::new([of("good", 50, &["2xx"]), of("bad", 50, &["4xx"])]);
    let service = around(&limits.layer("good"), wrap(&limits.layer("bad")));
    let (mut good, mut bad) = (50, 50);
    for status in [200, 404, 500, 204, 401, 302] {
        assert_eq!(send(&service, status).await, status);
        good -= u64::from(status / 100 != 2);
        bad -= u64::from(status / 100 != 4);
        assert_eq!(left_of(&limits, "good", "x").await, good, "{status}");
        assert_eq!(left_of(&limits, "bad", "x").await, bad, "{status}");
    }
    // Two layers of one rule.
    let limits = Limits::new([of("twice", 50, &["2xx"])]);
    let service = around(&limits.layer("twice"), wrap(&limits.layer("twice")));
    for (status, left) in [(200, 50), (500, 48), (200, 48)] {
        assert_eq!(send(&service, status).await, status);
        assert_eq!(left_of(&limits, "twice", "x").await, left, "{status}");
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
    let service = around(&outer, wrap(&limits.layer("inner")));
    for (status, left) in [(200, 49), (429, 49), (429, 49)] {
        assert_eq!(send(&service, 200).await, status);
        assert_eq!(left_of(&limits, "outer", "x").await, left);
    }
}
