//! The counts of one process.
//!
//! `memory_store.rs` says what happens when all keys are taken; a `shard.rs` keeps the counts of a
//! part of the keys in a `slab.rs`.

mod memory_store;
mod shard;
mod slab;
mod sync;

pub use memory_store::MemoryStore;
