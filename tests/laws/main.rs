//! The laws of counting in plain numbers, at their extremes, and under the fuzz targets, without
//! Redis. `tests/histories` checks them on random histories.
//!
//! No test of this binary starts a process: a process that is being started holds the sockets of
//! this one for a moment, and the targets of `fuzz` use sockets while the time is paused.
//!
//! `TIDEGATE_HISTORIES` says how many random cases each law is checked with.

mod cases;
mod extremes;
mod fuzz;
mod periods;
