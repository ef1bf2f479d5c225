//! Which series there are, and from when on.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::decision::Source;
use tidegate::key::KeyErrorKind;
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::Quotas;
use tidegate::store::StoreErrorKind;
use tidegate::{Limits, Quota};

use super::{app, exporter, limits, per_hour, published, published_to, redis_store, send_many};

const DOCS: &str = include_str!("../../../docs/metrics.md");

#[test]
fn all_outcomes_and_kinds_are_there_at_0_before_the_first_request() {
    let limits = limits([per_hour("getId", 5)]);
    let _layer = limits.layer("getId");
    let text = published(&limits);
    for outcome in DecisionOutcome::ALL {
        for source in Source::ALL {
            let labels = [
                ("rule", "getId"),
                ("outcome", outcome.name()),
                ("source", source.name()),
            ];
            let number = text.get("tidegate_decisions_total", &labels);
            assert_eq!(number, Some(0.0), "{labels:?}");
        }
    }
    let store = StoreErrorKind::ALL.map(StoreErrorKind::name);
    let key = KeyErrorKind::ALL.map(KeyErrorKind::name);
    for kind in store.into_iter().chain(key) {
        let number = text.get(
            "tidegate_errors_total",
            &[("rule", "getId"), ("kind", kind)],
        );
        assert_eq!(number, Some(0.0), "{kind}");
    }
    let denials = [("rule", "getId"), ("quota", "getId")];
    assert_eq!(text.get("tidegate_denials_total", &denials), Some(0.0));
    assert_eq!(
        text.get("tidegate_unmatched_requests_total", &[]),
        Some(0.0)
    );
}

#[test]
fn rules_that_no_layer_uses_have_no_series() {
    let limits = limits([per_hour("used", 5), per_hour("unused", 5)]);
    let _layer = limits.layer("used");
    let text = published(&limits);
    assert!(text.series_with("rule", "used") > 0);
    assert!(!text.text.contains("unused"));
}

#[tokio::test]
async fn a_removed_rule_is_not_published_and_goes_on_when_it_comes_back() {
    let limits = limits([per_hour("stays", 5), per_hour("goes", 5)]);
    let _layer = limits.layer("stays");
    let app = app(limits.layer("goes"));
    send_many(&app, 2).await;
    let both = limits.rules().load();

    let stays = per_hour("stays", 5);
    limits.rules().replace([stays].into_iter().collect());
    send_many(&app, 3).await;
    let text = published(&limits);
    assert_eq!(text.series_with("rule", "goes"), 0);
    assert!(text.series_with("rule", "stays") > 0);
    assert_eq!(
        text.get("tidegate_unmatched_requests_total", &[]),
        Some(3.0)
    );

    limits.rules().replace((*both).clone());
    send_many(&app, 1).await;
    let goes = published(&limits).sum("tidegate_decisions_total", &[("rule", "goes")]);
    assert_eq!(goes, 3.0);
}

/// The type and the labels of each metric, by its name.
pub(crate) async fn everything() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let (store, _server) = redis_store().await;
    let shadow = per_hour("getId", 1);
    let pro = Quotas::new([Quota::per_second(5)]).expect("valid");
    let with_plan = per_hour("getId", 5).with_plan("pro", pro).expect("valid");
    let limits = limits([with_plan.with_shadow(shadow)]).store(store);
    send_many(&app(limits.layer("getId")), 1).await;
    let text = published(&limits);
    assert_eq!(text.helps(), &text.types().keys().cloned().collect());
    let of = |(name, kind): (&String, &String)| {
        let mut labels = text.labels_of(name);
        labels.extend(text.labels_of(&format!("{name}_sum")));
        let labels = labels.into_iter().map(str::to_owned).collect();
        (name.clone(), (kind.clone(), labels))
    };
    text.types().iter().map(of).collect()
}

#[test]
fn a_file_that_is_refused_is_published() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let good = "[rules.getId]\nmax-count = 5\nwindow = \"10s\"";
    std::fs::write(&file, good).expect("written");
    let limits = Limits::from_file(&file).expect("valid");
    let numbers = || {
        let text = published(&limits);
        [
            "version",
            "reload_failing",
            "reloads_total",
            "reload_errors_total",
        ]
        .map(|name| text.get(&format!("tidegate_config_{name}"), &[]))
        .map(|number| number.expect("published") as u64)
    };
    assert_eq!(numbers(), [1, 0, 0, 0]);
    std::fs::write(&file, "nonsense").expect("written");
    assert!(limits.reload(&file).is_err());
    assert_eq!(numbers(), [1, 1, 0, 1]);
    std::fs::write(&file, good.replace('5', "6")).expect("written");
    assert!(limits.reload(&file).is_ok());
    assert_eq!(numbers(), [2, 0, 1, 1]);
}

#[tokio::test]
async fn the_docs_list_what_is_published() {
    let all = everything().await;
    let rows = all.iter().map(|(name, (kind, labels))| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = labels.join(", ");
        format!("| `{name}` | {kind} | {labels} |").replace("|  |", "| |")
    });
    let missing: Vec<_> = rows.filter(|row| !DOCS.contains(row)).collect();
    assert_eq!(missing, Vec::<String>::new());
    let documented = DOCS.lines().filter(|line| line.starts_with("| `tidegate_"));
    assert_eq!(documented.count(), all.len());
}

#[tokio::test]
async fn the_names_are_those_that_prometheus_recommends() {
    for (name, (kind, _)) in everything().await {
        assert_eq!(
            kind == "counter",
            name.ends_with("_total"),
            "{name}: {kind}"
        );
        assert_eq!(
            kind == "histogram",
            name.ends_with("_seconds"),
            "{name}: {kind}"
        );
    }
}

/// Exporters can append units and `_total` themselves.
#[tokio::test]
async fn an_exporter_that_corrects_names_changes_none() {
    let (store, _server) = redis_store().await;
    let limits = limits([per_hour("getId", 5)]).store(store);
    send_many(&app(limits.layer("getId")), 1).await;
    let corrected = exporter().with_recommended_naming(true).build_recorder();
    let corrected = published_to(&corrected, &limits);
    assert_eq!(corrected.types(), published(&limits).types());
}
