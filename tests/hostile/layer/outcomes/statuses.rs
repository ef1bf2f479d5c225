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

/// gRPC requests: statuses in the head only, and no class of HTTP.
#[tokio::test]
async fn grpc_requests() {
    let refund_on = ["2xx", "200", "5xx", "grpc-0", "grpc-5"];
    let digits = "99999999999999999999";
    let fields = ["0", "5", "7", "16", "50", "-0", "", "OK", digits];
    for field in fields.into_iter().map(Some).chain([None]) {
        let (limits, service) = world(of("a", 100, &refund_on), MemoryStore::new());
        for status in ["200", "500"] {
            let before = left(&limits, "a").await;
            let back = field.map_or_else(String::new, |it| format!(", x-back-grpc-status: {it}"));
            ask_grpc(&service, &format!("x-status: {status}{back}")).await;
            let charged = before - left(&limits, "a").await;
            let is_back = matches!(field, Some("0" | "5"));
            assert_eq!(charged, u64::from(!is_back), "{field:?} {status}");
        }
    }
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

/// The condition in code: beside the rule's, alone, asked once, and with a panic it is charged.
#[tokio::test]
async fn conditions_in_code() {
    for refund_on in [&[][..], &["404"]] {
        let asked = Arc::new(AtomicU64::new(0));
        let limits = limits(of("a", 100, refund_on), MemoryStore::new());
        let counter = Arc::clone(&asked);
        let layer = limits.layer("a").refund_if(move |response| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(response.status != 500, "a condition of a test");
            response.headers.contains_key("x-cache")
        });
        let service = wrap(&layer);
        let mut expected = 100;
        for (status, fields, is_back) in [
            (200, "", false),
            (200, "x-back-x-cache: hit", true),
            (404, "", !refund_on.is_empty()),
            (404, "x-back-x-cache: hit", true),
            (500, "", false),
            (500, "x-back-x-cache: hit", false),
            (200, "x-back-x-cache: hit", true),
        ] {
            asked.store(0, Ordering::Relaxed);
            let answer = ask(&service, &format!("x-status: {status}, {fields}")).await;
            assert_eq!(answer, status, "a panic takes no response away");
            expected -= u64::from(!is_back);
            assert_eq!(left(&limits, "a").await, expected, "{status} {fields}");
            assert!(asked.load(Ordering::Relaxed) <= 1);
        }
        // gRPC requests are for the closure as all others.
        ask_grpc(&service, "x-back-x-cache: hit").await;
        assert_eq!(left(&limits, "a").await, expected);
        flushed(&limits).await;
    }
}
