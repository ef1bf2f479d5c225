//! A fleet of two versions on one Redis: processes of an older version beside those of this tree,
//! rolled up and back. `bash tests/versions.sh` builds a program of each, and runs this.

mod histories;
// The programs play its lines on Redis, the histories in memory.
#[expect(unreachable_pub, reason = "the programs use it as their own")]
#[path = "../../versions/src/player.rs"]
mod player;
mod rolls;

use std::io::Write;

use crate::*;

/// The version of a program, by the variable that says where it is.
type Version = &'static str;
const OLD: Version = "TIDEGATE_OLD";
const NEW: Version = "TIDEGATE_NEW";

fn start(version: Version, url: &str, mode: &str) -> Child {
    let program = std::env::var(version).expect("tests/versions.sh says where it is");
    let mut command = Command::new(program);
    let command = command.args([url, mode]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).spawn().expect("it starts")
}

/// One that answers line by line.
type Process = crate::process::Process<Version>;

fn player(version: Version, url: &str) -> Process {
    Process::of(version, start(version, url, "play"))
}

/// For how long each of the two tests plays.
fn share() -> Duration {
    Duration::from_secs(from_env("TIDEGATE_VERSIONS_SECONDS", 60)) / 2
}
