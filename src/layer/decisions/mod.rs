//! What becomes of a take: whether it goes on, waits, is denied or has no decision, and what is
//! counted and told of that. It knows nothing of requests over HTTP.

mod counting;
mod crossing;
mod decide;
mod decider;
mod listeners;
mod locked_out;
mod shadow_take;
mod store_log;
mod teller;
mod waiting;
mod warnings;

pub use crossing::Crossing;
pub(crate) use crossing::Crossings;
pub(crate) use decide::{AskedTake, Decided, Deciding, WaitingTake};
pub(crate) use decide::{ask, capabilities, check_capabilities};
pub(crate) use decider::{Decider, RuleSource};
pub(crate) use listeners::Listeners;
pub use locked_out::LockedOut;
pub(crate) use locked_out::on_lockout;
pub(crate) use store_log::StoreLog;
pub(crate) use warnings::Warnings;
