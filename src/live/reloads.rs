use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::file_watcher::FileContent;
use crate::config::ConfigError;
use crate::rule::{Applied, ContentHash, Rules, SharedRules};
use crate::sync::lock;
use crate::trace;

/// Applies what files contain, and keeps what became of it.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    state: Mutex<ReloadState>,
}

/// The rules of a file, and the hash of its text.
type NewRules = (Rules, ContentHash);

#[derive(Debug, Default)]
struct ReloadState {
    reloads: u64,
    failures: u64,
    failure: Option<Failure>,
    watched: Option<Arc<Path>>,
    /// The number of the newest watcher: none before it may change anything.
    watcher: u64,
    /// The number of readings that were begun by calls or applied by a watcher.
    readings: u64,
    /// The last of these that was applied: no older one is.
    applied: u64,
}

impl Reloads {
    /// Reads a file now and applies its rules.
    pub(crate) fn reload(&self, rules: &SharedRules, file: &Path) -> Result<(), ConfigError> {
        let reading = lock(&self.state).begin();
        // Nothing is locked meanwhile: a file system may hang.
        let read = || {
            let content = FileContent::read(file)?;
            Ok((Rules::from_new_text(&content.text, file)?, content.hash))
        };
        match read() {
            Ok(new) => {
                let applied = lock(&self.state).apply(reading, rules, new);
                log_applied(file, applied.as_ref());
                Ok(())
            }
            Err(error) => {
                self.failed(None, file, &error);
                Err(error)
            }
        }
    }

    pub(crate) fn status(&self, rules: &SharedRules) -> ReloadStatus {
        let state = lock(&self.state);
        let (applied, failure) = (rules.applied(), state.failure.as_ref());
        ReloadStatus {
            version: applied.version,
            content_hash: applied.hash.map(|hash| hash.to_string()),
            applied_at: applied.at,
            kept_rules: applied.kept.to_vec(),
            error: failure.map(|failure| failure.message.clone()),
            failing_since: failure.map(|failure| failure.since),
            reloads: state.reloads,
            failures: state.failures,
            watched: state.watched.as_deref().map(Path::to_owned),
        }
    }

    /// Notes a watcher that replaces the one before it. Returns its number.
    pub(super) fn begin_watch(&self, file: &Arc<Path>) -> u64 {
        let mut state = lock(&self.state);
        state.watcher += 1;
        state.watched = Some(Arc::clone(file));
        state.watcher
    }

    /// Notes that a watcher has ended, unless another one has replaced it.
    pub(super) fn end_watch(&self, watcher: u64, file: &Path) {
        let mut state = lock(&self.state);
        if state.watcher == watcher {
            state.watched = None;
            state.fail(file, "no longer watched: the task has ended");
        }
    }

    /// Applies a watcher's rules. `None` if they are in force already, or if another watcher has
    /// replaced this one.
    pub(super) fn apply(
        &self,
        watcher: u64,
        rules: &SharedRules,
        new: NewRules,
    ) -> Option<Applied> {
        let mut state = lock(&self.state);
        let reading = state.begin();
        if state.watcher != watcher {
            return None;
        }
        state.apply(reading, rules, new)
    }

    /// Notes that a file is refused: logs and counts it, unless another watcher has replaced the
    /// one that says so.
    pub(super) fn failed(&self, watcher: Option<u64>, file: &Path, error: &ConfigError) {
        let error = error.to_string();
        let mut state = lock(&self.state);
        if watcher.is_some_and(|watcher| watcher != state.watcher) {
            return;
        }
        state.failures += 1;
        state.fail(file, &error);
        drop(state);
        trace::event!(warn: error, "the rules stay as they are: the file is refused");
    }

    /// Notes that a file contains what is in force: its failure is over.
    pub(super) fn unchanged(&self, file: &Path) {
        let mut state = lock(&self.state);
        let failure = state.failure.take_if(|it| it.file == absolute(file));
        drop(state);
        if failure.is_some() {
            let file = file.display().to_string();
            trace::event!(info: file, "the file contains the rules in force again");
        }
    }
}

impl ReloadState {
    /// The number of a new reading.
    fn begin(&mut self) -> u64 {
        self.readings += 1;
        self.readings
    }

    /// Applies rules, unless they are in force already, or a reading was applied that began later.
    fn apply(&mut self, reading: u64, rules: &SharedRules, new: NewRules) -> Option<Applied> {
        let (new, hash) = new;
        if reading < self.applied {
            return None;
        }
        self.applied = reading;
        self.failure = None;
        if rules.applied().hash == Some(hash) {
            return None;
        }
        self.reloads += 1;
        Some(rules.replace_unused(new, hash))
    }

