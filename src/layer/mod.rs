//! The middleware: asks a store before the inner service runs.

mod fields;
mod question;
mod rate_limit_layer;
mod service;
mod settings;

pub use fields::Headers;
pub use rate_limit_layer::RateLimitLayer;
pub use service::RateLimit;
