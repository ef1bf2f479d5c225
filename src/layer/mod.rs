//! The middleware: asks a store before the handler runs.

mod decide;
mod fields;
mod future;
mod rate_limit_layer;
mod service;
mod settings;
mod trouble;
mod waiting;

#[cfg(feature = "redis")]
pub(crate) use decide::recover;
pub use fields::Headers;
#[cfg(feature = "redis")]
pub(crate) use future::OnInnerError;
pub use future::ResponseFuture;
pub use rate_limit_layer::RateLimitLayer;
pub use service::RateLimit;
