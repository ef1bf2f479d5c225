//! Hidden quotas: clients are told neither their names nor their numbers, by no protocol.

use http::header::RETRY_AFTER;
use kit::http::Answer;

use super::*;

const DETAILS: &str = "grpc-status-details-bin";

const HEADERS: [Headers; 4] = [
    Headers::Draft11,
    Headers::Draft7,
    Headers::Legacy,
    Headers::None,
];

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

/// All that a client sees but `Retry-After`; and what is coded in base 64.
fn told(answer: &Answer) -> [String; 2] {
    let fields = answer.fields.iter();
    let fields =
        fields.filter(|(name, _)| ![RETRY_AFTER.as_str(), DETAILS].contains(&name.as_str()));
    let fields = fields.map(|(name, it)| format!("{name}: {}\n", it.to_str().expect("printable")));
    let details = decoded(answer.field(DETAILS).unwrap_or_default());
    let details = String::from_utf8_lossy(&details).into_owned();
    // The document says the seconds of the field.
    let seconds = answer.field(RETRY_AFTER.as_str()).unwrap_or_default();
    let body = answer
        .body
        .replace(&format!("\"retry-after\":{seconds}"), "");
    [fields.collect::<String>() + &body, details]
}

fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut number) = (0_u32, 0);
    let mut bytes = Vec::new();
    for digit in text.chars().filter_map(|digit| DIGITS.find(digit)) {
        bits = bits << 6 | digit as u32;
        number += 6;
        if number >= 8 {
            number -= 8;
            bytes.push((bits >> number) as u8);
        }
    }
    bytes
}

/// Whether a hidden quota denies, another one, or both.
#[tokio::test]
async fn no_answer_tells_of_a_hidden_quota() {
    const SECRETS: [&str; 8] = [
        "secret", "9973", "8461", "86423", "86370", "7919", "7918", "53",
    ];
    for (hidden_max, visible_max) in [(3, 1_000), (7_919, 2), (2, 2)] {
        for headers in HEADERS {
            for protocol in [
                "accept: */*",
                "accept: application/problem+json",
                "accept: text/html",
                "content-type: application/grpc",
            ] {
                let limits = limits(&file(hidden_max, visible_max), MemoryStore::new());
                let app = app(limits.layer("api").headers(headers));
                let fields = format!("x-user: u, x-address: a, {protocol}");
                let mut allowed = 0;
                for _ in 0..6 {
                    let answer = kit::http::ask(&app, "/", &fields).await;
                    match answer.status {
                        OK if answer.field("grpc-status").is_none() => allowed += 1,
                        status => assert!([OK, DENIED].contains(&status), "{answer:?}"),
                    }
                    let [told, details] = told(&answer);
                    let secret = SECRETS.iter().find(|secret| told.contains(**secret));
                    assert_eq!(secret, None, "{headers:?}, {protocol}: {told}");
                    assert!(!details.contains("secret"), "{details}");
                }
                let expected = hidden_max.min(visible_max).min(6);
                assert_eq!(allowed, expected, "{headers:?}, {protocol}");
            }
        }
    }
}
