//! Processes of either language, which speak in lines.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kit::workers::worker_command;

/// How long a process may take for its next line.
const MAX_SILENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    Rust,
}

/// A running process; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) language: Language,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts one in this mode, and waits until it is ready.
    pub(crate) fn start(language: Language, mode: &str, url: &str, rest: &str) -> Self {
        let mut process = Self::spawn(language, mode, url, rest);
        process.ready();
        process
    }

    /// Several at the same time.
    pub(crate) fn start_all(
        languages: &[Language],
        mode: &str,
        url: &str,
        rest: &str,
    ) -> Vec<Self> {
        let spawn = |language: &Language| Self::spawn(*language, mode, url, rest);
        let mut all: Vec<_> = languages.iter().map(spawn).collect();
        all.iter_mut().for_each(Self::ready);
        all
    }

    pub(crate) fn spawn(language: Language, mode: &str, url: &str, rest: &str) -> Self {
        let mut command = match language {
            Language::Rust => {
                worker_command("interop::worker::plays", &format!("{url} {mode} {rest}"))
            }
            Language::Java => java(mode, url, rest),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("is piped"));
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.map_while(|line| sender.send(line).ok()).count()
        });
        Self {
            language,
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    pub(crate) fn ready(&mut self) {
        self.line(|line| line == "ready");
    }

    /// Lets it begin, or gives it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("not closed");
        writeln!(input, "{line}").expect("it listens");
    }

    /// Its next line of this kind.
    pub(crate) fn line(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.lines.recv_timeout(MAX_SILENCE);
            let line = line.unwrap_or_else(|error| panic!("{:?}: {error}", self.language));
            if is_it(&line) {
                return line;
            }
        }
    }

    /// All further lines, until it ends.
    pub(crate) fn rest(mut self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(MAX_SILENCE) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{:?} is silent", self.language),
            }
        }
        assert!(self.child.wait().expect("our child").success(), "{rest:?}");
        rest
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the Java half was built.
pub(crate) fn built() -> PathBuf {
    let built = std::env::var("TIDEGATE_INTEROP_BUILT");
    kit::root().join(built.as_deref().unwrap_or("target/interop"))
}

fn java(mode: &str, url: &str, rest: &str) -> Command {
    let built = built();
    assert!(
        built.join("classes/Driver.class").exists(),
        "`bash tests/interop.sh` builds it"
    );
    let built = built.to_str().expect("an ordinary path");
    let mut command = Command::new("java");
    command
        .args(["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
        .args(["-cp", &format!("{built}/classes:{built}/lib/*"), "Driver"])
        .args([mode, url])
        .args(rest.split_whitespace());
    command
}
