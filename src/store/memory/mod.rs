//! The counts of one process.

mod due;
pub(crate) mod memory_store;
mod micros;
mod once;
mod shard;
mod slots;
mod sync;

pub(crate) use memory_store::MemoryStore;
