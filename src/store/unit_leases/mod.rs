//! A store that takes units ahead.

mod demand;
mod held_lease;
mod key_leases;
mod moment;
mod place;
mod unit_leases;

pub use unit_leases::UnitLeases;
