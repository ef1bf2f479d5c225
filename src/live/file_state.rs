use std::time::SystemTime;

use super::file_content::FileContent;
use crate::config::ConfigError;
use crate::rule::ContentHash;

/// What a reading shows: a text by its hash, or a failure by its message.
type Shown = Result<ContentHash, String>;

/// What a watcher knows of its file. Decides what a reading means.
#[derive(Debug)]
pub(super) struct FileState {
    /// What two readings agreed on last, and what is in force before.
    settled: Option<Shown>,
    /// The reading before, with the time of the last write: two writes may each be seen half, and
    /// show the same half.
    last: Option<(Shown, Option<SystemTime>)>,
}

/// What a reading means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
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
    pub(super) fn judge(&mut self, reading: &Result<FileContent, ConfigError>) -> Verdict {
        let shown: Shown = match reading {
            Ok(content) => Ok(content.hash),
            Err(error) => Err(error.to_string()),
        };
        let written = reading.as_ref().ok().and_then(|content| content.modified);
        let reading = Some((shown.clone(), written));
        let is_confirmed = self.last == reading;
        self.last = reading;
        if self.settled.as_ref() == Some(&shown) {
            return Verdict::Settled;
        }
        if !is_confirmed {
            return Verdict::Unconfirmed;
        }
        self.settled = Some(shown);
        Verdict::Confirmed
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A reading of this text, written at this second.
    fn text(text: &str, second: u64) -> Result<FileContent, ConfigError> {
        Ok(FileContent {
            text: text.to_owned(),
            hash: ContentHash::of(text),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(second)),
        })
    }

    fn failure(message: &str) -> Result<FileContent, ConfigError> {
        let error = io::Error::other(message);
        Err(ConfigError::unreadable(Path::new("limits.toml"), error))
    }

    /// The state of a file that contains the text "a", whose rules are in force.
    fn of_a() -> FileState {
        FileState::new(Some(ContentHash::of("a")))
    }

    #[test]
    fn a_change_is_confirmed_by_the_next_reading() {
        let mut state = of_a();
        assert_eq!(state.judge(&text("a", 0)), Verdict::Settled);
        assert_eq!(
            state.judge(&text("a", 9)),
            Verdict::Settled,
            "written again"
        );
        assert_eq!(state.judge(&text("b", 1)), Verdict::Unconfirmed);
        assert_eq!(state.judge(&text("b", 1)), Verdict::Confirmed);
        assert_eq!(state.judge(&text("b", 1)), Verdict::Settled);
        assert_eq!(state.judge(&text("a", 1)), Verdict::Unconfirmed);
    }

    #[test]
    fn nothing_is_confirmed_while_readings_differ() {
        let mut state = of_a();
        for (reading, verdict) in [
            (text("b", 1), Verdict::Unconfirmed),
            (text("c", 1), Verdict::Unconfirmed),
            (failure("gone"), Verdict::Unconfirmed),
            (text("c", 1), Verdict::Unconfirmed),
            // Another write, which shows the same half.
            (text("c", 2), Verdict::Unconfirmed),
            (text("a", 3), Verdict::Settled),
            (text("c", 2), Verdict::Unconfirmed),
            (text("c", 2), Verdict::Confirmed),
        ] {
            assert_eq!(state.judge(&reading), verdict);
        }
    }

    #[test]
    fn what_is_refused_is_reported_once() {
        let mut state = of_a();
        for wrong in [text("b", 1), failure("gone"), failure("denied")] {
            assert_eq!(state.judge(&wrong), Verdict::Unconfirmed);
            assert_eq!(state.judge(&wrong), Verdict::Confirmed);
            assert_eq!(state.judge(&wrong), Verdict::Settled);
            // A moment of something else changes nothing.
            assert_eq!(state.judge(&text("c", 1)), Verdict::Unconfirmed);
            assert_eq!(state.judge(&wrong), Verdict::Settled);
            assert_eq!(state.judge(&text("c", 1)), Verdict::Unconfirmed);
            assert_eq!(state.judge(&wrong), Verdict::Settled);
        }
        assert_eq!(state.judge(&text("a", 1)), Verdict::Unconfirmed);
        assert_eq!(state.judge(&text("a", 1)), Verdict::Confirmed);
        assert_eq!(state.judge(&failure("denied")), Verdict::Unconfirmed);
        assert_eq!(
            state.judge(&failure("denied")),
            Verdict::Confirmed,
            "it is new again"
        );
    }

    #[test]
    fn rules_of_no_text_are_replaced_by_any() {
        let mut state = FileState::new(None);
        assert_eq!(state.judge(&failure("gone")), Verdict::Unconfirmed);
        assert_eq!(state.judge(&failure("gone")), Verdict::Confirmed);
        assert_eq!(state.judge(&text("", 0)), Verdict::Unconfirmed);
        assert_eq!(state.judge(&text("", 0)), Verdict::Confirmed);
    }
}
