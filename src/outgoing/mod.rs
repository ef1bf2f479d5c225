//! Calls of this service to a partner: they wait for their turns, and obey what the partner answers.

mod body;
#[allow(clippy::module_inception)]
mod outgoing;
mod partner;
mod service;
mod turn;

pub use body::OutgoingBody;
pub use outgoing::Outgoing;
pub use service::OutgoingService;
pub use turn::Turn;
