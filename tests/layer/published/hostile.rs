//! Names of rules and quotas are any text. The exporter's text stays valid.

use super::{app, limits, published, send_many};
use crate::*;

#[tokio::test]
async fn any_name_is_a_valid_label() {
    let names = [
        "a\"b",
        "\"} 1\ntidegate_units_total{rule=\"forged",
        "line\nbreak",
        "back\\slash",
        "ends with \\",
        "café ☃ \u{202e}",
        "tab\tand\rreturn",
        "{}",
        " ",
    ];
    for name in names {
        let policy = Policy::new("quota", Quota::per_hour(1));
        let rule = Rule::with_policies(name, [policy]).expect("valid");
        let limits = limits([rule]);
        send_many(&app(limits.layer(name)), 2).await;
        let text = published(&limits);
        let denials = text.of(name, "denials_total", &[("quota", "quota")]);
        assert_eq!(denials, Some(1.0), "{name:?}: {}", text.text);
        assert_eq!(text.series_with("rule", "forged"), 0);
    }
}

/// Names of quotas stand in header fields, too, and are encoded for them.
#[tokio::test]
async fn the_name_of_a_quota_is_that_of_the_response_fields() {
    let policy = Policy::new("a,b=\"☃\"", Quota::per_hour(1));
    assert_eq!(policy.name(), "a,b=%22%E2%98%83%22");
    let rule = Rule::with_policies("search", [policy]).expect("valid");
    let limits = limits([rule]);
    send_many(&app(limits.layer("search")), 2).await;
    let of_quota = [("quota", "a,b=%22%E2%98%83%22")];
    let denials = published(&limits).of("search", "denials_total", &of_quota);
    assert_eq!(denials, Some(1.0));
}
