use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::rule::Applied;

/// Which rules are in force, where they come from, and what became of the attempts to reload them.
///
/// ```
/// use tidegate::Limits;
///
/// let limits = Limits::from_toml("[rules.getId]\nmax-count = 5\nwindow = \"10s\"")?;
/// let status = limits.status();
/// assert_eq!(status.version(), 1);
/// assert_eq!(status.content_hash().as_deref(), Some("87862520c60d58a8"));
/// assert_eq!((status.error(), status.kept_rules()), (None, &[][..]));
/// # Ok::<(), tidegate::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReloadStatus {
    pub(super) applied: Applied,
    pub(super) attempts: Attempts,
}

/// What became of the attempts to reload.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts {
    pub(super) reloads: u64,
    pub(super) failures: u64,
    pub(super) failure: Option<Failure>,
    pub(super) watched: Option<Arc<Path>>,
}

/// Why the last attempt to reload failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) file: PathBuf,
    pub(super) message: String,
    pub(super) since: SystemTime,
}

impl ReloadStatus {
    /// The version of the rules in force: 1 for those that the service began with, and one more for
    /// each change. Processes that began at different times count differently: compare
    /// [`content_hash`](Self::content_hash) to see whether two have the same rules.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.applied.version
    }

    /// The first 16 hexadecimal digits of the SHA-256 of the text that the rules were read from, as
    /// `sha256sum limits.toml` prints them. `None` if code made the rules.
    #[must_use]
    pub fn content_hash(&self) -> Option<String> {
        self.applied.hash.map(|hash| hash.to_string())
    }

    /// When the rules in force were applied, by the clock of this machine.
    #[must_use]
    pub const fn applied_at(&self) -> SystemTime {
        self.applied.at
    }

    /// The paths of the rules that are not in the file and stay in force, because a layer uses
    /// them; in alphabetical order. `enabled = false` in a rule's table switches it off.
    #[must_use]
    pub fn kept_rules(&self) -> &[String] {
        &self.applied.kept
    }

    /// Why the last reload failed, and why the old rules stay. `None` once a reload has worked, or
    /// once a watched file contains again what is in force.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        let failure = self.attempts.failure.as_ref()?;
        Some(&failure.message)
    }

    /// When this [error](Self::error) was first seen, by the clock of this machine.
    #[must_use]
    pub fn failing_since(&self) -> Option<SystemTime> {
        let failure = self.attempts.failure.as_ref()?;
        Some(failure.since)
    }

    /// How often a file's new rules were applied.
    #[must_use]
    pub const fn reloads(&self) -> u64 {
        self.attempts.reloads
    }

    /// How often a file was refused. A file that is watched and stays as it is counts once.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.attempts.failures
    }

    /// The file that is being watched. `None` before [`Limits::watch`](crate::Limits::watch), and
    /// once the runtime of the watching task has shut down.
    #[must_use]
    pub fn watched(&self) -> Option<&Path> {
        self.attempts.watched.as_deref()
    }
}
