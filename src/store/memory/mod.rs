//! The counts of one process.
//!
//! `memory_store.rs` says what happens when all keys are taken; a `shard.rs` keeps the states of a
//! part of the keys, of any kind; `list.rs` decides about several counts together; `sync.rs` has
//! the locks and atomics, which a model checker replaces. How a state counts is in
//! `src/algorithm/`.

mod list;
mod memory_store;
mod shard;
mod sync;

pub use memory_store::MemoryStore;
pub(crate) use memory_store::SharedRoom;
