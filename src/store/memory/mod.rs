//! The counts of one process.
//!
//! `memory_store.rs` says what happens when all keys are taken; a `shard.rs` keeps the counts of a
//! part of the keys; `list.rs` decides about several counts together, and `permits.rs` keeps
//! the requests in progress, `calendars.rs` what counts in periods of the calendar.

mod calendars;
mod holds;
mod list;
mod memory_store;
mod permits;
mod shard;
mod sync;

pub use memory_store::MemoryStore;
