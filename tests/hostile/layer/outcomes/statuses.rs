//! Which responses give back, and which do not.

use super::*;

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
    for (refund_on, is_back) in cases {
        let (limits, service) = world(of("a", 1_000, refund_on), MemoryStore::new());
        let mut expected = 1_000;
        for status in (100..=599).chain([600, 799, 999]) {
            assert_eq!(send(&service, status).await, status);
            expected -= u64::from(!is_back(status));
            assert_eq!(left(&limits, "a").await, expected, "{refund_on:?} {status}");
        }
    }
}

fn is_warned(limits: &Limits) -> bool {
    let warnings = limits.warnings();
    assert!(warnings.len() <= 1, "{warnings:?}");
    let is_it = |kind| kind == WarningKind::GrpcStatusInTrailers;
    warnings.iter().any(|it| is_it(it.kind))
}

/// The status is in the trailers: one warning, and it is the client's rule that is named. No
/// warning where no gRPC status is asked for, or no gRPC request comes.
#[tokio::test]
async fn grpc_statuses_in_trailers_are_a_warning() {
    for (refund_on, is_grpc, fields, expected) in [
        (&["grpc-0"][..], true, "", true),
        (&["grpc-0"], true, "x-back-grpc-status: 0", false),
        (&["grpc-0", "2xx"], true, "", true),
        // Such a rule would need the trailers: nothing is given back, and it must be told.
        (&["2xx"], true, "", true),
        (&["grpc-0"], false, "", false),
        (&["2xx"], false, "", false),
    ] {
        let (limits, service) = world(of("a", 10, refund_on), MemoryStore::new());
        for _ in 0..4 {
            let status = match is_grpc {
                true => ask_grpc(&service, fields).await,
                false => ask(&service, fields).await,
            };
            assert_eq!(status, 200);
        }
        let case = format!("{refund_on:?} {is_grpc} {fields}");
        assert_eq!(is_warned(&limits), expected, "{case}");
        assert!(!expected || left(&limits, "a").await == 6, "{case}");
    }
}

/// Under a lock-out no failure counts by such a status, and the warning says what does.
#[tokio::test]
async fn grpc_failures_in_trailers_are_a_warning() {
    let lockout = tidegate::rule::Lockout::after(2)
        .hold([HOUR])
        .on(["grpc-16"]);
    let rule = kit::per_hour("a", 10).with_key(Header::new("x-key"));
    let rule = rule.with_lockout(lockout).expect("it makes sense");
    let (limits, service) = world(rule, MemoryStore::new());
    for _ in 0..3 {
        assert_eq!(ask_grpc(&service, "").await, 200);
    }
    let [warning] = &limits.warnings()[..] else {
        panic!("{:?}", limits.warnings());
    };
    let text = warning.to_string();
    assert!(text.starts_with("\"a\" has lockout"), "{text}");
    assert!(text.contains("Charges::failed under a lockout"), "{text}");
}

/// A client can make its request look like a gRPC request: then it pays.
#[tokio::test]
async fn a_request_that_pretends() {
    let (limits, service) = world(of("a", 10, &["4xx", "grpc-3"]), MemoryStore::new());
    ask_grpc(&service, "x-status: 400").await;
    assert_eq!(left(&limits, "a").await, 9);
    // On a plain request a field `grpc-status` is only a field.
    ask(&service, "x-back-grpc-status: 3").await;
    assert_eq!(left(&limits, "a").await, 8);
    // The client's own field is not the response's.
    ask_grpc(&service, "grpc-status: 3").await;
    assert_eq!(left(&limits, "a").await, 7);
}
