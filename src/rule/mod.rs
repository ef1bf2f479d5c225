//! Rules: which path has which quotas, and the handle that swaps all of them at once.

mod one;
mod policy;
mod set;
mod shared;

pub use one::{OnError, Rule, RuleError};
pub use policy::Policy;
pub use set::Rules;
pub use shared::SharedRules;
