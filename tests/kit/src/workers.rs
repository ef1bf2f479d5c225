//! Processes: this test binary, started anew for a single test that plays the worker. A worker
//! prints lines of a word and numbers.

use std::fmt::Debug;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

/// What a worker needs to know, in its environment.
const WORKER: &str = "TIDEGATE_TEST_WORKER";

/// The number that a variable of the environment says, or another one.
pub fn from_env<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().expect("a number"))
}

pub fn start_worker(name: &str, instructions: &str) -> Child {
    worker_command(name, instructions)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts")
}

/// So many of them, each with its own instructions.
pub fn start_workers(
    name: &str,
    number: usize,
    instructions: impl Fn(usize) -> String,
) -> Vec<Child> {
    let workers = (0..number).map(|at| start_worker(name, &instructions(at)));
    workers.collect()
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

/// The same of all workers together.
pub fn sum(outputs: &[String], word: &str) -> u64 {
    outputs.iter().map(|output| number(output, word)).sum()
}

/// The numbers in each line that begins with this word.
pub fn lines_of(outputs: &[String], word: &str) -> impl Iterator<Item = Vec<u64>> {
    let lines = outputs.iter().flat_map(|output| output.lines());
    let lines = lines.filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(|line| {
        let numbers = line.split(' ').map(|text| text.parse().expect("a number"));
        numbers.collect()
    })
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

/// The last words of the instructions, which are numbers.
pub fn numbers<const N: usize>(words: &[String]) -> [u64; N] {
    let last = words.last_chunk::<N>().expect("so many");
    last.each_ref().map(|word| word.parse().expect("a number"))
}
