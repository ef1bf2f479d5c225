//! The counts of one process.

mod charged_once;
mod due_queue;
pub(crate) mod memory_store;
mod shard;
mod slab;
mod split_micros;
mod sync;

pub(crate) use memory_store::MemoryStore;
