//! What answers instead of the handler.
//!
//! A [`DegradeCallback`] answers a request that was denied. An [`ErrorCallback`] answers one for
//! which no decision could be made, or whose handler failed; several of them, each for a type of
//! error, make an [`ErrorCallbackChain`].

mod chain;
mod defaults;
mod degrade;
mod error;
mod failed;
mod panic;
mod problem;
mod recover;

pub use chain::ErrorCallbackChain;
pub use defaults::{FailOpen, Problem};
pub use degrade::{DegradeCallback, Denied};
pub use error::{ErrorCallback, Recovery};
pub(crate) use failed::Cause;
pub use failed::{Failed, FailureKind};
pub(crate) use panic::{caught, guarded};
pub(crate) use problem::{key_refused, quota_exceeded, reduced_capacity};
pub(crate) use recover::{recover, recover_inner};

use std::pin::Pin;

/// A boxed future of a callback.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
