use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::reloads::{Reloads, absolute, log_applied};
use crate::config::ConfigError;
use crate::regular_file;
use crate::rule::{Applied, ContentHash, Rules, SharedRules, WeakRules};

/// How long a file is left alone after two readings agreed.
const PAUSE: Duration = Duration::from_secs(2);
/// How long after a reading the next one has to confirm it. A write that takes less time is never
/// seen half by both.
const CONFIRM_AFTER: Duration = Duration::from_millis(250);
/// After this long without an answer of the file system, reading the file has failed.
const MAX_READ: Duration = Duration::from_secs(10);

type Reading = Result<FileContent, ConfigError>;

/// The background task that keeps rules as a file says.
///
/// The rules own it: it is aborted when their last clone is dropped, or when another one replaces
/// it. A reading blocks a thread of the runtime's pool for blocking work, and there is never more
/// than one of them.
#[derive(Debug)]
pub(crate) struct FileWatcher {
    number: u64,
    file: Arc<Path>,
    rules: WeakRules,
    reloads: Arc<Reloads>,
    state: FileState,
    /// Whether the rules in force are those of the file when it settled last.
    is_applied: bool,
    /// A reading that takes longer than it may, as on a network mount that does not answer.
    late: Option<JoinHandle<Reading>>,
}

impl FileWatcher {
    /// Starts the task. It replaces the one that was started before.
    pub(crate) fn start(
        rules: &SharedRules,
        reloads: &Arc<Reloads>,
        file: &Path,
    ) -> Result<(), WatchError> {
        let runtime = Handle::try_current().map_err(|_| WatchError::NoRuntime)?;
        // Nothing else tells whether there is a timer.
        catch_unwind(|| drop(sleep(Duration::ZERO))).map_err(|_| WatchError::NoTimer)?;
        let file: Arc<Path> = absolute(file).into();
        let number = reloads.begin_watch(&file);
        let watcher = Self {
            number,
            file,
            rules: rules.downgrade(),
            reloads: Arc::clone(reloads),
            state: FileState::new(rules.applied().hash),
            is_applied: true,
            late: None,
        };
        rules.own_updater(number, runtime.spawn(watcher.run()).abort_handle());
        Ok(())
    }

    async fn run(mut self) {
        loop {
            let reading = self.read().await;
            let pause = match self.state.judge(&reading) {
                FileChange::Unconfirmed => CONFIRM_AFTER,
                FileChange::Confirmed => {
                    self.act_on(reading).await;
                    PAUSE
                }
                FileChange::Settled => {
                    if self.is_applied {
                        self.reloads.unchanged(&self.file);
                    }
                    PAUSE
                }
            };
            sleep(pause).await;
        }
    }

    /// What the file contains, or why it cannot be read.
    async fn read(&mut self) -> Reading {
        let mut reading = self.late.take().unwrap_or_else(|| {
            let file = Arc::clone(&self.file);
            spawn_blocking(move || FileContent::read(&file))
        });
        match timeout(MAX_READ, &mut reading).await {
            Ok(Ok(content)) => content,
            Ok(Err(_)) => Err(self.error("a panic while it was read")),
            Err(_) => {
                self.late = Some(reading);
                Err(self.error("the file system does not answer"))
            }
        }
    }

    /// Applies a reading, or reports why it is refused.
    async fn act_on(&mut self, reading: Reading) {
        let in_force = self.rules.upgrade().and_then(|rules| rules.applied().hash);
        let applied = match reading {
            Ok(content) if in_force == Some(content.hash) => {
                self.reloads.unchanged(&self.file);
                Ok(None)
            }
            Ok(content) => self.apply(content).await,
            Err(error) => Err(error),
        };
        self.is_applied = applied.is_ok();
        match applied {
            Ok(applied) => log_applied(&self.file, applied.as_ref()),
            Err(error) => self.reloads.failed(Some(self.number), &self.file, &error),
        }
    }

    /// Reads and swaps the rules on a thread that may be busy for a while.
    async fn apply(&self, content: FileContent) -> Result<Option<Applied>, ConfigError> {
        let (file, rules) = (Arc::clone(&self.file), self.rules.clone());
        let (reloads, number) = (Arc::clone(&self.reloads), self.number);
        let applied = spawn_blocking(move || {
            let new = Rules::from_new_text(&content.text, &file)?;
            let rules = rules.upgrade();
            Ok(rules.and_then(|rules| reloads.apply(number, &rules, (new, content.hash))))
        });
        let panicked = |_| Err(self.error("a panic while its rules were read"));
        applied.await.unwrap_or_else(panicked)
    }

