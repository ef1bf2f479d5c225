use std::time::SystemTime;

use super::file_content::FileContent;
use crate::config::ConfigError;
use crate::rule::ContentHash;

/// After this many readings in a row without two that agree, the file counts as changing all the
/// time: 10 s.
const MAX_UNSETTLED: u32 = 40;

/// What a watcher knows of its file. Decides what a reading means.
#[derive(Debug)]
pub(super) struct FileState {
    /// The text whose rules are in force, as far as this file is concerned.
    applied: Option<ContentHash>,
    /// The text or failure that was confirmed last, unless it was applied.
    refused: Option<Observation>,
    /// A text or failure that was read once.
    unconfirmed: Option<Observation>,
    /// Readings in a row that did not agree with the one before.
    unsettled: u32,
}

/// What a reading means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The file is as it was applied.
    Applied,
    /// The file is as it was refused.
    Refused,
    /// Something new: it has to be read once more.
    Unconfirmed,
    /// The same, and this goes on for long.
    Unsettled,
    /// Something new that two readings agree on: it is refused from now on, unless
    /// [`FileState::applied`] is called.
    Confirmed,
}

/// Two readings are equal if this is equal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Observation {
    Text(ContentHash, Option<SystemTime>),
    Failure(String),
}

impl Observation {
    fn of(reading: &Result<FileContent, ConfigError>) -> Self {
        match reading {
            Ok(content) => Self::Text(content.hash, content.modified),
            Err(error) => Self::Failure(error.to_string()),
        }
    }

    /// Whether both are the same text, written at whatever time, or the same failure.
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(hash, _), Self::Text(other, _)) => hash == other,
            _ => self == other,
        }
    }
}

impl FileState {
    /// While the rules in force are those of this text, or of none.
    pub(super) fn new(applied: Option<ContentHash>) -> Self {
        Self {
            applied,
            refused: None,
            unconfirmed: None,
            unsettled: 0,
        }
    }

    /// What this reading means.
    pub(super) fn judge(&mut self, reading: &Result<FileContent, ConfigError>) -> Verdict {
        let hash = reading.as_ref().ok().map(|content| content.hash);
        let observation = Observation::of(reading);
        if hash.is_some() && hash == self.applied {
            *self = Self::new(self.applied);
            return Verdict::Applied;
        }
        if self
            .refused
            .as_ref()
            .is_some_and(|refused| refused.says_the_same(&observation))
        {
            self.settle();
            return Verdict::Refused;
        }
        // The time of the last write is compared, too: two writes may each be seen half, and show
        // the same half.
        if self.unconfirmed.as_ref() == Some(&observation) {
            self.settle();
            self.refused = Some(observation);
            return Verdict::Confirmed;
        }
        self.unconfirmed = Some(observation);
        self.unsettled = self.unsettled.saturating_add(1);
        if self.unsettled == MAX_UNSETTLED {
            // If it is what remains, it is reported again.
            self.refused = None;
            return Verdict::Unsettled;
        }
        Verdict::Unconfirmed
    }

    /// Notes that the rules of this text are in force.
    pub(super) fn applied(&mut self, hash: ContentHash) {
        *self = Self::new(Some(hash));
    }

    fn settle(&mut self) {
        self.unconfirmed = None;
        self.unsettled = 0;
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
        assert_eq!(state.judge(&text("a", 0)), Verdict::Applied);
        assert_eq!(
            state.judge(&text("a", 9)),
            Verdict::Applied,
            "written again"
        );
        assert_eq!(state.judge(&text("b", 1)), Verdict::Unconfirmed);
        assert_eq!(state.judge(&text("b", 1)), Verdict::Confirmed);
        state.applied(ContentHash::of("b"));
        assert_eq!(state.judge(&text("b", 1)), Verdict::Applied);
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
            (text("a", 3), Verdict::Applied),
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
            assert_eq!(state.judge(&wrong), Verdict::Refused);
            // A moment of something else changes nothing.
            assert_eq!(state.judge(&text("c", 1)), Verdict::Unconfirmed);
            assert_eq!(state.judge(&wrong), Verdict::Refused);
            assert_eq!(state.judge(&text("c", 1)), Verdict::Unconfirmed);
            assert_eq!(state.judge(&wrong), Verdict::Refused);
        }
        assert_eq!(state.judge(&text("a", 1)), Verdict::Applied);
        assert_eq!(state.judge(&failure("denied")), Verdict::Unconfirmed);
        assert_eq!(
            state.judge(&failure("denied")),
            Verdict::Confirmed,
            "it is new again"
        );
    }

    #[test]
    fn a_file_that_never_settles_is_reported_once() {
        let mut state = of_a();
        let wrong = failure("denied");
        let first = [state.judge(&wrong), state.judge(&wrong)];
        assert_eq!(first, [Verdict::Unconfirmed, Verdict::Confirmed]);
        let verdicts = (0..200).map(|number| state.judge(&text(&number.to_string(), 0)));
        let verdicts: Vec<_> = verdicts.collect();
        let unsettled = verdicts.iter().filter(|it| **it == Verdict::Unsettled);
        assert_eq!(unsettled.count(), 1);
        assert_eq!(verdicts[MAX_UNSETTLED as usize - 1], Verdict::Unsettled);
        assert!(!verdicts.contains(&Verdict::Confirmed));
        // The last report was of something else.
        let last = [state.judge(&wrong), state.judge(&wrong)];
        assert_eq!(last, first);
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
