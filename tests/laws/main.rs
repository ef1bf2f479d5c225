//! The laws of counting, checked from outside against brute force, without Redis.
//!
//! The crate keeps running totals, sub-windows and buckets. The oracle here keeps a list and adds
//! it up. Neither knows of the other: these tests use the public interface alone.
//!
//! No test of this binary starts a process: a process that is being started holds the sockets of
//! this one for a moment, and the targets of `fuzz` use sockets while the time is paused.
//!
//! `TIDEGATE_HISTORIES` says how many random histories each law is checked with.

mod answers;
mod bytes;
mod cases;
mod changes;
mod check;
mod clocks;
mod exact;
mod extremes;
mod fields;
mod forgotten;
mod fuzz;
mod history;
mod oracle;
mod owed;
mod plans;
mod refunds;
mod resets;
mod untouched;
