//! The rules of an application, with the store that they count in.
//!
//! [`Limits`] makes the layers of an application, decides by the name of a rule for code that has
//! no HTTP request, and tells what was counted.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate::{Limits, PeerIp, Quota, Rule};
//!
//! let search = Rule::new("search", [Quota::per_minute(100)])?;
//! let limits = Limits::new([search]).key(PeerIp);
//! let app: Router = Router::new().route("/search", get("1").layer(limits.layer("search")));
//! # let _ = app;
//! assert!(limits.verify().is_ok(), "each layer has a rule, and each rule a layer");
//! # Ok::<(), tidegate::rule::RuleError>(())
//! ```

// Here stands what begins at the limits as a whole, such as a layer, a check without a request, an
// operator's change or a report, and what ties the other folders together for it. How it is done
// stands with its subject: one request in `src/layer/`, rules in `src/rule/`, files in
// `src/config/` and `src/live/`, counts in `src/store/`, numbers in `src/metrics/`, what processes
// tell each other in `src/fleet/`, calls of partners in `src/outgoing/`, and the page in
// `src/page/`.

#[cfg(feature = "config")]
mod file;
mod fleet;
mod installed;
#[allow(clippy::module_inception)]
mod limits;
pub(crate) mod operators;
mod paths;
mod questions;
#[cfg_attr(not(feature = "page"), path = "no_reports.rs")]
pub(crate) mod reports;
mod set_up;
mod usage;

pub use limits::Limits;
pub use operators::{Operation, OperatorError, Reset};
pub(crate) use questions::counts_of_plans;
pub use usage::{Usage, UsageReader};

pub use crate::outgoing::{Outgoing, OutgoingBody, OutgoingService, Turn};
