//! Calls of this service to a partner: they wait for their turns, and obey what the partner answers.

#[allow(clippy::module_inception)]
mod outgoing;
mod partner;
mod service;
mod turn;

pub use outgoing::Outgoing;
pub use service::OutgoingService;
pub use turn::{OutgoingBody, Turn};
