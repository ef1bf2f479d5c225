//! Which responses give back, and which do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use tidegate::warning::WarningKind;
use tidegate::{Limits, MemoryStore};

use super::{ask, flushed, grpc, left_of, limits, of, request, send, wrap};

/// Every status that HTTP may have, under several outcomes: classes, statuses, both.
#[tokio::test]
async fn every_status() {
    type Expected = fn(u16) -> bool;
    let cases: [(&[&str], Expected); 6] = [
        (&["2xx"], |it| it / 100 == 2),
        (&["2xx", "304"], |it| it / 100 == 2 || it == 304),
        (&["404"], |it| it == 404),
        (&["1xx", "5xx"], |it| it / 100 == 1 || it / 100 == 5),
        (&["3xx", "302", "302"], |it| it / 100 == 3),
        (&["grpc-0", "grpc-16"], |_| false),
    ];
    for (refund_on, expected) in cases {
        let limits = limits(of("a", 1_000, refund_on), MemoryStore::new());
        let service = wrap(&limits.layer("a"));
        let mut left = 1_000;
        for status in (100..=599).chain([600, 799, 999]) {
            assert_eq!(send(&service, status).await, status);
            left -= u64::from(!expected(status));
            assert_eq!(
                left_of(&limits, "a", "x").await,
                left,
                "{refund_on:?} {status}"
            );
        }
    }
}

/// A HEAD request is one like others.
#[tokio::test]
async fn other_methods() {
    let limits = limits(of("a", 10, &["2xx"]), MemoryStore::new());
    let service = wrap(&limits.layer("a"));
    for method in [Method::HEAD, Method::OPTIONS, Method::CONNECT, Method::POST] {
        for (status, cost) in [("200", 0), ("401", 1)] {
            let left = left_of(&limits, "a", "x").await;
            let mut asked = request(&[("x-status", status)]);
            *asked.method_mut() = method.clone();
            assert_eq!(ask(&service, asked).await.to_string(), status);
            assert_eq!(left_of(&limits, "a", "x").await, left - cost, "{method}");
        }
    }
}

fn is_warned(limits: &Limits) -> bool {
    let warnings = limits.warnings();
    warnings
        .iter()
        .any(|it| it.kind == WarningKind::GrpcStatusInTrailers)
}

/// gRPC requests: statuses in the head only, and no class of HTTP.
#[tokio::test]
async fn grpc_requests() {
    let refund_on = ["2xx", "200", "5xx", "grpc-0", "grpc-5"];
    let rule = || of("a", 100, &refund_on);
    // The field in the head, and whether that gives back.
    for (field, is_back) in [
        (Some("0"), true),
        (Some("5"), true),
        (Some("7"), false),
        (Some("16"), false),
        (Some("50"), false),
        (Some("-0"), false),
        (Some(""), false),
        (Some("OK"), false),
        (Some("99999999999999999999"), false),
        (None, false),
    ] {
        let limits = limits(rule(), MemoryStore::new());
        let service = wrap(&limits.layer("a"));
        for status in ["200", "500"] {
            let left = left_of(&limits, "a", "x").await;
            let mut fields = vec![("x-status", status)];
            fields.extend(field.map(|it| ("x-back-grpc-status", it)));
            ask(&service, grpc(&fields)).await;
            let now = left_of(&limits, "a", "x").await;
            assert_eq!(now, left - u64::from(!is_back), "{field:?} {status}");
        }
    }
}

/// The status is in the trailers: one warning, and it is the client's rule that is named. No
/// warning where no gRPC status is asked for, or no gRPC request comes.
#[tokio::test]
async fn grpc_statuses_in_trailers_are_a_warning() {
    for (refund_on, is_grpc, field, expected) in [
        (&["grpc-0"][..], true, None, true),
        (&["grpc-0"], true, Some("0"), false),
        (&["grpc-0", "2xx"], true, None, true),
        (&["grpc-0"], false, None, false),
        (&["2xx"], false, None, false),
    ] {
        let limits = limits(of("a", 100, refund_on), MemoryStore::new());
        let service = wrap(&limits.layer("a"));
        for _ in 0..3 {
            let fields: Vec<_> = field
                .map(|it| ("x-back-grpc-status", it))
                .into_iter()
                .collect();
            let request = if is_grpc {
                grpc(&fields)
            } else {
                request(&fields)
            };
            assert_eq!(ask(&service, request).await, 200);
        }
        assert_eq!(
            is_warned(&limits),
            expected,
            "{refund_on:?} {is_grpc} {field:?}"
        );
        let of_it = limits.warnings();
        assert!(of_it.len() <= 1, "{of_it:?}");
    }
}

/// What a rule of HTTP classes makes of gRPC requests: nothing is given back, and it must be told,
/// because such a rule would need the trailers.
#[tokio::test]
async fn a_class_of_http_on_grpc_requests() {
    let limits = limits(of("a", 10, &["2xx"]), MemoryStore::new());
    let service = wrap(&limits.layer("a"));
    for _ in 0..4 {
        assert_eq!(ask(&service, grpc(&[])).await, 200);
    }
    assert_eq!(left_of(&limits, "a", "x").await, 6);
    assert!(is_warned(&limits));
}

/// A client can make its request look like a gRPC request: then it pays.
#[tokio::test]
async fn a_request_that_pretends() {
    let limits = limits(of("a", 10, &["4xx", "grpc-3"]), MemoryStore::new());
    let service = wrap(&limits.layer("a"));
    ask(&service, grpc(&[("x-status", "400")])).await;
    assert_eq!(left_of(&limits, "a", "x").await, 9);
    // On a plain request a field `grpc-status` is only a field.
    ask(&service, request(&[("x-back-grpc-status", "3")])).await;
    assert_eq!(left_of(&limits, "a", "x").await, 8);
    // The client's own field is not the response's.
    ask(&service, grpc(&[("grpc-status", "3")])).await;
    assert_eq!(left_of(&limits, "a", "x").await, 7);
}

/// The condition in code: beside the rule's, alone, asked once, and with a panic it is charged.
#[tokio::test]
async fn conditions_in_code() {
    let asked = Arc::new(AtomicU64::new(0));
    for refund_on in [&[][..], &["404"]] {
        let limits = limits(of("a", 100, refund_on), MemoryStore::new());
        let counter = Arc::clone(&asked);
        let layer = limits.layer("a").refund_if(move |response| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(response.status != 500, "a condition of a test");
            response.headers.contains_key("x-cache")
        });
        let service = wrap(&layer);
        let mut left = 100;
        for (status, cache, is_back) in [
            ("200", None, false),
            ("200", Some("hit"), true),
            ("404", None, !refund_on.is_empty()),
            ("404", Some("hit"), true),
            ("500", None, false),
            ("500", Some("hit"), false),
            ("200", Some("hit"), true),
        ] {
            asked.store(0, Ordering::Relaxed);
            let mut fields = vec![("x-status", status)];
            fields.extend(cache.map(|it| ("x-back-x-cache", it)));
            let answer = ask(&service, request(&fields)).await.to_string();
            assert_eq!(answer, status, "a panic takes no response away");
            left -= u64::from(!is_back);
            assert_eq!(left_of(&limits, "a", "x").await, left, "{status} {cache:?}");
            assert!(asked.load(Ordering::Relaxed) <= 1);
        }
        // gRPC requests are for the closure as all others.
        ask(&service, grpc(&[("x-back-x-cache", "hit")])).await;
        assert_eq!(left_of(&limits, "a", "x").await, left);
        flushed(&limits).await;
    }
}
