//! A process that ends with this one, however this one ends.

use std::io;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Runs the command that is given to it until its input ends, which it does with this process. The
/// output is that of the command alone, so it ends with it.
const UNTIL_THE_INPUT_ENDS: &str =
    r#""$@" & child=$!; exec >&-; read -r _; kill "$child" 2>/dev/null; wait "$child""#;

/// A running program. Dropped, it is asked to end, and waited for.
pub(crate) struct Owned {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Owned {
    /// Starts a program with these arguments and variables; its output can be read.
    pub(crate) fn start(
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> io::Result<(Self, Option<ChildStdout>)> {
        let mut command = Command::new("sh");
        command
            .args(["-c", UNTIL_THE_INPUT_ENDS, "sh", program])
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Signals of the terminal reach this process alone: the program ends when its input does.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut shell = command.spawn()?;
        let (input, output) = (shell.stdin.take(), shell.stdout.take());
        Ok((Self { shell, input }, output))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.shell.wait();
    }
}