    fn error(&self, message: &str) -> ConfigError {
        ConfigError::unreadable(&self.file, std::io::Error::other(message))
    }
}

/// The runtime shuts down, or the task has panicked. If the rules are gone, nothing is reported.
impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.reloads.end_watch(self.number, &self.file);
    }
}

/// What a reading shows: a text by its hash, or a failure by its message.
type ShownContent = Result<ContentHash, String>;

/// What a watcher knows of its file. Decides what a reading means.
#[derive(Debug)]
pub(super) struct FileState {
    /// What two readings agreed on last, and what is in force before.
    settled: Option<ShownContent>,
    /// The reading before, with the time of the last write: two writes may each be seen half, and
    /// show the same half.
    last: Option<(ShownContent, Option<SystemTime>)>,
}

/// What a reading means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileChange {
    /// The file is as it was when two readings agreed last.
    Settled,
    /// Something new: it has to be read once more.
    Unconfirmed,
    /// Something new that two readings in a row agree on.
    Confirmed,
}

impl FileState {
    /// While the rules in force are those of this text, or of none.
    pub(super) fn new(applied: Option<ContentHash>) -> Self {
        Self {
            settled: applied.map(Ok),
            last: None,
        }
    }

    /// What this reading means.
    pub(super) fn judge(&mut self, reading: &Result<FileContent, ConfigError>) -> FileChange {
        let shown: ShownContent = match reading {
            Ok(content) => Ok(content.hash),
            Err(error) => Err(error.to_string()),
        };
        let written = reading.as_ref().ok().and_then(|content| content.modified);
        let reading = Some((shown.clone(), written));
        let is_confirmed = self.last == reading;
        self.last = reading;
        if self.settled.as_ref() == Some(&shown) {
            return FileChange::Settled;
        }
        if !is_confirmed {
            return FileChange::Unconfirmed;
        }
        self.settled = Some(shown);
        FileChange::Confirmed
    }
}

/// The largest file that is read: many times what 10,000 rules need.
const MAX_FILE: (u64, &str) = (16 * 1024 * 1024, "16 MiB");

/// What a file contained when it was read.
#[derive(Debug)]
pub(super) struct FileContent {
    pub(super) text: String,
    pub(super) hash: ContentHash,
    /// The time of the last write before the text was read. `None` where files do not have it.
    pub(super) modified: Option<SystemTime>,
}

impl FileContent {
    /// Reads the whole file. Blocks for as long as the file system takes.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let read = regular_file::read(path, MAX_FILE);
        let (text, metadata) = read.map_err(|error| ConfigError::unreadable(path, error))?;
        Ok(Self {
            hash: ContentHash::new(&text),
            text,
            modified: metadata.modified().ok(),
        })
    }
}

/// Why [`Limits::watch`](crate::Limits::watch) cannot watch a file.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no tokio runtime that the watching task could run on.
    #[error("no tokio runtime here, expected one: call watch inside of an async fn")]
    NoRuntime,
    /// The tokio runtime has no timer.
    #[error(
        "the tokio runtime has no timer, expected one: build it with enable_time or enable_all"
    )]
    NoTimer,
}

crate::error::debug_as_message!(WatchError);

