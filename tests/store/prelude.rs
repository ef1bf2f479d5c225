//! What most tests of this binary use: names of the crate and of the kit, and questions that are
//! answered or panic.

pub(crate) use kit::clocked::{by, clock_at, remaining};
pub(crate) use kit::prelude::*;

pub(crate) use crate::{allowed, ask, started};
