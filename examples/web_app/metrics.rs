//! `/metrics`: the counters, as Prometheus reads them.
//!
//! The names are those of the feature `metrics` (`docs/metrics.md`), which an app with an exporter
//! would use. This app renders the snapshot itself, so that it needs no feature.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TEXT_FORMAT, TextEncoder};
use tidegate::Limits;
use tidegate::decision::Source;
use tidegate::metrics::{DecisionOutcome, LatencySnapshot, RuleSnapshot, Snapshot};

/// The route. Its text is made for each request.
pub(crate) fn route(limits: Limits) -> MethodRouter {
    get(async move || text(&limits.snapshot()))
}

fn text(snapshot: &Snapshot) -> Response {
    let mut families = families(snapshot);
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    match TextEncoder::new().encode(&families, &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn families(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let counter = |name: &str, help: &str, read: fn(&RuleSnapshot) -> Vec<Metric>| {
        let metrics = snapshot.rules.iter().flat_map(read).collect();
        family(name, help, MetricType::COUNTER, metrics)
    };
    vec![
        counter(
            "tidegate_decisions_total",
            "Requests by rule, by what became of them, and by who decided.",
            decisions,
        ),
        counter(
            "tidegate_denials_total",
            "Denied requests by the quota that had no room for them.",
            |rule| by_quota(rule, &rule.denials),
        ),
        counter(
            "tidegate_shadow_denials_total",
            "Requests that a quota of a shadow rule would have denied.",
            |rule| by_quota(rule, &rule.shadow_denials),
        ),
        counter(
            "tidegate_lockouts_total",
            "How often failures have begun to lock a key out.",
            |rule| of_rule(rule, rule.lockouts),
        ),
        counter(
            "tidegate_units_total",
            "Units that allowed requests were charged.",
            |rule| of_rule(rule, rule.units),
        ),
        counter(
            "tidegate_near_limit_total",
            "Allowed requests after which a quota was nearly used up.",
            |rule| of_rule(rule, rule.near_limit),
        ),
        counter(
            "tidegate_refunds_total",
            "Charges that were given back, wholly or in part.",
            |rule| of_rule(rule, rule.refunds),
        ),
        counter(
            "tidegate_refunded_units_total",
            "Units that were given back.",
            |rule| of_rule(rule, rule.refunded_units),
        ),
        counter(
            "tidegate_refunds_lost_total",
            "Charges that were to be given back by their outcome, and stay charged.",
            |rule| of_rule(rule, rule.refunds_lost),
        ),
        counter(
            "tidegate_plan_decisions_total",
            "Decisions about requests with a plan of the rule: a part of tidegate_decisions_total.",
            by_plan,
        ),
        counter(
            "tidegate_unknown_plans_total",
            "Requests with a plan that the rule does not have: its own quotas applied.",
            |rule| match rule.plans.is_empty() {
                true => Vec::new(),
                false => of_rule(rule, rule.unknown_plans),
            },
        ),
        counter(
            "tidegate_errors_total",
            "Failures of the store, and requests without a key, by kind.",
            errors,
        ),
        counter(
            "tidegate_admitted_without_decision_total",
            "Requests that were admitted although no store decided.",
            |rule| of_rule(rule, rule.proceeded),
        ),
        counter(
            "tidegate_waited_requests_total",
            "Requests that waited for units, or still do.",
            |rule| of_rule(rule, rule.waited),
        ),
        family(
            "tidegate_waiting_requests",
            "Requests that wait for units now.",
            MetricType::GAUGE,
            snapshot.rules.iter().map(waiting).collect(),
        ),
        family(
            "tidegate_unmatched_requests_total",
            "Requests of layers whose path has no rule.",
            MetricType::COUNTER,
            vec![count(&[], snapshot.unmatched)],
        ),
        family(
            "tidegate_store_duration_seconds",
            "How long the store took to answer.",
            MetricType::HISTOGRAM,
            snapshot.rules.iter().map(latency).collect(),
        ),
    ]
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn of_rule(rule: &RuleSnapshot, number: u64) -> Vec<Metric> {
    vec![count(&[("rule", rule.path.as_str())], number)]
}

fn decisions(rule: &RuleSnapshot) -> Vec<Metric> {
    let each = DecisionOutcome::ALL
        .into_iter()
        .flat_map(|outcome| Source::ALL.map(|source| (outcome, source)));
    // What nobody decides here stays away until somebody does.
    let each = each.filter(|(outcome, source)| {
        use {DecisionOutcome::*, Source::*};
        let is_usual = matches!(
            (outcome, source),
            (Allowed | Denied, Redis | Local | Fallback)
        );
        is_usual || rule.decisions_by(*outcome, *source) > 0
    });
    let counts = each.map(|(outcome, source)| {
        let labels = [
            ("rule", rule.path.as_str()),
            ("outcome", outcome.name()),
            ("source", source.name()),
        ];
        count(&labels, rule.decisions_by(outcome, source))
    });
    counts.collect()
}

fn by_quota(rule: &RuleSnapshot, denials: &[(String, u64)]) -> Vec<Metric> {
    let counts = denials
        .iter()
        .map(|(quota, number)| count(&[("rule", rule.path.as_str()), ("quota", quota)], *number));
    counts.collect()
}

fn by_plan(rule: &RuleSnapshot) -> Vec<Metric> {
    let counts = rule.plans.iter().flat_map(|plan| {
        [("allowed", plan.allowed), ("denied", plan.denied)].map(|(outcome, number)| {
            let labels = [
                ("rule", rule.path.as_str()),
                ("plan", plan.name.as_str()),
                ("outcome", outcome),
            ];
            count(&labels, number)
        })
    });
    counts.collect()
}

fn errors(rule: &RuleSnapshot) -> Vec<Metric> {
    let counts = rule
        .errors()
        .map(|(kind, number)| count(&[("rule", rule.path.as_str()), ("kind", kind)], number));
    counts.collect()
}

fn count(labels: &[(&str, &str)], number: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(number as f64);
    let mut metric = metric(labels);
    metric.set_counter(counter);
    metric
}

fn waiting(rule: &RuleSnapshot) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(rule.waiting as f64);
    let mut metric = metric(&[("rule", rule.path.as_str())]);
    metric.set_gauge(gauge);
    metric
}

fn latency(rule: &RuleSnapshot) -> Metric {
    let mut histogram = Histogram::default();
    histogram.set_sample_count(rule.latency.count());
    histogram.set_sample_sum(rule.latency.sum().as_secs_f64());
    histogram.set_bucket(buckets(&rule.latency));
    let mut metric = metric(&[("rule", rule.path.as_str())]);
    metric.set_histogram(histogram);
    metric
}

/// Each with the answers of all shorter buckets, as the format wants it. The encoder adds the last
/// one, which has no bound.
fn buckets(latency: &LatencySnapshot) -> Vec<Bucket> {
    let mut so_far = 0;
    let buckets = latency.buckets().iter().filter_map(|bucket| {
        so_far += bucket.count;
        let mut made = Bucket::default();
        made.set_cumulative_count(so_far);
        made.set_upper_bound(bucket.at_most?.as_secs_f64());
        Some(made)
    });
    buckets.collect()
}

fn metric(labels: &[(&str, &str)]) -> Metric {
    let labels = labels.iter().map(|(name, value)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value((*value).to_owned());
        label
    });
    Metric::from_label(labels.collect())
}
