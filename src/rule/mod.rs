//! Rules: which path has which quotas, and the handle that swaps all of them at once.

mod on_error;
mod one;
mod policy;
mod set;
mod share;
mod shared;

pub use on_error::OnError;
pub use one::{Rule, RuleError};
pub use policy::Policy;
pub use set::Rules;
pub use share::Share;
pub use shared::SharedRules;
