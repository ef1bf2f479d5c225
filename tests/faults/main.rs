//! What goes wrong with Redis and the way to it, under load: what the caller gets, how long that
//! takes, what is counted, and that it is over by itself. Each fault prints its row of the table;
//! `tests/faults.sh` prints all.
//!
//! These tests wait on the clock of the wall, so `tests/run.sh` does not run them. Which call gets
//! what by which fault is tested in `hostile/faults`.

mod cycles;
mod fault;
mod kit_faults;
mod late;
mod load;
mod network;
mod server;
mod tls;

use kit::prelude::*;

/// How long most faults last.
const WHILE: Duration = Duration::from_millis(400);
