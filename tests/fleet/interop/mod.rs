//! Rust processes and Java processes on one Redis, on a cluster or behind sentinels: the real
//! Redisson beside this crate.
//!
//! `bash tests/interop.sh` builds the Java half and runs this; without it nothing here does.

mod acl;
mod alike;
mod calls;
mod fairness;
mod fleet;
mod generations;
mod limits;
mod locks;
mod random;
mod topologies;
mod wake;
mod worker;

/// Whether this is the long form: 500,000 operations, and the median of five runs.
fn is_long() -> bool {
    std::env::var("TIDEGATE_INTEROP").is_ok_and(|form| form == "long")
}
