//! The middleware that limits the requests in flight in the whole fleet.

mod exclusive_layer;

pub use exclusive_layer::{Exclusive, ExclusiveLayer};
