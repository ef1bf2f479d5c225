//! What the processes of a service tell each other: how they fare, and operators' keys.

mod member;
mod operator_keys;
#[cfg(feature = "page")]
pub(crate) mod process;

pub(crate) use member::Member;
pub(crate) use operator_keys::{OperatorKeys, OperatorSays};
