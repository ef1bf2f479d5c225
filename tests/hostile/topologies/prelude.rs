//! What most tests of this binary use.

pub(crate) use std::error::Error;

pub(crate) use kit::Redis as Server;
pub(crate) use kit::cluster::Plan;
pub(crate) use kit::prelude::*;
pub(crate) use kit::proxy::{Extra, FlightFault, Part, Spot};
pub(crate) use kit::sentinels::{NAME, Sentinels};
pub(crate) use tidegate::Redis;
