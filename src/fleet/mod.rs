//! What the processes of a service tell each other: reports of their status, and operators' keys,
//! which are let through, blocked or raised. `src/limits/fleet.rs` exchanges both each second,
//! by the trait [`Fleet`](crate::store::Fleet) of stores; for Redis that is `redis_fleet.rs`, with
//! `lua/fleet/`.

mod member;
mod operator_keys;
#[cfg(feature = "page")]
pub(crate) mod process;
#[cfg(feature = "redis")]
mod redis_fleet;
#[cfg_attr(not(feature = "page"), path = "no_reports.rs")]
mod reports;

pub(crate) use member::Member;
pub(crate) use operator_keys::{OperatorKeys, OperatorVerdict};
pub(crate) use reports::Reports;
