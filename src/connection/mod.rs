//! Redis: where it is, the connection that comes back by itself, and the scripts.

mod address;
mod calls;
#[cfg(feature = "cluster")]
mod cluster;
mod errors;
mod handle;
mod keeper;
mod line;
mod open;
mod reconnecting;
mod script;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;

pub use address::{IntoRedisAddress, RedisAddress};
pub(crate) use calls::Calls;
#[cfg(feature = "cluster")]
pub(crate) use cluster::{SLOTS, slot};
pub(crate) use errors::store_error;
pub use handle::Redis;
pub use reconnecting::Reconnecting;
pub(crate) use script::Script;
pub(crate) use scripts::*;
