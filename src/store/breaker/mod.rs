//! A store that is not asked while it keeps failing.

mod circuit_breaker;
mod prober;
mod refused_take;
mod shared_state;
mod state;

pub(super) use circuit_breaker::Breaker;
pub use circuit_breaker::CircuitBreaker;
