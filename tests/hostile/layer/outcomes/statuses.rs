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

/// A client can make its request look like a gRPC request, which changes nothing.
#[tokio::test]
async fn a_request_that_pretends() {
    for is_grpc in [false, true] {
        let (limits, service) = world(of("a", 10, &["4xx", "grpc-3"]), MemoryStore::new());
        let send = async |fields: &str| match is_grpc {
            true => ask_grpc(&service, fields).await,
            false => ask(&service, fields).await,
        };
        send("x-status: 400").await;
        assert_eq!(left(&limits, "a").await, 10);
        send("x-back-grpc-status: 3").await;
        assert_eq!(left(&limits, "a").await, 10);
        // The client's own field is not the response's.
        send("grpc-status: 3").await;
        assert_eq!(left(&limits, "a").await, 9);
    }
}
