//! Faults by calls, as a matrix: each fault of a real server meets each call that a caller can
//! make.
//!
//! `matrix.rs` is the table: what the caller gets. Each cell also holds the laws: an answer comes
//! in time (law 6), a caller who is told an error that says so was charged nothing, and no key was
//! written in part (laws 2 and 10), every key expires (law 4), takes of others in the same flight
//! get what the table says of them (law 13), and once the fault is over the next calls are answered
//! as if nothing had been, and the counts are right.
//!
//! Each cell is a test: `no_memory::refund` is the fault and the call.

mod beside;
mod calls;
mod cell;
mod matrix;

use kit::prelude::*;
