//! What the processes of a service tell each other: how they fare, and operators' keys.

pub(crate) mod member;
pub(crate) mod process;
