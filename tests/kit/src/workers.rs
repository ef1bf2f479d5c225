//! Processes: this test binary, started anew for a single test that plays the worker.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// What a worker needs to know, in its environment.
const WORKER: &str = "TIDEGATE_TEST_WORKER";

pub fn start_worker(name: &str, instructions: &str) -> Child {
    worker_command(name, instructions)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts")
}

pub fn worker_command(name: &str, instructions: &str) -> Command {
    let binary = std::env::current_exe().expect("this test");
    let mut command = Command::new(binary);
    command
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(WORKER, instructions);
    command
}

/// The number that the worker printed behind this word.
pub fn number(output: &str, word: &str) -> u64 {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let line = line.unwrap_or_else(|| panic!("no {word} in {output:?}"));
    line.trim().parse().expect("a number")
}

pub fn outputs(workers: Vec<Child>) -> Vec<String> {
    let output = |mut worker: Child| {
        let mut output = String::new();
        let mut stdout = worker.stdout.take().expect("is piped");
        stdout.read_to_string(&mut output).expect("text");
        assert!(worker.wait().expect("our child").success(), "{output}");
        output
    };
    workers.into_iter().map(output).collect()
}

/// Instructions for a worker, if this process is one: the server's address and words behind it.
pub fn instructions() -> Option<Vec<String>> {
    let instructions = std::env::var(WORKER).ok()?;
    Some(instructions.split_whitespace().map(str::to_owned).collect())
}
