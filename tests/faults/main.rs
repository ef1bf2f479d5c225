//! What goes wrong with Redis and the way to it, under load: what the caller gets, how long that
//! takes, what is counted, and that it is over by itself. Each fault prints its row of the table;
//! `tests/faults.sh` prints all.
//!
//! These tests wait on the clock of the wall, so `tests/run.sh` does not run them. Which call gets
//! what by which fault is tested in `hostile/faults`.

mod access;
mod cycles;
mod fault;
mod keys;
mod kit_faults;
mod late;
mod load;
mod network;
mod process;
mod roles;
mod stalled;
mod tls;

use redis::{Cmd, cmd};

/// A command of some words.
fn words(words: &str) -> Cmd {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(word);
    }
    command
}

/// Has the server do this.
fn run(server: &kit::Redis, command: &str) {
    let done = words(command).exec(&mut server.connection());
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}
