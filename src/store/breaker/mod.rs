//! A store that is not asked while it keeps failing.

mod circuit_breaker;
mod prober;
mod refused_take;
mod shared_state;
mod state;

pub use circuit_breaker::CircuitBreaker;
