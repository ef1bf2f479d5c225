//! The middleware that lets only so many requests run at a time, in the whole fleet.

mod body;
mod decide;
mod future;
mod layer;
mod service;
mod settings;

pub use future::ExclusiveFuture;
pub use layer::ExclusiveLayer;
pub use service::Exclusive;
