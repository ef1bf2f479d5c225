//! The example as a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The binary of an example.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let target = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a target folder");
    let binary = target.join("examples").join(name);
    let is_right = binary.exists();
    assert!(is_right, "build it first: cargo build --example {name}");
    binary
}

/// A command that starts the example, in an environment without our own settings.
pub(super) fn command(environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(example("web_app"));
    command
        .env("REDIS_URL", "memory")
        .env_remove("LIMITS")
        .env_remove("PROCESSES")
        .env("PORT", "0")
        .current_dir(kit::root())
        .envs(environment.iter().copied());
    command
}

/// A running app.
pub(super) struct App {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(super) greeting: [String; 3],
    pub(super) address: String,
}

impl App {
    pub(super) fn start(environment: &[(&str, &str)]) -> Self {
        let mut command = command(environment);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the example starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("is piped"));
        let greeting = std::array::from_fn(|_| {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("text");
            line.trim_end().to_owned()
        });
        let (_, address) = greeting[0].split_once("http://").expect("where it listens");
        let address = address.to_owned();
        Self {
            child,
            stdout,
            greeting,
            address,
        }
    }

    /// Status line, fields and body of an answer.
    pub(super) fn get(&self, path: &str) -> String {
        self.get_with(path, "")
    }

    /// The same for a request with further fields, each with a line end.
    pub(super) fn get_with(&self, path: &str, fields: &str) -> String {
        self.ask("GET", path, &format!("host: test\r\n{fields}"))
    }

    /// The same with another method and all of its fields.
    pub(super) fn ask(&self, method: &str, path: &str, fields: &str) -> String {
        exchange(&self.address, method, path, fields)
    }

    pub(super) fn status(&self, path: &str) -> u16 {
        status_of(&self.get(path))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an operator does; how it ended, and how long that took.
    pub(super) fn stop(mut self, signal: &str) -> (Option<i32>, Duration) {
        let started = Instant::now();
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.expect("kill runs").success());
        let status = self.child.wait().expect("our child");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "", "three lines are enough");
        (status.code(), started.elapsed())
    }
}

/// Status line, fields and body of the answer to a request with these fields, each with a line end.
pub(super) fn exchange(address: &str, method: &str, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a listening app");
    let head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

pub(super) fn status_of(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    let status = status.parse();
    status.unwrap_or_else(|_| panic!("no status in {answer:?}"))
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
