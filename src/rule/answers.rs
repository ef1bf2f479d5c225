use http::StatusCode;

use super::headers::Headers;
use super::rule::Rule;

/// What a file says of the answers under a rule, or under all that say nothing themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerSettings {
    pub(crate) headers: Option<Headers>,
    /// That of the default answer to a denial over HTTP.
    pub(crate) status: Option<StatusCode>,
}

impl AnswerSettings {
    /// Their names in a file, in its rules and in warnings. Calls to a partner have none of them.
    pub(crate) const NAMES: [&str; 2] = ["headers", "status"];

    /// The names of those that are said here, and by code, too.
    pub(crate) fn hidden(self, by_code: [bool; Self::NAMES.len()]) -> Vec<&'static str> {
        let said = [self.headers.is_some(), self.status.is_some()];
        let names = Self::NAMES.into_iter().enumerate();
        let hidden = names.filter(|(at, _)| said[*at] && by_code[*at]);
        hidden.map(|(_, name)| name).collect()
    }
}

impl Rule {
    /// What the file says of the answers under this rule, where code says nothing.
    #[cfg(feature = "config")]
    pub(crate) fn with_answers(self, answers: AnswerSettings) -> Self {
        self.with(|it| it.answers = answers)
    }

    /// What the file says of its answers: of this rule, else of all.
    pub(crate) fn answers(&self) -> AnswerSettings {
        let own = self.settings.answers;
        let file = self.settings.file.as_ref().map(|it| it.answers);
        AnswerSettings {
            headers: own.headers.or(file.and_then(|it| it.headers)),
            status: own.status.or(file.and_then(|it| it.status)),
        }
    }
}
