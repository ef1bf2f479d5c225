//! Requests and calls that wait for their turn instead of being denied. The open charges, whose end
//! wakes waiters, are in `src/charge/`.
//!
//! ```text
//! Gate ── denied, and may wait ──▶ Waiter, with a Place in the WaitQueues of its path
//!   ▲                                 │ retry-after or a second is over; a refund, a permit or
//!   └────────── asks anew ◀───────────┘ a reset; another rule; an operator's change of its key
//! OpenCharge ── given back ──▶ WaitQueues: the first waiter of each queue asks
//! ```
//!
//! A newcomer that finds somebody overdue, or under lanes anybody, asks with a look and waits
//! behind. A request that an overloaded store did not answer is in no queue: it waits for a slot to
//! ask again.
//!
//! `src/layer/decisions/waiting.rs` says what a denial means for a waiter: it knows takes and
//! decisions.

mod line;
mod places;
mod wait_queue;
mod waiter;

pub(crate) use line::lane_of;
pub(crate) use wait_queue::{Lacking, Left, QueueId, Refill, Turn, WaitQueues};
pub(crate) use waiter::{Wait, WaitLimits, Waiter};
