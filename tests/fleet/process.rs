//! Processes that speak in lines.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a process may take for its next line.
const MAX_SILENCE: Duration = Duration::from_secs(120);

/// A running process; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process<W> {
    pub(crate) who: W,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl<W: Debug> Process<W> {
    pub(crate) fn of(who: W, mut child: Child) -> Self {
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("is piped"));
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.map_while(|line| sender.send(line).ok()).count()
        });
        Self {
            who,
            input: child.stdin.take(),
            child,
            lines,
        }
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
            let line = line.unwrap_or_else(|error| panic!("{:?}: {error}", self.who));
            if is_it(&line) {
                return line;
            }
        }
    }

    /// What it says next to this line.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line(|_| true)
    }

    /// All further lines, until it ends.
    pub(crate) fn rest(mut self) -> Vec<String> {
        self.input = None;
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(MAX_SILENCE) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{:?} is silent", self.who),
            }
        }
        assert!(self.child.wait().expect("our child").success(), "{rest:?}");
        rest
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl<W> Drop for Process<W> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
