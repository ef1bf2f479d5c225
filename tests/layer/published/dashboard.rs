//! The alerts and the dashboard ask for metrics and labels that are published.

use super::names::everything;
use super::*;

const ALERTS: &str = include_str!("../../../docs/metrics/alerts.yml");
const DASHBOARD: &str = include_str!("../../../docs/metrics/dashboard.json");

/// The names of metrics in a text, as Prometheus publishes them.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| {
        !character.is_ascii_alphanumeric() && character != '_' && character != ':'
    });
    words.filter(|word| word.starts_with("tidegate_")).collect()
}

/// The labels that a query selects by, and that it keeps apart.
fn labels(query: &str) -> BTreeSet<&str> {
    let mut labels = BTreeSet::new();
    for selector in query.split('{').skip(1) {
        let (selector, _) = selector.split_once('}').expect("an end");
        let matchers = selector.split("\",").map(|matcher| {
            let end = matcher.find(['=', '!']).expect("an operator");
            &matcher[..end]
        });
        labels.extend(matchers);
    }
    for kept in query.split(" by (").skip(1) {
        let (kept, _) = kept.split_once(')').expect("an end");
        labels.extend(kept.split(", "));
    }
    labels
}

async fn check(names: BTreeSet<&str>, labels: BTreeSet<&str>) {
    let published: BTreeMap<_, _> = everything().await;
    let of_histogram = ["_bucket", "_sum", "_count"];
    for name in names {
        let mut metrics = of_histogram
            .iter()
            .filter_map(|part| name.strip_suffix(part));
        let is_published = published.contains_key(name)
            || metrics.any(|metric| published.get(metric).is_some_and(|it| it.0 == "histogram"));
        assert!(is_published, "{name} is not published");
    }
    let published: BTreeSet<_> = published.values().flat_map(|(_, labels)| labels).collect();
    for label in labels {
        // `job` is the scraper's own.
        let is_published =
            ["le", "job"].contains(&label) || published.iter().any(|it| *it == label);
        assert!(is_published, "nothing has the label {label}");
    }
}

#[tokio::test]
async fn each_alert_asks_for_what_is_published() {
    let names = names(ALERTS);
    assert!(names.len() >= 4, "{names:?}");
    let recorded = ALERTS.matches("- record: rule:").count();
    assert_eq!((recorded, ALERTS.matches("- alert: ").count()), (2, 5));
    let queries: String = ALERTS.lines().filter(|line| !line.contains("{{")).collect();
    check(names, labels(&queries)).await;
}

#[tokio::test]
async fn each_panel_asks_for_what_is_published() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("valid JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = String::new();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        let is_right = numbers.insert(panel["id"].as_u64());
        assert!(is_right, "two panels with one id");
        let targets = panel["targets"].as_array().expect("queries");
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            queries.push_str(target["expr"].as_str().expect("a query"));
            queries.push('\n');
        }
    }
    check(names(DASHBOARD), labels(&queries)).await;
}

/// A metric that nothing shows is one that nobody sees.
#[tokio::test]
async fn each_metric_is_on_the_dashboard() {
    for name in everything().await.into_keys() {
        assert!(DASHBOARD.contains(&name), "{name}");
    }
}
