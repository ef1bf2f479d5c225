//! The middleware that bounds how many requests are in flight at a time, in the whole fleet.

mod layer;
mod service;
mod settings;

pub use layer::ExclusiveLayer;
pub use service::Exclusive;
