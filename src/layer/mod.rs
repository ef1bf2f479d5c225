//! The middleware: asks a store before the handler runs.

mod decide;
mod fields;
mod future;
mod rate_limit_layer;
mod service;
mod settings;
mod waiting;

pub use fields::Headers;
pub use future::ResponseFuture;
pub use rate_limit_layer::RateLimitLayer;
pub use service::RateLimit;
