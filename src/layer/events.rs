//! What the log is told: changes, and not each request.

use std::fmt::Display;

use super::settings::Settings;
use crate::rule::{OnError, Rule};
use crate::trace;

impl Settings {
    pub(super) fn tell_of_success(&self, path: &str) {
        if self.trouble.ends() {
            trace::event!(warn: path, "decisions are made again");
        }
    }

    /// The rule leaves it to a fallback, and there is none.
    pub(super) fn tell_of_no_fallback(&self, rule: &Rule) {
        if rule.error_policy() == Some(OnError::Fallback) && !self.store.has_fallback() {
            self.no_fallback.call_once(|| {
                let path = rule.path();
                trace::event!(warn: path, "the rule says \"fallback\", and its store has none: answered with a 503");
            });
        }
    }

    pub(super) fn tell_of_failure(&self, path: &str, error: &dyn Display) {
        if self.trouble.begins() {
            let error = error.to_string();
            trace::event!(warn: path, error, "no decisions: the error callbacks answer");
        }
    }
}
