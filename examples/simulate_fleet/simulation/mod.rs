//! A fleet, its network and its Redis, in simulated time.
//!
//! The stores, the leases and the algorithm are those of the crate. The network and the server are
//! modelled. Time passes in ticks of a millisecond, and the random seed is given, so a scenario has
//! the same outcome on every run.

mod fleet;
mod network;
mod outcome;
mod random;
mod remote;
mod scenario;
mod server;

pub(crate) use fleet::run;
pub(crate) use outcome::Outcome;
pub(crate) use scenario::{Demand, Faults, Mode, Scenario, Upset};
