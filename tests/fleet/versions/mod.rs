//! A fleet of two versions on one Redis: processes of an older version beside those of this tree,
//! rolled up and back. `bash tests/versions.sh` builds a program of each, and runs this.

mod histories;
// The programs play its lines on Redis, the histories in memory.
#[expect(unreachable_pub, reason = "the programs use it as their own")]
#[path = "../../versions/src/player.rs"]
mod player;
mod rolls;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

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
struct Process(Version, Child, BufReader<ChildStdout>);

impl Process {
    fn start(version: Version, url: &str) -> Self {
        let mut child = start(version, url, "play");
        let answers = BufReader::new(child.stdout.take().expect("is piped"));
        Self(version, child, answers)
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.1.stdin.as_mut().expect("is piped"), "{line}").expect("it listens");
        let mut answer = String::new();
        self.2.read_line(&mut answer).expect("an answer");
        answer.strip_suffix('\n').expect("it goes on").to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.1
            .kill()
            .and_then(|()| self.1.wait())
            .expect("our child");
    }
}

/// For how long each of the two tests plays.
fn share() -> Duration {
    Duration::from_secs(from_env("TIDEGATE_VERSIONS_SECONDS", 60)) / 2
}
