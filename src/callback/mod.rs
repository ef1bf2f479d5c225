//! What answers instead of the handler.
//!
//! A [`DegradeCallback`] answers a request that was denied. An [`ErrorCallback`] answers one for
//! which no decision could be made, or whose handler failed; several of them, each for a type of
//! error, make an [`ErrorCallbackChain`](crate::ErrorCallbackChain).

pub(crate) mod defaults;
pub(crate) mod degrade_callback;
pub(crate) mod error_callback;
pub(crate) mod error_callback_chain;
pub(crate) mod failed;
mod panic;
mod problem;
mod recover;

pub use defaults::Problem;
pub(crate) use degrade_callback::{DegradeCallback, Denied};
pub(crate) use error_callback::{ErrorCallback, Recovery};
pub(crate) use failed::Cause;
pub(crate) use failed::Failed;
pub use failed::FailureKind;
pub(crate) use panic::{caught, guarded};
pub(crate) use problem::{key_refused, quota_exceeded, reduced_capacity};
pub(crate) use recover::{recover, recover_inner};

use std::pin::Pin;

/// A boxed future of a callback.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
