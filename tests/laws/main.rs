//! The laws of counting, checked from outside against brute force, without Redis.
//!
//! The crate keeps running totals, sub-windows and buckets. The oracle here keeps a list and adds
//! it up. Neither knows of the other: these tests use the public interface alone.
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
mod forgotten;
mod history;
#[cfg(tidegate_model)]
mod interleavings;
#[cfg(miri)]
mod miri;
mod oracle;
mod refunds;
mod untouched;