    /// Notes a failure. One that lasts keeps the time of its beginning.
    fn fail(&mut self, file: &Path, message: &str) {
        let is_same = |failure: &Failure| failure.message == message;
        if !self.failure.as_ref().is_some_and(is_same) {
            self.failure = Some(Failure {
                file: absolute(file),
                message: message.to_owned(),
                since: SystemTime::now(),
            });
        }
    }
}

/// The file, independent of the working directory. Symbolic links stay, because they may be
/// replaced.
pub(super) fn absolute(file: &Path) -> PathBuf {
    path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Logs new rules, those that are kept although they are gone from the file, and which counts begin
/// anew.
pub(super) fn log_applied(file: &Path, applied: Option<&Applied>) {
    let Some(applied) = applied else {
        return;
    };
    let (shown, version) = (file.display().to_string(), applied.version);
    let file = &*shown;
    let hash = applied.hash.map(|hash| hash.to_string());
    trace::event!(info: file, version, hash, "the rules of the file apply from now on");
    if let [first, ..] = &*applied.kept {
        let number = applied.kept.len();
        trace::event!(
            warn: file, number, first,
            "rules in use are gone from the file and stay: say enabled = false to switch one off"
        );
    }
    if !applied.new_counts.is_empty() {
        const MAX_SHOWN: usize = 20;
        let number = applied.new_counts.len();
        let counts = applied.new_counts[..number.min(MAX_SHOWN)].join(" ");
        trace::event!(
            warn: file, number, counts,
            "counts begin anew: the subjects of rules have changed, or the costs of quotas"
        );
    }
}

/// Which rules are in force, where they come from, and what became of the attempts to reload them.
///
/// ```
/// use tidegate::Limits;
///
/// let limits = Limits::from_toml("[rules.getId]\nmax-count = 5\nwindow = \"10s\"")?;
/// let status = limits.status();
/// assert_eq!(status.version, 1);
/// assert_eq!(status.content_hash.as_deref(), Some("87862520c60d58a8"));
/// assert_eq!((status.error, status.kept_rules.len()), (None, 0));
/// # Ok::<(), tidegate::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReloadStatus {
    /// The version of the rules in force: 1 for those that the service began with, and one more for
    /// each change. Processes that began at different times count differently: compare
    /// [`content_hash`](Self::content_hash) to see whether two have the same rules.
    pub version: u64,
    /// The first 16 hexadecimal digits of the SHA-256 of the text that the rules were read from, as
    /// `sha256sum limits.toml` prints them. `None` if code made the rules.
    pub content_hash: Option<String>,
    /// When the rules in force were applied, by the clock of this machine.
    pub applied_at: SystemTime,
    /// The paths of the rules that are not in the file and stay in force, because a layer uses
    /// them; in alphabetical order. `enabled = false` in a rule's table switches it off.
    pub kept_rules: Vec<String>,
    /// Why the last reload failed, and why the old rules stay. `None` once a reload has worked, or
    /// once a watched file contains again what is in force.
    pub error: Option<String>,
    /// When this [error](Self::error) was first seen, by the clock of this machine.
    pub failing_since: Option<SystemTime>,
    /// How often a file's new rules were applied.
    pub reloads: u64,
    /// How often a file was refused. A file that is watched and stays as it is counts once.
    pub failures: u64,
    /// The file that is being watched. `None` before [`Limits::watch`](crate::Limits::watch), and
    /// once the runtime of the watching task has shut down.
    pub watched: Option<PathBuf>,
}

/// Why the last attempt to reload failed.
#[derive(Debug)]
struct Failure {
    file: PathBuf,
    message: String,
    since: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may still be about to apply what it has read when the next one starts.
    #[test]
    fn a_watcher_that_was_replaced_changes_nothing() {
        let (reloads, rules) = (Reloads::default(), SharedRules::default());
        let files: [Arc<Path>; 2] = ["old.toml", "new.toml"].map(|file| Path::new(file).into());
        let [old, new] = files.each_ref().map(|file| reloads.begin_watch(file));
        let apply = |watcher: u64, text: &str| {
            let new = Rules::from_toml(text).expect("valid");
            reloads.apply(watcher, &rules, (new, ContentHash::new(text)))
        };
        let text = "[rules.a]\nmax-count = 1\nwindow = \"1s\"";
        assert!(apply(old, text).is_none());
        let error = ConfigError::unreadable(&files[0], std::io::Error::other("gone"));
        reloads.failed(Some(old), &files[0], &error);
        reloads.end_watch(old, &files[0]);
        let status = reloads.status(&rules);
        assert_eq!(
            (status.version, status.error, status.failures),
            (1, None, 0)
        );
        assert_eq!(status.watched.as_deref(), Some(&*files[1]));

        assert_eq!(apply(new, text).map(|applied| applied.version), Some(2));
        reloads.failed(Some(new), &files[1], &error);
        assert_eq!(reloads.status(&rules).failures, 1);
    }
}
