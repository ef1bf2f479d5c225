//! The middleware that limits the requests in flight in the whole fleet.

mod exclusive;
mod exclusive_layer;
mod exclusive_settings;

pub use exclusive::Exclusive;
pub use exclusive_layer::ExclusiveLayer;
