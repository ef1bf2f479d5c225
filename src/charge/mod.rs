//! Charges and permits of requests until they are kept, settled or given back: in the extensions of
//! requests and responses, and in the queue that gives back in the background.
//!
//! `answers.rs` has what a response says of its limit. `open_charges.rs` counts what may still be
//! given back, which wakes waiters. `report.rs` tells a store that a request has failed or
//! succeeded, under a rule with a lock-out. `path_state.rs` has what all layers of a path share: a
//! charge counts its refunds there. What a request is charged is decided in `src/layer/decisions/`,
//! and the outcomes that give it back are in `src/rule/`.

pub(crate) mod answers;
#[allow(clippy::module_inception)]
mod charge;
mod charges;
mod meter;
mod open_charges;
mod path_state;
mod permit;
mod refund_queue;
mod report;
mod watched_body;

pub(crate) use answers::{Answers, Denial, LayerResponse};
pub use charge::{Charge, Settled};
pub(crate) use charge::{ChargeListener, Effect};
pub use charges::Charges;
pub(crate) use charges::in_call;
pub use meter::{Meter, SettledBody};
pub(crate) use open_charges::OnClosed;
pub(crate) use path_state::{PathOwner, PathState, Telling};
pub(crate) use permit::LatePermit;
pub use permit::Permit;
pub(crate) use refund_queue::{LateCharge, RefundQueue, spawn};
pub use report::Attempts;
pub(crate) use watched_body::FrameWatcher;
pub use watched_body::WatchedBody;
