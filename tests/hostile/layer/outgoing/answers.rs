//! What a hostile or sloppy partner may answer.

use super::*;

const DATE: &[u8] = b"Wed, 21 Oct 2015 07:28:00 GMT";
const LATER: &[u8] = b"Wed, 21 Oct 2015 07:28:30 GMT";

/// How long such an answer holds a key, in seconds.
async fn hold_of(status: u16, all: &[(&'static str, &[u8])]) -> Option<f64> {
    let limits = limits(100);
    let partner = limits.outgoing("partner");
    hear(&partner, "us", status, &fields(all)).await;
    assert_eq!(held(&limits, "them").await, None, "another key");
    held(&limits, "us").await.map(|it| it.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn what_the_partner_says_is_obeyed() {
    let digits = vec![b'9'; 64 * 1024];
    for (status, all, expected) in [
        (429, &[("retry-after", &b"9"[..])][..], 9.0),
        (429, &[("retry-after", b"  9  ")], 9.0),
        (429, &[("retry-after", b"0009")], 9.0),
        (429, &[("retry-after", b"3600")], 3_600.0),
        (429, &[("retry-after", b"3601")], 3_600.0),
        (429, &[("retry-after", b"1000000000000")], 3_600.0),
        (429, &[("retry-after", b"18446744073709551615")], 3_600.0),
        (429, &[("retry-after", b"18446744073709551616")], 3_600.0),
        (429, &[("retry-after", &digits)], 3_600.0),
        (429, &[("date", DATE), ("retry-after", LATER)], 30.0),
        (
            429,
            &[
                ("date", DATE),
                ("retry-after", b"Fri, 31 Dec 9999 23:59:59 GMT"),
            ],
            3_600.0,
        ),
        // RFC 9110, 5.6.7: a recipient must accept both older forms.
        (
            429,
            &[
                ("date", DATE),
                ("retry-after", b"Wednesday, 21-Oct-15 07:28:30 GMT"),
            ],
            30.0,
        ),
        (
            429,
            &[("date", DATE), ("retry-after", b"Wed Oct 21 07:28:30 2015")],
            30.0,
        ),
        (200, &[("ratelimit", b"\"a\";r=0;t=60")], 60.0),
        (
            200,
            &[("ratelimit", b"\"a\";r=0;t=6, \"b\";r=0;t=60")],
            60.0,
        ),
        (
            200,
            &[
                ("ratelimit", b"\"a\";r=0;t=6"),
                ("ratelimit", b"\"b\";r=0;t=60"),
            ],
            60.0,
        ),
        (200, &[("ratelimit", b"\"a\";t=60;r=0")], 60.0),
        (200, &[("ratelimit", b"\"a\";r=0;t=60;pk=:Zm9v:")], 60.0),
        (
            200,
            &[("ratelimit", b"\"a\";r=0;t=999999999999999")],
            3_600.0,
        ),
        (
            200,
            &[("grpc-status", b"8"), ("grpc-retry-pushback-ms", b"7000")],
            7.0,
        ),
        (
            200,
            &[
                ("grpc-status", b"8"),
                ("grpc-retry-pushback-ms", b"99999999999999999999"),
            ],
            3_600.0,
        ),
    ] {
        let shown = shown(all);
        let found = hold_of(status, all).await;
        let is_right = found.is_some_and(|it| (it - expected).abs() < 0.01);
        assert!(is_right, "{status} {shown}: {found:?}, expected {expected}");
    }
}

fn shown(all: &[(&'static str, &[u8])]) -> String {
    let all = all.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(&value[..value.len().min(60)]);
        format!("{name}: {value}")
    });
    all.collect::<Vec<_>>().join(", ")
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_holds_nothing() {
    let zeros = b"\"a\";r=1;t=60,".repeat(5_000);
    for (status, all) in [
        (200, &[("retry-after", &b"9"[..])][..]),
        (301, &[("retry-after", b"9")]),
        (503, &[("retry-after", b"9")]),
        (500, &[("retry-after", b"9")]),
        (200, &[("ratelimit", b"\"a\";r=5;t=60")]),
        (200, &[("ratelimit", b"\"a;r=0;t=60\";r=5;t=60")]),
        (200, &[("ratelimit", b"")]),
        (200, &[("ratelimit", b"\xff\xfe")]),
        (200, &[("ratelimit", b"\"a\";r=0")]),
        (200, &[("ratelimit", b"\"a\";r=00000000001;t=60")]),
        (200, &[("ratelimit", b"\"a\";r=-1;t=-60")]),
        (200, &[("ratelimit", b"\"a\";r=0;t=0")]),
        (200, &[("ratelimit", &zeros)]),
        (
            200,
            &[("grpc-status", b"0"), ("grpc-retry-pushback-ms", b"7000")],
        ),
        (
            200,
            &[("grpc-status", b"14"), ("grpc-retry-pushback-ms", b"7000")],
        ),
        (
            200,
            &[("grpc-status", b"88"), ("grpc-retry-pushback-ms", b"7000")],
        ),
        (200, &[("grpc-retry-pushback-ms", b"7000")]),
    ] {
        let found = hold_of(status, all).await;
        assert_eq!(found, None, "{status} {}", shown(all));
    }
}

/// A refusal whose time cannot be read, or is over, holds a key shortly: for a second at most.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_unclear_holds_shortly() {
    let long = vec![b'x'; 64 * 1024];
    for all in [
        &[][..],
        &[("retry-after", &b""[..])],
        &[("retry-after", b"0")],
        &[("retry-after", b"-9")],
        &[("retry-after", b"+9")],
        &[("retry-after", b"1e9")],
        &[("retry-after", b"0x1000")],
        &[("retry-after", b"\xff\xfe\x80")],
        &[("retry-after", "٩٩".as_bytes())],
        &[("retry-after", &long)],
        &[("retry-after", LATER)],
        &[("date", b"yesterday"), ("retry-after", LATER)],
        &[("date", LATER), ("retry-after", DATE)],
        &[
            ("date", DATE),
            ("retry-after", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        ],
        &[
            ("date", DATE),
            ("retry-after", b"Wed, 31 Feb 2015 25:61:61 GMT"),
        ],
        &[("ratelimit", b"\"a\";r=0;t=x")],
    ] {
        let found = hold_of(429, all).await;
        let is_over = all.iter().any(|it| it.1 == b"0")
            || all
                .first()
                .is_some_and(|it| it.0 == "date" && it.1 != b"yesterday");
        let is_short = found.map_or(is_over, |it| it <= 1.0);
        assert!(is_short, "{}: {found:?}", shown(all));
    }
}

/// With `also_unavailable` a 503 and 14 hold, and nothing else does in addition.
#[tokio::test(start_paused = true)]
async fn what_is_unavailable() {
    for (status, all, expected) in [
        (503, &[("retry-after", &b"9"[..])][..], Some(9)),
        (
            200,
            &[("grpc-status", b"14"), ("grpc-retry-pushback-ms", b"7000")],
            Some(7),
        ),
        (502, &[("retry-after", b"9")], None),
        (500, &[("retry-after", b"9")], None),
        (
            200,
            &[("grpc-status", b"13"), ("grpc-retry-pushback-ms", b"7000")],
            None,
        ),
        (429, &[("retry-after", b"9")], Some(9)),
    ] {
        let limits = limits(100);
        let partner = limits.outgoing("partner").also_unavailable();
        hear(&partner, "us", status, &fields(all)).await;
        let found = held(&limits, "us")
            .await
            .map(|it| it.as_secs_f64().round() as u64);
        assert_eq!(found, expected, "{status} {}", shown(all));
    }
}

/// Answers in any order: the longest counts, and each to its own key.
#[tokio::test(start_paused = true)]
async fn answers_that_overtake_each_other() {
    let limits = limits(100);
    let partner = limits.outgoing("partner");
    let mut turns = Vec::new();
    for _ in 0..20 {
        turns.push(partner.ready("us").await.expect("a turn"));
    }
    for (at, turn) in turns.into_iter().enumerate() {
        let seconds = [7, 60, 1, 9][at % 4];
        let seconds = format!("{seconds}");
        turn.heard(
            StatusCode::TOO_MANY_REQUESTS,
            &fields(&[("retry-after", seconds.as_bytes())]),
        );
    }
    settle().await;
    assert_eq!(held(&limits, "us").await, Some(60 * SECOND));
    tokio::time::advance(60 * SECOND - millis(1)).await;
    assert!(held(&limits, "us").await.is_some());
    tokio::time::advance(millis(1)).await;
    assert_eq!(held(&limits, "us").await, None);
}

/// RFC 9651: a name is a string, which may hold commas, semicolons and quotes; and a list that is
/// broken is ignored as a whole.
#[tokio::test(start_paused = true)]
async fn names_of_quotas_are_strings() {
    for (value, expected) in [
        (&b"\"a, b\";r=0;t=60"[..], Some(60.0)),
        (b"\"a;r=5;t=1\";r=0;t=60", Some(60.0)),
        (b"\"a\\\";r=1\";r=0;t=60", Some(60.0)),
        (b"\"a;r=0;t=60", None),
    ] {
        let found = hold_of(200, &[("ratelimit", value)]).await;
        let found = found.map(f64::round);
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(value));
    }
}
