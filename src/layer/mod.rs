//! The middleware: asks a store before the inner service runs.

pub(crate) mod headers;
mod question;
mod rate_limit;
pub(crate) mod rate_limit_layer;
mod settings;

pub(crate) use headers::Headers;
pub use rate_limit::RateLimit;
pub(crate) use rate_limit_layer::RateLimitLayer;

pub use crate::admission::ResponseFuture;
