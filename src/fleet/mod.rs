//! What the processes of a service tell each other: reports of their status, and operators' keys,
//! which are let through, blocked or raised. `src/limits/fleet.rs` exchanges both each second,
//! through the store (`src/store/fleet.rs`; for Redis `redis_fleet.rs` and `lua/fleet/`).

mod member;
mod operator_keys;
#[cfg(feature = "page")]
pub(crate) mod process;

pub(crate) use member::Member;
pub(crate) use operator_keys::{OperatorKeys, OperatorSays};
