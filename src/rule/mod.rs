//! Rules: which path has which quotas, and the handle that swaps all of them at once.

mod on_error;
mod policy;
pub(crate) mod rule;
pub(crate) mod rules;
mod share;
mod shared_rules;

pub use on_error::OnError;
pub use policy::Policy;
pub(crate) use rule::Rule;
pub use rule::RuleError;
pub(crate) use rules::Rules;
pub use share::Share;
pub use shared_rules::SharedRules;

pub use crate::quota::QuotaError;
