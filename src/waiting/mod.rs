//! Requests and calls that wait for their turn instead of being denied, and what this process may
//! still give back to them.
//!
//! ```text
//! Gate ── denied, and may wait ──▶ Waiter, with a Place in the WaitQueues of its path
//!   ▲                                 │ its turn: the time, a refund, a permit, new rules
//!   └────────── asks anew ◀───────────┘
//! OpenCharge ── given back ──▶ WaitQueues: the first waiter of each queue asks
//! ```
//!
//! What a denial means for a waiter says `src/layer/waiting.rs`, which knows takes and decisions.

mod open_charges;
mod wait_queue;
mod waiter;

pub(crate) use open_charges::{OpenCharge, OpenCharges};
pub(crate) use wait_queue::{Lacking, Left, QueueId, Refill};
pub(crate) use waiter::{Asked, Wait, WaitLimits, Waiter, WaitingSince};
