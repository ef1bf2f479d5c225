//! What a hostile or sloppy partner may answer.

use super::*;

const DATE: &str = "date: Wed, 21 Oct 2015 07:28:00 GMT";
const LATER: &str = "retry-after: Wed, 21 Oct 2015 07:28:30 GMT";

/// How long such an answer holds a key, in seconds.
async fn hold_of(status: u16, all: &[u8]) -> Option<f64> {
    let limits = limits(100);
    let partner = limits.outgoing("partner");
    hear(&partner, "us", status, &fields(all)).await;
    assert_eq!(held(&limits, "them").await, None, "another key");
    held(&limits, "us").await.map(|it| it.as_secs_f64())
}

fn shown(all: &[u8]) -> String {
    String::from_utf8_lossy(&all[..all.len().min(100)]).into_owned()
}

#[tokio::test(start_paused = true)]
async fn what_the_partner_says_is_obeyed() {
    let digits = [b"retry-after: ", &[b'9'; 64 * 1024][..]].concat();
    let dated = |date: &str| format!("{DATE}\nretry-after: {date}").into_bytes();
    let two_fields = b"ratelimit: \"a\";r=0;t=6\nratelimit: \"b\";r=0;t=60";
    let long_pushback = b"grpc-status: 8\ngrpc-retry-pushback-ms: 99999999999999999999";
    let rows: [(u16, &[u8], f64); 21] = [
        (429, b"retry-after: 9", 9.0),
        (429, b"retry-after:   9  ", 9.0),
        (429, b"retry-after: 0009", 9.0),
        (429, b"retry-after: 3600", 3_600.0),
        (429, b"retry-after: 3601", 3_600.0),
        (429, b"retry-after: 1000000000000", 3_600.0),
        (429, b"retry-after: 18446744073709551615", 3_600.0),
        (429, b"retry-after: 18446744073709551616", 3_600.0),
        (429, &digits, 3_600.0),
        (429, &dated("Wed, 21 Oct 2015 07:28:30 GMT"), 30.0),
        (429, &dated("Fri, 31 Dec 9999 23:59:59 GMT"), 3_600.0),
        // RFC 9110, 5.6.7: a recipient must accept both older forms.
        (429, &dated("Wednesday, 21-Oct-15 07:28:30 GMT"), 30.0),
        (429, &dated("Wed Oct 21 07:28:30 2015"), 30.0),
        (200, b"ratelimit: \"a\";r=0;t=60", 60.0),
        (200, b"ratelimit: \"a\";r=0;t=6, \"b\";r=0;t=60", 60.0),
        (200, two_fields, 60.0),
        (200, b"ratelimit: \"a\";t=60;r=0", 60.0),
        (200, b"ratelimit: \"a\";r=0;t=60;pk=:Zm9v:", 60.0),
        (200, b"ratelimit: \"a\";r=0;t=999999999999999", 3_600.0),
        (200, b"grpc-status: 8\ngrpc-retry-pushback-ms: 7000", 7.0),
        (200, long_pushback, 3_600.0),
    ];
    for (status, all, expected) in rows {
        let found = hold_of(status, all).await;
        let is_right = found.is_some_and(|it| (it - expected).abs() < 0.01);
        let shown = shown(all);
        assert!(is_right, "{status} {shown}: {found:?}, not {expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_holds_nothing() {
    let zeros = [b"ratelimit: ", &b"\"a\";r=1;t=60,".repeat(5_000)[..]].concat();
    let rows: [(u16, &[u8]); 17] = [
        (200, b"retry-after: 9"),
        (301, b"retry-after: 9"),
        (503, b"retry-after: 9"),
        (500, b"retry-after: 9"),
        (200, b"ratelimit: \"a\";r=5;t=60"),
        (200, b"ratelimit: \"a;r=0;t=60\";r=5;t=60"),
        (200, b"ratelimit: "),
        (200, b"ratelimit: \xff\xfe"),
        (200, b"ratelimit: \"a\";r=0"),
        (200, b"ratelimit: \"a\";r=00000000001;t=60"),
        (200, b"ratelimit: \"a\";r=-1;t=-60"),
        (200, b"ratelimit: \"a\";r=0;t=0"),
        (200, &zeros),
        (200, b"grpc-status: 0\ngrpc-retry-pushback-ms: 7000"),
        (200, b"grpc-status: 14\ngrpc-retry-pushback-ms: 7000"),
        (200, b"grpc-status: 88\ngrpc-retry-pushback-ms: 7000"),
        (200, b"grpc-retry-pushback-ms: 7000"),
    ];
    for (status, all) in rows {
        let found = hold_of(status, all).await;
        assert_eq!(found, None, "{status} {}", shown(all));
    }
}

/// A refusal whose time cannot be read holds a key shortly, for a second at most, and one whose
/// time is over may hold it, too.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_unclear_holds_shortly() {
    let long = [b"retry-after: ", &[b'x'; 64 * 1024][..]].concat();
    let later = [LATER, &format!("date: yesterday\n{LATER}")].map(|it| it.as_bytes().to_vec());
    let unclear: [&[u8]; 12] = [
        b"",
        b"retry-after: ",
        b"retry-after: -9",
        b"retry-after: +9",
        b"retry-after: 1e9",
        b"retry-after: 0x1000",
        b"retry-after: \xff\xfe\x80",
        "retry-after: ٩٩".as_bytes(),
        &long,
        &later[0],
        &later[1],
        b"ratelimit: \"a\";r=0;t=x",
    ];
    for all in unclear {
        let found = hold_of(429, all).await;
        let is_right = found.is_some_and(|it| it <= 1.0);
        assert!(is_right, "{}: {found:?}", shown(all));
    }
    for over in [
        "retry-after: 0",
        "date: Wed, 21 Oct 2015 07:28:30 GMT\nretry-after: Wed, 21 Oct 2015 07:28:00 GMT",
        &format!("{DATE}\nretry-after: Thu, 01 Jan 1970 00:00:00 GMT"),
        &format!("{DATE}\nretry-after: Wed, 31 Feb 2015 25:61:61 GMT"),
    ] {
        let found = hold_of(429, over.as_bytes()).await;
        assert!(found.is_none_or(|it| it <= 1.0), "{over}: {found:?}");
    }
}

/// With `also_unavailable` a 503 and 14 hold, and nothing else does in addition.
#[tokio::test(start_paused = true)]
async fn what_is_unavailable() {
    let pushback = b"grpc-status: 14\ngrpc-retry-pushback-ms: 7000";
    let rows: [(u16, &[u8], Option<u64>); 6] = [
        (503, b"retry-after: 9", Some(9)),
        (200, pushback, Some(7)),
        (502, b"retry-after: 9", None),
        (500, b"retry-after: 9", None),
        (200, b"grpc-status: 13\ngrpc-retry-pushback-ms: 7000", None),
        (429, b"retry-after: 9", Some(9)),
    ];
    for (status, all, expected) in rows {
        let limits = limits(100);
        let partner = limits.outgoing("partner").also_unavailable();
        hear(&partner, "us", status, &fields(all)).await;
        let found = held(&limits, "us").await;
        let found = found.map(|it| it.as_secs_f64().round() as u64);
        assert_eq!(found, expected, "{status} {}", shown(all));
    }
}
