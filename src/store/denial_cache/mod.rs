//! A store that answers a denied key by itself until the denial is over.

mod denial;
mod denial_cache;
mod denial_set;
mod denials;
mod pending_take;

pub use denial_cache::DenialCache;
pub(super) use denials::Denials;
