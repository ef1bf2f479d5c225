//! Rules: which quotas limit which path.
//!
//! A [`Rule`] has a path, one or more [quotas](crate::Quota), a key and a cost. The path is the
//! name of the rule, and not that of a URL. [`Rules`] hold the rules of a service by their paths,
//! and [`SharedRules`] let all of them be replaced while requests are being served.
//!
//! ```
//! use tidegate::rule::SharedRules;
//! use tidegate::{PeerIp, Quota, Rule, Rules};
//!
//! # fn main() -> Result<(), tidegate::rule::RuleError> {
//! // Each address: at most 5 logins in any minute, and at most 50 in any day.
//! let login = Rule::new("login", [Quota::per_minute(5), Quota::per_day(50)])?.with_key(PeerIp);
//! let shared = SharedRules::new(Rules::from_iter([login]));
//! assert!(shared.load().get("login").is_some());
//!
//! // From the next request on, nothing is limited.
//! shared.replace(Rules::default());
//! assert!(shared.load().get("login").is_none());
//! # Ok(())
//! # }
//! ```

// What users say of a limit stands here, and what follows from it without a request. `Quota` is in
// `src/quota.rs`, `Factor` in `src/factor.rs`, `Period` and `Share` in `src/algorithm/`: they are
// only shown here. Where rules come from is in `src/config/`, how a request is decided by them in
// `src/layer/`, and the question of a rule and a key in `src/take.rs`.

// Without a file, nothing tells where rules come from.
#![cfg_attr(not(feature = "config"), allow(dead_code))]

mod answers;
mod exemptions;
pub(crate) mod headers;
mod lockout;
mod max_concurrent;
mod outcomes;
mod outgoing;
mod plans;
mod policy;
mod quotas;
mod raise;
mod resolved;
pub(crate) mod rule;
mod rule_error;
pub(crate) mod rules;
mod settings;
mod shared_rules;
mod subject;

pub use crate::algorithm::period::{BeginningError, Period, Weekday, ZoneError};
pub use crate::algorithm::share::Share;
pub use crate::factor::Factor;
#[cfg(feature = "config")]
pub(crate) use answers::AnswerSettings;
pub(crate) use exemptions::Exemptions;
pub use lockout::Lockout;
pub(crate) use lockout::may_be_everyone;
pub(crate) use outcomes::{GRPC_STATUS, Outcomes, Statuses};
pub use plans::Plan;
pub use policy::Policy;
pub use quotas::Quotas;
pub(crate) use raise::Factors;
pub use rule::{OnError, Rule};
pub use rule_error::RuleError;
#[cfg(feature = "config")]
pub(crate) use rules::FileSwitches;
pub use rules::Rules;
pub use shared_rules::SharedRules;
pub(crate) use shared_rules::WeakRules;
#[cfg(feature = "config")]
pub(crate) use shared_rules::{Applied, ContentHash};
pub use subject::Subject;

pub use crate::quota::{Quota, QuotaError};
