//! Calls of this service to a partner: they wait for their turns, and obey what the partner answers.
//!
//! `ready_call.rs` is one call, `service.rs` a tower service that takes turns, and `partner.rs` reads what
//! a partner says of its limits. The setting of a rule is in `src/rule/outgoing.rs`, how calls wait
//! in `src/waiting/`.

#[allow(clippy::module_inception)]
mod outgoing;
mod partner;
mod ready_call;
mod service;

pub use outgoing::Outgoing;
pub use ready_call::{OutgoingBody, Turn};
pub use service::OutgoingService;
