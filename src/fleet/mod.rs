//! What the processes of a service tell each other: reports of their status, and operators' keys,
//! which are let through, blocked or raised.
//!
//! Here stand what is told, and how Redis keeps it: `redis_fleet.rs`, with `lua/fleet/`. The trait
//! [`Fleet`](crate::store::Fleet), by which any store may keep it, is in `src/store/fleet.rs`. The
//! task that exchanges it each second is in `src/limits/fleet.rs`, and what operators call is in
//! `src/limits/operators.rs`.

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
