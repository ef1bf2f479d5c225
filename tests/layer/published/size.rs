//! How much text a scrape is.

use super::{app, published, redis_store, send_many};
use crate::*;

const RULES: usize = 10_000;
const USED: usize = 100;
const MAX_BYTES: usize = 1_000_000;

/// A name of 33 characters, as of a route.
fn path(number: usize) -> String {
    format!("/api/v1/organisations/{number:05}/items")
}

#[tokio::test]
async fn a_hundred_used_rules_of_ten_thousand_are_less_than_a_megabyte() {
    let rules = (0..RULES).map(|number| {
        let quick = Policy::new("per-second", Quota::per_second(100));
        let daily = Policy::new("per-day", Quota::per_day(1_000_000));
        Rule::with_policies(&path(number), [quick, daily]).expect("valid")
    });
    // The store answers later, so that there are histograms.
    let (store, _server) = redis_store().await;
    let limits = Limits::new(Rules::from_iter(rules)).store(store);
    for number in 0..USED {
        let app = app(limits.layer(&path(number * 97)));
        assert_eq!(send_many(&app, 1).await, 1);
    }
    let text = published(&limits);
    // The numbers of docs/metrics.md: of each rule, of its two quotas, of the histogram.
    assert_eq!(text.series_with("rule", &path(0)), 33 + 2 + 16);
    assert!(text.text.len() < MAX_BYTES, "{} bytes", text.text.len());
    assert_eq!(text.sum("tidegate_units_total", &[]), USED as f64);
    let is_of_rule = |line: &&str| line.starts_with("tidegate_units_total{");
    assert_eq!(text.text.lines().filter(is_of_rule).count(), USED);
}
