//! Processes of either language.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use kit::workers::worker_command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    Rust,
}

pub(crate) type Process = crate::process::Process<Language>;

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
        Self::of(language, command.spawn().expect("it starts"))
    }

    pub(crate) fn ready(&mut self) {
        self.line(|line| line == "ready");
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
