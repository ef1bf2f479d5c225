//! Hidden quotas: clients are told neither their names nor their numbers, by no protocol.

use http::header::RETRY_AFTER;
use tidegate::{Headers, Limits};

use super::{DENIED, OK, Seen, app, request, send};

/// A hidden quota with a name, a subject, a window and a max that nobody else has.
fn file(hidden_max: u64, visible_max: u64) -> String {
    format!(
        "[rules.api]\nquotas = [
            {{ max-count = {visible_max}, window = \"1m\", key = \"header:x-user\", subject = \"user\" }},
            {{ name = \"secret-name\", max-count = {hidden_max}, window = \"9973s\", \
               key = \"header:x-address\", subject = \"secret-subject\", hidden = true }},
            {{ name = \"secret-cost\", max-count = 86423, window = \"8461s\", cost = 53, \
               key = \"header:x-address\", subject = \"secret-subject\", hidden = true }},
            {{ max-count = 4000, window = \"1h\", key = \"everyone\" }},
        ]\n"
    )
}

/// All that a client sees but `Retry-After`, with what is coded in base 64.
fn told(seen: &Seen) -> String {
    let fields = seen.head.iter().filter(|(name, _)| *name != RETRY_AFTER);
    let fields =
        fields.map(|(name, value)| format!("{name}: {}\n", value.to_str().expect("printable")));
    let fields: String = fields.collect();
    format!("{fields}{}", seen.body)
}

fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits: u32 = 0;
    let mut number = 0;
    let mut bytes = Vec::new();
    for digit in text.bytes() {
        let Some(digit) = DIGITS.iter().position(|it| *it == digit) else {
            continue;
        };
        bits = bits << 6 | digit as u32;
        number += 6;
        if number >= 8 {
            number -= 8;
            bytes.push((bits >> number) as u8);
        }
    }
    bytes
}

const GRPC: &str = "content-type: application/grpc";

async fn all_answers(hidden_max: u64, visible_max: u64) {
    let protocols = [
        "accept: */*",
        "accept: application/problem+json",
        "accept: text/html",
        GRPC,
    ];
    for headers in [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ] {
        for protocol in protocols {
            let limits = Limits::from_toml(&file(hidden_max, visible_max)).expect("valid");
            let app = app(limits.layer("api").headers(headers));
            let (mut allowed, mut denied) = (0, 0);
            for _ in 0..6 {
                let fields = format!("x-user: u, x-address: a, {protocol}");
                let seen = send(&app, request(&fields)).await;
                match seen.status {
                    OK if !seen.head.contains_key("grpc-status") => allowed += 1,
                    DENIED | OK => denied += 1,
                    status => panic!("{status}"),
                }
                let told = told(&seen);
                for secret in [
                    "secret", "9973", "8461", "86423", "86370", "7919", "7918", "53",
                ] {
                    // A number of the fields, not a part of another one.
                    assert!(
                        !told.contains(secret),
                        "{headers:?}, {protocol}: {secret} in {told}"
                    );
                }
                let details = seen.head.get("grpc-status-details-bin");
                if let Some(details) = details {
                    let details = decoded(details.to_str().expect("text"));
                    let details = String::from_utf8_lossy(&details).into_owned();
                    assert!(!details.contains("secret"), "{details}");
                }
            }
            assert_eq!(
                allowed,
                hidden_max.min(visible_max).min(6),
                "{headers:?}, {protocol}"
            );
            assert_eq!(denied, 6 - allowed);
        }
    }
}

#[tokio::test]
async fn a_hidden_quota_denies() {
    all_answers(3, 1_000).await;
}

#[tokio::test]
async fn another_quota_denies() {
    all_answers(7_919, 2).await;
}

#[tokio::test]
async fn both_deny() {
    all_answers(2, 2).await;
}

/// Where all quotas are hidden, nothing is told but when to come again.
#[tokio::test]
async fn all_are_hidden() {
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        let text = "[rules.api]\nquotas = [
            { max-count = 2, window = \"9973s\", key = \"header:x-user\", hidden = true },
            { max-count = 7919, window = \"8461s\", key = \"everyone\", hidden = true },
        ]\n";
        let limits = Limits::from_toml(text).expect("valid");
        let app = app(limits.layer("api").headers(headers));
        for at in 0..4 {
            let seen = send(&app, request("x-user: u")).await;
            assert_eq!(seen.status, if at < 2 { OK } else { DENIED });
            let fields: Vec<_> = seen
                .head
                .keys()
                .filter(|it| it.as_str().contains("ratelimit"))
                .collect();
            assert!(fields.is_empty(), "{headers:?}: {seen:?}");
            assert_eq!(seen.head.contains_key(RETRY_AFTER), at >= 2, "{seen:?}");
            let told = told(&seen);
            assert!(!told.contains("9973") && !told.contains("7919"), "{told}");
        }
    }
}

/// The same of layers within one another: the fields of the other are as before.
#[tokio::test]
async fn a_layer_around_another() {
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        let text = format!(
            "{}[rules.outer]\nmax-count = 10\nwindow = \"1h\"\n",
            file(3, 100)
        );
        let limits = Limits::from_toml(&text).expect("valid");
        let app = app(limits.layer("api").headers(headers));
        let app = app.layer(limits.layer("outer").headers(headers));
        for _ in 0..5 {
            let seen = send(&app, request("x-user: u, x-address: a")).await;
            let told = told(&seen);
            for secret in ["secret", "9973", "8461", "86423"] {
                assert!(!told.contains(secret), "{headers:?}: {secret} in {told}");
            }
        }
    }
}
