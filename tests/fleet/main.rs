//! A fleet: several processes and one Redis, and the limit is one.
//!
//! The processes are this test binary, started anew for a single test that plays the worker, and
//! in [`interop`] also Java processes.

mod client;
mod frozen;
mod interop;
mod lockouts;
mod outcomes;
mod permits;
mod process;
mod saturated;
mod soak;
mod starved;
mod versions;
mod waiting;

use kit::prelude::*;
use tokio::sync::Mutex;

const PROCESSES: usize = 4;
const TASKS: usize = 16;

/// Held by a test that loads the machine: another one beside it would make it slow, not wrong.
static MACHINE: Mutex<()> = Mutex::const_new(());

async fn store(url: &str) -> Arc<dyn Store> {
    Arc::new(kit::load::store(url).await)
}
