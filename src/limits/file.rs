//! Rules from a file.

use std::path::Path;

use super::limits::Limits;
use crate::config::ConfigError;
use crate::live::{FileWatcher, ReloadStatus, WatchError};
use crate::rule::{ContentHash, Rules, SharedRules};

impl Limits {
    /// The rules of a TOML file; see [`config`](crate::config) for what may be in it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](crate::config::ConfigError) if the file cannot be read, or with the file,
    /// the line, the key and what was expected, if something in it is wrong.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let (rules, text) = Rules::from_file_with_text(path.as_ref())?;
        Ok(Self::from_text(rules, &text))
    }

    /// The rules of a TOML text.
    ///
    /// # Errors
    ///
    /// As [`Limits::from_file`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_text(Rules::from_toml(text)?, text))
    }

    fn from_text(rules: Rules, text: &str) -> Self {
        Self::from_shared(SharedRules::with_hash(rules, Some(ContentHash::new(text))))
    }

    /// Watches a file, and replaces all rules by those of the file whenever it changes, also in the
    /// layers that were made already. [`live`](crate::live) says what is guaranteed.
    ///
    /// The file is read by a task of the current tokio runtime: for the first time immediately, but
    /// this call does not wait for it. The task ends with the runtime, with the last layer and the
    /// last clone of these limits, and when another file is watched. The file need not exist yet.
    ///
    /// ```no_run
    /// use tidegate::Limits;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// // Fails if something is wrong with the file now.
    /// let limits = Limits::from_file("limits.toml")?;
    /// limits.watch("limits.toml")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`WatchError`](crate::live::WatchError) outside of a tokio runtime, or if the runtime has no
    /// timer. Errors of the file are logged, and shown by [`status`](Limits::status).
    pub fn watch(&self, path: impl AsRef<Path>) -> Result<(), WatchError> {
        FileWatcher::start(&self.rules, &self.reloads, path.as_ref())
    }

    /// Replaces all rules by those of a file, also in the layers that were made already. If
    /// something is wrong with the file, or if it has no rules, the rules stay as they are. A rule
    /// that a layer uses and that the file lacks stays, too: it is
    /// [listed](crate::live::ReloadStatus::kept_rules), and `enabled = false` in its table switches
    /// it off.
    ///
    /// The file is read once, and the call blocks meanwhile: call it when the file is complete.
    ///
    /// # Errors
    ///
    /// [`ConfigError`](crate::config::ConfigError) as from [`Limits::from_file`]; also for what is
    /// not a regular file, for more than 16 MiB, and for a file without rules, unless it says
    /// `enabled = false`.
    pub fn reload(&self, path: impl AsRef<Path>) -> Result<(), ConfigError> {
        self.reloads.reload(&self.rules, path.as_ref())
    }

    /// Which rules are in force, since when, and why the last reload failed.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.reloads.status(&self.rules)
    }
}