#[cfg(test)]
mod tests {
    /// A file system that does not answer is asked once, and waited for.
    #[tokio::test(start_paused = true)]
    async fn a_reading_that_hangs_is_not_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let file: Arc<Path> = folder.path().join("limits.toml").into();
        std::fs::write(&file, "late").expect("is written");
        let late = Arc::clone(&file);
        let hanging = tokio::spawn(async move {
            sleep(MAX_READ * 5 / 2).await;
            FileContent::read(&late)
        });
        let rules = SharedRules::default();
        let mut watcher = FileWatcher {
            number: 1,
            file: Arc::clone(&file),
            rules: rules.downgrade(),
            reloads: Arc::default(),
            state: FileState::new(None),
            is_applied: false,
            late: Some(hanging),
        };
        for _ in 0..2 {
            let error = watcher.read().await.expect_err("it hangs").to_string();
            assert!(
                error.ends_with("the file system does not answer"),
                "{error}"
            );
        }
        assert_eq!(watcher.read().await.expect("the late one").text, "late");
        std::fs::write(&file, "next").expect("is written");
        assert_eq!(watcher.read().await.expect("the next one").text, "next");
    }

    /// A bug that panics while a file is read ends one reading, and not the task.
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_of_one_reading() {
        let mut watcher = FileWatcher {
            number: 1,
            file: Path::new("/nowhere/limits.toml").into(),
            rules: SharedRules::default().downgrade(),
            reloads: Arc::default(),
            state: FileState::new(None),
            is_applied: false,
            late: Some(spawn_blocking(|| panic!("on purpose"))),
        };
        let error = watcher.read().await.expect_err("it panicked").to_string();
        assert!(error.contains("panic"), "{error}");
        let error = watcher.read().await.expect_err("no such file").to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A reading of this text, written at this second.
    fn text(text: &str, second: u64) -> Result<FileContent, ConfigError> {
        Ok(FileContent {
            text: text.to_owned(),
            hash: ContentHash::new(text),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(second)),
        })
    }

    fn failure(message: &str) -> Result<FileContent, ConfigError> {
        let error = std::io::Error::other(message);
        Err(ConfigError::unreadable(Path::new("limits.toml"), error))
    }

    /// The state of a file that contains the text "a", whose rules are in force.
    fn of_a() -> FileState {
        FileState::new(Some(ContentHash::new("a")))
    }

    #[test]
    fn a_change_is_confirmed_by_the_next_reading() {
        let mut state = of_a();
        assert_eq!(state.judge(&text("a", 0)), FileChange::Settled);
        assert_eq!(
            state.judge(&text("a", 9)),
            FileChange::Settled,
            "written again"
        );
        assert_eq!(state.judge(&text("b", 1)), FileChange::Unconfirmed);
        assert_eq!(state.judge(&text("b", 1)), FileChange::Confirmed);
        assert_eq!(state.judge(&text("b", 1)), FileChange::Settled);
        assert_eq!(state.judge(&text("a", 1)), FileChange::Unconfirmed);
    }

    #[test]
    fn nothing_is_confirmed_while_readings_differ() {
        let mut state = of_a();
        for (reading, verdict) in [
            (text("b", 1), FileChange::Unconfirmed),
            (text("c", 1), FileChange::Unconfirmed),
            (failure("gone"), FileChange::Unconfirmed),
            (text("c", 1), FileChange::Unconfirmed),
            // Another write, which shows the same half.
            (text("c", 2), FileChange::Unconfirmed),
            (text("a", 3), FileChange::Settled),
            (text("c", 2), FileChange::Unconfirmed),
            (text("c", 2), FileChange::Confirmed),
        ] {
            assert_eq!(state.judge(&reading), verdict);
        }
    }

    #[test]
    fn what_is_refused_is_reported_once() {
        let mut state = of_a();
        for wrong in [text("b", 1), failure("gone"), failure("denied")] {
            assert_eq!(state.judge(&wrong), FileChange::Unconfirmed);
            assert_eq!(state.judge(&wrong), FileChange::Confirmed);
            assert_eq!(state.judge(&wrong), FileChange::Settled);
            // A moment of something else changes nothing.
            assert_eq!(state.judge(&text("c", 1)), FileChange::Unconfirmed);
            assert_eq!(state.judge(&wrong), FileChange::Settled);
            assert_eq!(state.judge(&text("c", 1)), FileChange::Unconfirmed);
            assert_eq!(state.judge(&wrong), FileChange::Settled);
        }
        assert_eq!(state.judge(&text("a", 1)), FileChange::Unconfirmed);
        assert_eq!(state.judge(&text("a", 1)), FileChange::Confirmed);
        assert_eq!(state.judge(&failure("denied")), FileChange::Unconfirmed);
        assert_eq!(
            state.judge(&failure("denied")),
            FileChange::Confirmed,
            "it is new again"
        );
    }

    #[test]
    fn rules_of_no_text_are_replaced_by_any() {
        let mut state = FileState::new(None);
        assert_eq!(state.judge(&failure("gone")), FileChange::Unconfirmed);
        assert_eq!(state.judge(&failure("gone")), FileChange::Confirmed);
        assert_eq!(state.judge(&text("", 0)), FileChange::Unconfirmed);
        assert_eq!(state.judge(&text("", 0)), FileChange::Confirmed);
    }
}
