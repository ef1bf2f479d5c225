//! What layers count: decisions, denials by quota, errors, waiting requests, and how long the store
//! takes.
//!
//! The layers count from the start, with atomic additions and without locks.
//! [`Limits::snapshot`](crate::Limits::snapshot) reads the numbers of all layers that it made,
//! [`RateLimitLayer::snapshot`](crate::RateLimitLayer::snapshot) those of one.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tidegate::metrics::DecisionOutcome;
//! use tidegate::{Limits, Quota, Rule};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::new([Rule::new("getId", [Quota::per_hour(2)])?]);
//! let app: Router =
//!     Router::new().route("/getId", get(|| async { "1" }).layer(limits.layer("getId")));
//! for _ in 0..5 {
//!     app.clone().oneshot(Request::get("/getId").body(Body::empty())?).await?;
//! }
//!
//! let snapshot = limits.snapshot();
//! let rule = snapshot.rule("getId").expect("a layer uses it");
//! assert_eq!(rule.decisions(DecisionOutcome::Allowed), 2);
//! assert_eq!(rule.decisions(DecisionOutcome::Denied), 3);
//! assert_eq!(rule.denials, [("getId".to_owned(), 3)]);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `metrics`, `Limits::publish_metrics_every_second` publishes the numbers for
//! Prometheus and others, through the [`metrics`](https://docs.rs/metrics) facade.
//! `docs/metrics.md` has the names, alerts and a dashboard.
//!
//! A request that waits is counted once, by what became of it in the end. A request whose client
//! went away before the store had answered is not counted.

// Here stand numbers: what is counted (`rule_counters.rs`, `latency.rs`), what is read of it
// (`rule_snapshot.rs`, `denial_summary.rs` for the log) and how it is published (`table.rs`,
// `samples.rs`). What the page shows by second, and of keys, is in `src/activity/`.

#[cfg(feature = "tracing")]
mod denial_summary;
mod latency;
mod named_counters;
#[cfg(feature = "metrics")]
mod publish;
#[cfg(feature = "metrics")]
mod publisher;
mod rule_counters;
mod rule_snapshot;
#[cfg(feature = "metrics")]
mod samples;
mod table;

pub use latency::LATENCY_BUCKETS;

#[cfg(all(test, feature = "metrics"))]
pub(crate) use publish::INTERVAL;
#[cfg(all(feature = "config", feature = "metrics"))]
pub(crate) use publish::publish_reloads;
#[cfg(feature = "metrics")]
pub(crate) use publish::publish_until;
#[cfg(feature = "metrics")]
pub(crate) use publisher::Publisher;
pub(crate) use rule_counters::{NearLimit, RuleCounters};
pub use rule_snapshot::{DecisionOutcome, LatencyBucket, LatencySnapshot, PlanSnapshot, Snapshot};
pub use table::RuleSnapshot;
